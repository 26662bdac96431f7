"""Damage to any file that we write: it is named in one line, or what is read is as it was."""

import random
import shutil

import crashes
import numpy as np
import pytest

from fedeas.cli import main
from fedeas.config import load_config
from fedeas.core.errors import FedEASError, InputError
from fedeas.data.partition import Partition, dirichlet
from fedeas.federation.checkpoint import load_checkpoint
from fedeas.federation.run import execute
from fedeas.runs.store import RunStore, read_run

SHOWN = ("config.json", "env.json", "generator.json", "allocation.npz", "rounds.jsonl", "checkpoint.safetensors")


def flipped(content, rng):
    place = rng.randrange(8 * len(content))
    return content[: place // 8] + bytes([content[place // 8] ^ 1 << place % 8]) + content[place // 8 + 1 :]


def zeroed(content, rng):
    start = rng.randrange(len(content))
    length = min(rng.choice([1, 16, 4096]), len(content) - start)
    return content[:start] + bytes(length) + content[start + length :]


DAMAGES = {
    "a flipped bit": flipped,
    "a cut": lambda content, rng: content[: rng.randrange(len(content))],
    "zeros": zeroed,
    "more at the end": lambda content, rng: content + rng.randbytes(9),
    "nothing": lambda content, rng: b"",
    "noise": lambda content, rng: rng.randbytes(len(content)),
}


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory):
    """A run after two of its three rounds."""
    store = RunStore(tmp_path_factory.mktemp("begun"))
    return execute(load_config(None, crashes.RUN), store, pause=lambda record: record["round"] == 2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    crashes.work_run(folder)
    return RunStore(folder).all()[0]


def content_of(run):
    """Everything that commands read of a run."""
    counts, plan = run.allocation()
    state = load_checkpoint(run.checkpoint, run.config.fingerprint)
    tensors = {name: tensor.tolist() for name, tensor in state[1].items()}
    records = run.environment(), run.generator(), run.rounds(), run.summary()
    names = counts.clients, counts.classes
    return run.config, records, names, counts.n.tolist(), plan.n.tolist(), state[0], tensors


def check_reading(run, name, times, tmp_path):
    """Damage a copy of the run in every way, so often; it must be refused in one line or read as before."""
    shutil.copytree(run.path, tmp_path / run.path.name)
    path, rng, before = tmp_path / run.path.name / name, random.Random(name), content_of(run)
    whole = path.read_bytes()
    for damage in [*DAMAGES.values()] * times:
        path.write_bytes(damage(whole, rng))
        try:
            found = content_of(read_run(path.parent))
        except InputError as error:
            assert name in str(error) and "\n" not in str(error)
        else:
            assert found == before


@pytest.mark.parametrize("name", [*SHOWN, "summary.json"])
def test_a_damaged_file_of_a_finished_run_is_named_or_reads_as_before(finished, name, tmp_path):
    check_reading(finished, name, 1, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", [*SHOWN, "summary.json"])
def test_many_damages_of_a_finished_run_are_named_or_read_as_before(finished, name, tmp_path, tried):
    check_reading(finished, name, 50, tmp_path)
    tried(f"`{name}`: damaged in a finished run", 50 * len(DAMAGES))


def test_a_finished_run_with_damaged_rounds_is_refused_when_it_is_run_again(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / finished.path.name)
    (tmp_path / finished.path.name / "rounds.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match=r"rounds\.jsonl: damaged"):
        crashes.work_run(tmp_path)


def check_going_on(run, whole, name, damage, rng, tmp_path):
    """Damage a copy of a broken-off run; it must be refused in one line or end as the undisturbed one."""
    store = RunStore(tmp_path / "runs")
    shutil.copytree(run.path.parent, store.root)
    path = store.root / run.path.name / name
    path.write_bytes(DAMAGES[damage](path.read_bytes(), rng))
    try:
        crashes.work_run(store.root)
    except FedEASError as error:
        assert "\n" not in str(error)
    else:
        assert crashes.outcome_run(store.root) == whole
    finally:
        shutil.rmtree(store.root)


@pytest.mark.parametrize("name", [*SHOWN, "images.jsonl"])
def test_a_broken_off_run_with_a_damaged_file_is_refused_or_ends_as_it_should(broken_off, finished, name, tmp_path):
    whole = crashes.outcome_run(finished.path.parent)
    check_going_on(broken_off, whole, name, "a flipped bit", random.Random(name), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", [*SHOWN, "images.jsonl"])
def test_many_damages_of_a_broken_off_run_are_refused_or_it_ends_as_it_should(
    broken_off, finished, name, tmp_path, tried
):
    rng, whole = random.Random(f"{name} again"), crashes.outcome_run(finished.path.parent)
    for _ in range(3):
        for damage in DAMAGES:
            check_going_on(broken_off, whole, name, damage, rng, tmp_path)
    tried(f"`{name}`: damaged in a broken-off run, which is then started again", 3 * len(DAMAGES))


@pytest.mark.parametrize("lost", [b"", None])
def test_a_run_that_lost_its_rounds_never_ends_as_if_nothing_were_left_to_do(broken_off, tmp_path, lost):
    store = RunStore(tmp_path / "runs")
    shutil.copytree(broken_off.path.parent, store.root)
    path = store.root / broken_off.path.name / "rounds.jsonl"
    path.unlink() if lost is None else path.write_bytes(lost)
    for _ in range(2):
        with pytest.raises(InputError, match=r"rounds\.jsonl: damaged .*remove the run's folder"):
            crashes.work_run(store.root)


def test_a_damaged_partition_is_named_or_reads_as_before(tmp_path):
    split = dirichlet(np.arange(200) % 5, clients=4, alpha=0.5)
    split.save(tmp_path / "split.npz")
    whole, rng = (tmp_path / "split.npz").read_bytes(), random.Random(0)
    for damage in [*DAMAGES.values()] * 50:
        (tmp_path / "split.npz").write_bytes(damage(whole, rng))
        try:
            found = Partition.load(tmp_path / "split.npz")
        except InputError as error:
            assert str(error).startswith(f"{tmp_path / 'split.npz'}: ") and "\n" not in str(error)
        else:
            assert found.digest == split.digest and found.recipe == split.recipe


def test_what_is_no_run_is_left_out_of_the_report_and_the_list_with_a_line(finished, tmp_path, capsys, caplog):
    shutil.copytree(finished.path, tmp_path / "good")
    for name in ("env.json", "summary.json", "allocation.npz"):
        shutil.copytree(finished.path, tmp_path / name)
        (tmp_path / name / name).write_bytes(b"")
    (tmp_path / "notes.txt").write_text("stray")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    places = [*sorted(tmp_path.iterdir()), tmp_path / ("x" * 300)]
    with pytest.raises(SystemExit) as end:
        main(["report", *map(str, places), "--out", str(tmp_path / "report.html")])
    assert end.value.code == 0
    assert (tmp_path / "report.html").exists()
    assert len(caplog.messages) == len(places) - 1
    assert not any("\n" in message for message in caplog.messages)
    caplog.clear()
    with pytest.raises(SystemExit) as end:
        main(["runs", "--runs", str(tmp_path)])
    assert end.value.code == 0
    assert len(caplog.messages) == 4  # three damaged runs, and a link to itself
