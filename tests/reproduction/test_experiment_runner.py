"""benchmarks/beyond.py and many_runs.py go on where they stopped; reproduction.pack adds runs to a Parquet file."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import wait_until

from fedeas.core.errors import InputError
from fedeas.runs import pack_runs, read_runs
from fedeas.runs.store import RunStore
from reproduction import pack

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import beyond
import many_runs


@pytest.fixture(scope="module")
def two_runs():
    return beyond.configs("smoke", seeds=2, protocols=["clean"])[:2]


def make(configs, runs):
    for config in configs:
        assert many_runs.work(config, runs, time.time() + 600)


def test_packed_runs_are_neither_repeated_nor_lost(two_runs, tmp_path):
    packed = tmp_path / "results" / "smoke.parquet"
    for config in two_runs:  # each on a machine of its own, whose run directories are not kept
        (left, *_) = beyond.missing(two_runs, packed)
        assert left == config
        make([left], tmp_path / "runs")
        beyond.pack_more("smoke", [tmp_path / "runs"], packed)
        shutil.rmtree(tmp_path / "runs")
    assert beyond.missing(two_runs, packed) == []
    assert {run.config.label for run in read_runs(packed)} == {config.label for config in two_runs}


def test_runs_of_other_experiments_are_not_packed(two_runs, tmp_path):
    other = two_runs[0].model_copy(update={"rounds": two_runs[0].rounds.model_copy(update={"total": 1})})
    make([other], tmp_path / "runs")
    beyond.pack_more("smoke", [tmp_path / "runs"], tmp_path / "smoke.parquet")
    assert list(read_runs(tmp_path / "smoke.parquet")) == []


def test_kept_runs_of_other_tables_are_not_repeated(two_runs, tmp_path):
    make(two_runs[:1], tmp_path / "kept")
    assert beyond.missing(two_runs, tmp_path / "smoke.parquet", tmp_path / "kept") == two_runs[1:]


def test_a_damaged_file_of_results_is_not_overwritten(two_runs, tmp_path):
    packed = tmp_path / "smoke.parquet"
    packed.write_bytes(b"damaged")
    with pytest.raises(InputError):
        beyond.missing(two_runs, packed)


def contents(packed):
    return {(run.config.label, run.config.seed): run.summary()["accuracy"] for run in read_runs(packed)}


def test_runs_made_elsewhere_are_merged_and_those_that_are_there_stay(two_runs, tmp_path, finished):
    first, second = two_runs
    packed, more = tmp_path / "smoke.parquet", tmp_path / "more.parquet"
    other = first.model_copy(update={"rounds": first.rounds.model_copy(update={"total": 1})})
    pack_runs([finished(first, accuracy=0.1)], packed, with_rounds=False)
    made = [finished(first, accuracy=0.2), finished(second, accuracy=0.3), finished(other, accuracy=0.4)]
    pack_runs(made, more, with_rounds=False)
    beyond.pack_more("smoke", [more], packed)
    assert contents(packed) == {(first.label, first.seed): 0.1, (second.label, second.seed): 0.3}
    before = packed.read_bytes()
    beyond.pack_more("smoke", [more, packed], packed)
    assert packed.read_bytes() == before


def test_a_misspelt_folder_of_runs_is_refused(tmp_path):
    with pytest.raises(InputError):
        beyond.pack_more("smoke", [tmp_path / "nowhere"], tmp_path / "smoke.parquet")
    assert not (tmp_path / "smoke.parquet").exists()


def test_run_directories_are_packed_in_any_order_and_parts(two_runs, tmp_path, capsys):
    make(two_runs, tmp_path / "runs")
    made = RunStore(tmp_path / "runs").all()
    packed, again = tmp_path / "some.parquet", tmp_path / "again.parquet"
    pack_runs(made[1:], packed)
    for _ in range(2):
        pack.main([str(packed), str(tmp_path / "runs")])
    assert "0 runs added, 2 in all" in capsys.readouterr().out
    back = list(read_runs(packed))
    assert [(run.config, run.summary(), run.rounds()) for run in back] == [
        (run.config, run.summary(), run.rounds()) for run in made
    ]
    pack.main([str(again), str(packed)])
    assert again.read_bytes() == packed.read_bytes()


@pytest.mark.parametrize("words", [["some.gz"], ["some.parquet", "nowhere"], []], ids=["ending", "no place", "nothing"])
def test_a_call_that_makes_no_sense_is_refused(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="error: "):
        pack.main(words)
    assert list(tmp_path.iterdir()) == []


def test_runs_are_selected_in_the_order_of_the_patterns_and_each_once(two_runs):
    configs = [config.model_copy(update={"label": label}) for config, label in zip(two_runs, "ab", strict=True)]
    assert many_runs.selected(configs, ["b", "*"]) == configs[::-1]
    assert many_runs.selected(configs, ["c"]) == []


def test_only_runs_that_match_are_made(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(beyond, "make_runs", lambda wanted, *others: made.extend(wanted))
    places = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    monkeypatch.setattr(
        sys, "argv", ["beyond", "--profile", "smoke", "--protocol", "clean", "--only", "*-kl-*", *places]
    )
    beyond.main()
    labels = {config.label for config in beyond.configs("smoke", seeds=1, protocols=["clean"])}
    assert {config.label for config in made} == {label for label in labels if "-kl-" in label} != set()


def test_a_run_that_would_not_end_in_time_is_not_started(two_runs, tmp_path, monkeypatch):
    class Slow:
        minutes = 1.0

    monkeypatch.setattr(many_runs, "estimate", lambda configs: Slow)
    assert not many_runs.work(two_runs[0], tmp_path, time.time() + 90, processes=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_processes_make_the_runs_that_are_missing_and_keep_them(tmp_path, monkeypatch):
    places = ["--runs", tmp_path / "runs", "--results", tmp_path / "results"]
    command = [
        "many_runs",
        "table1",
        "--profile",
        "smoke",
        "--only",
        "*-fedavg",
        "*-fedprox",
        "--processes",
        2,
        *places,
    ]
    monkeypatch.setattr(sys, "argv", [str(word) for word in command])
    many_runs.main()
    kept = {path.name for path in (tmp_path / "results").iterdir()}
    assert len(kept) == 4
    shutil.rmtree(tmp_path / "results")  # as if it had been killed before it kept them
    many_runs.main()
    assert {path.name for path in (tmp_path / "results").iterdir()} == kept
    shutil.rmtree(tmp_path / "runs")
    many_runs.main()
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.slow
def test_no_process_goes_on_after_the_first_one_was_killed(tmp_path):
    command = [sys.executable, many_runs.__file__, "table1", "--profile", "smoke", "--processes", "2"]
    places = ["--runs", tmp_path / "runs", "--results", tmp_path / "results"]
    started = subprocess.Popen([*command, *map(str, places)], start_new_session=True, stdout=subprocess.DEVNULL)
    wait_until(lambda: any((tmp_path / "runs").glob("*/rounds.jsonl")))
    started.kill()
    started.wait()
    wait_until(lambda: not is_group_alive(started.pid))


def is_group_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
