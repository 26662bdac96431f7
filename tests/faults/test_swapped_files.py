"""Files of another run: they are refused by name. Runs of earlier versions, whose files name no run: only shown."""

import json
import shutil

import crashes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedeas.config import load_config
from fedeas.core.errors import InputError
from fedeas.core.records import DIGEST
from fedeas.core.weight_files import read_tensors, write_tensors
from fedeas.federation.run import execute
from fedeas.runs.store import RUN, RunStore, read_run

BEGUN = ["config.json", "env.json", "generator.json", "allocation.npz", "rounds.jsonl", "images.jsonl",
         "checkpoint.safetensors"]  # fmt: skip
FILES = [*BEGUN, "summary.json"]
SEEDS = 0, 1


def settings_of(seed):
    return load_config(None, [*crashes.RUN, f"seed={seed}"])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of two seeds, by whether they are finished."""
    stores = {done: RunStore(tmp_path_factory.mktemp(f"finished-{done}")) for done in (False, True)}
    pauses = {False: lambda record: record["round"] == 2, True: None}
    return {done: [execute(settings_of(seed), store, pause=pauses[done]) for seed in SEEDS]
            for done, store in stores.items()}  # fmt: skip


def copied(runs, tmp_path):
    """The store with copies of these runs, and their folders."""
    store = RunStore(tmp_path / "runs")
    shutil.rmtree(store.root, ignore_errors=True)
    shutil.copytree(runs[0].path.parent, store.root)
    return store, [store.root / run.path.name for run in runs]


def without_name(path):
    """Write a file of a run as earlier versions did: it does not name the run."""
    if path.suffix == ".npz":
        arrays = {name: array for name, array in np.load(path).items() if name != RUN}
        np.savez_compressed(path, **arrays)
    elif path.suffix == ".safetensors":
        write_tensors(path, read_tensors(path)[1], {})
    else:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        gone = RUN, DIGEST, *["fingerprint"] * (path.name == "summary.json")
        records = [{key: value for key, value in json.loads(line).items() if key not in gone} for line in lines]
        path.write_text("\n".join([*map(json.dumps, records), ""]))


@given(st.booleans(), st.sampled_from(FILES), st.permutations(SEEDS), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_a_file_of_another_run_is_refused_by_name(made, tmp_path, done, name, order, is_whole):
    if not done and name == "summary.json":
        done = True
    store, folders = copied(made[done], tmp_path)
    here, there = (folders[seed] for seed in order)
    if name == "rounds.jsonl" and not is_whole:  # one line of another run among its own
        own, others = ((folder / name).read_bytes().splitlines(keepends=True) for folder in (here, there))
        (here / name).write_bytes(b"".join([*own[:-1], others[-1]]))
    else:
        shutil.copy(there / name, here / name)
    for use in (lambda: read_run(here).check(), lambda: execute(settings_of(order[0]), store)):
        with pytest.raises(InputError, match=r"another (run|config)") as raised:
            use()
        assert name in str(raised.value) and "\n" not in str(raised.value)
    assert store.all() == [read_run(there)]


@pytest.mark.parametrize("name", BEGUN[1:])
def test_a_begun_run_with_a_file_that_names_no_run_is_shown_and_not_resumed(made, tmp_path, name):
    store, (here, _) = copied(made[False], tmp_path)
    without_name(here / name)
    (shown,) = [run for run in store.all() if run.path == here]
    assert shown.unverified
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    with pytest.raises(InputError, match="cannot resume it"):
        execute(settings_of(0), store)
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.parametrize("name", FILES[1:])
def test_a_finished_run_with_a_file_that_names_no_run_is_shown_as_unverified(made, tmp_path, name, run):
    store, (here, other) = copied(made[True], tmp_path)
    assert not any(each.unverified for each in store.all())
    without_name(here / name)
    assert execute(settings_of(0), store).unverified
    code, listed, _ = run("runs", "--runs", store.root, "--json")
    assert code == 0
    assert {each["path"]: each["verified"] for each in json.loads(listed)} == {str(here): False, str(other): True}


def test_a_run_that_was_begun_resumes_to_the_same_end(made, tmp_path):
    store, _ = copied(made[False], tmp_path)
    ended, whole = execute(settings_of(0), store).rounds(), made[True][0].rounds()
    names = "round", "clients", "accuracy", "steps", "samples"
    assert [[each[name] for name in names] for each in ended] == [[each[name] for name in names] for each in whole]
