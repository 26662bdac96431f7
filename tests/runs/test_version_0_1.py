"""Runs that version 0.1 made, some of them with parts that are gone: they are shown, and not resumed."""

import shutil
from pathlib import Path

import pytest

from fedeas.config import RunConfig
from fedeas.config.run import recorded_config
from fedeas.core.errors import InputError
from fedeas.runs import pack_runs, read_runs
from fedeas.runs.store import RunStore, read_run

MADE = Path(__file__).parent / "version-0.1"
NAMES = [path.name for path in sorted(MADE.iterdir())]


@pytest.fixture
def store(tmp_path):
    return RunStore(shutil.copytree(MADE, tmp_path / "runs"))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_keeps_its_fingerprint(name):
    run = read_run(MADE / name)
    assert run.config.is_old
    assert run.config.directory == name
    assert not run.finished or run.summary()["fingerprint"] == run.fingerprint


def test_runs_with_different_parts_are_different_methods():
    assert len({read_run(MADE / name).method for name in NAMES}) == len(NAMES)


def test_runs_are_listed_and_reported(run, store, tmp_path):
    code, listed, err = run("runs", "--runs", store.root)
    assert (code, err) == (0, "")
    assert all(name in listed for name in NAMES)
    assert "round-bias(budget=fedeas(beta=2))" in listed
    code, _, err = run("report", *store.folders(), "--out", tmp_path / "report.html")
    assert (code, err) == (0, "")
    assert all(name.rpartition("-")[0] in (tmp_path / "report.html").read_text() for name in NAMES)


def test_a_run_that_was_begun_is_not_resumed(run, store):
    words = ["label=begun", "rounds.total=2000", "partition.clients=6", "train.epochs=1"]
    code, _, err = run("run", *words, "--runs", store.root)
    assert code == 2
    assert err.count("\n") == 1
    assert "version 0.1 began this run, and this version cannot resume it" in err


@pytest.mark.parametrize("setting", ["train.server_epochs=2", "train.loss=fedlc", "policy=round-bias"])
def test_a_part_that_is_gone_is_not_run(setting, run, tmp_path):
    code, _, err = run("run", setting, "--runs", tmp_path)
    assert code == 2
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_packed_as_it_was(store, tmp_path):
    finished = [run for run in store.all() if run.finished]
    pack_runs(finished, tmp_path / "old.parquet")
    back = list(read_runs(tmp_path / "old.parquet"))
    assert [(run.config, run.fingerprint, run.rounds()) for run in back] == [
        (run.config, run.fingerprint, run.rounds()) for run in finished
    ]


@pytest.mark.parametrize(
    "content",
    [
        {"policy": "nonsense"},
        {"policy": "nonsense", "train": {"server_epochs": 0, "lr": -1.0}},
        {"policy": 3, "train": {"server_epochs": 0}},
        {"policy": "nonsense", "train": {"server_epochs": 0}, "other": 1},
    ],
)
def test_a_config_that_is_wrong_in_another_way_is_refused(content):
    with pytest.raises(ValueError, match="validation error"):
        recorded_config(content)


def test_a_config_of_this_version_can_be_resumed(tmp_path):
    config = RunConfig(label="new")
    assert not RunStore(tmp_path).open(config).config.is_old
    assert not RunStore(tmp_path).open(config).config.is_old
    with pytest.raises(InputError, match="holds another run"):
        (tmp_path / "old").mkdir()
        (tmp_path / config.directory).rename(tmp_path / config.model_copy(update={"seed": 1}).directory)
        RunStore(tmp_path).open(config.model_copy(update={"seed": 1}))
