"""benchmarks/beyond.py goes on where it stopped."""

import shutil
import sys
import time
from pathlib import Path

import pytest

from fedeas.errors import InputError
from fedeas.runs.packed import PackedRun, pack, unpack

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import beyond


@pytest.fixture(scope="module")
def two_runs():
    return beyond.configs("smoke", seeds=2, protocols=["clean"])[:2]


def make(configs, runs):
    for config in configs:
        assert beyond.work(config, runs, time.time() + 600)


def test_packed_runs_are_neither_repeated_nor_lost(two_runs, tmp_path):
    packed = tmp_path / "results" / "smoke.runs.gz"
    for config in two_runs:  # each on a machine of its own, whose run directories are not kept
        (left, *_) = beyond.missing(two_runs, packed)
        assert left == config
        make([left], tmp_path / "runs")
        beyond.pack_more("smoke", [tmp_path / "runs"], packed)
        shutil.rmtree(tmp_path / "runs")
    assert beyond.missing(two_runs, packed) == []
    assert {run.config.label for run in unpack(packed)} == {config.label for config in two_runs}


def test_runs_of_other_experiments_are_not_packed(two_runs, tmp_path):
    other = two_runs[0].model_copy(update={"rounds": two_runs[0].rounds.model_copy(update={"total": 1})})
    make([other], tmp_path / "runs")
    beyond.pack_more("smoke", [tmp_path / "runs"], tmp_path / "smoke.runs.gz")
    assert unpack(tmp_path / "smoke.runs.gz") == []


def test_a_damaged_file_of_results_is_not_overwritten(two_runs, tmp_path):
    packed = tmp_path / "smoke.runs.gz"
    packed.write_bytes(b"damaged")
    with pytest.raises(InputError):
        beyond.missing(two_runs, packed)


def packed_run(config, accuracy):
    parts = {"summary": {"accuracy": accuracy}, "environment": {}, "generator": None}
    return PackedRun(Path(config.directory), config, parts)


def contents(packed):
    return {(run.config.label, run.config.seed): run.summary()["accuracy"] for run in unpack(packed)}


def test_runs_made_elsewhere_are_merged_and_those_that_are_there_stay(two_runs, tmp_path):
    first, second = two_runs
    packed, more = tmp_path / "smoke.runs.gz", tmp_path / "more.runs.gz"
    other = first.model_copy(update={"rounds": first.rounds.model_copy(update={"total": 1})})
    pack([packed_run(first, 0.1)], packed)
    pack([packed_run(first, 0.2), packed_run(second, 0.3), packed_run(other, 0.4)], more)
    beyond.pack_more("smoke", [more], packed)
    assert contents(packed) == {(first.label, first.seed): 0.1, (second.label, second.seed): 0.3}
    before = packed.read_bytes()
    beyond.pack_more("smoke", [more, packed], packed)
    assert packed.read_bytes() == before


def test_a_misspelt_folder_of_runs_is_refused(tmp_path):
    with pytest.raises(InputError):
        beyond.pack_more("smoke", [tmp_path / "nowhere"], tmp_path / "smoke.runs.gz")
    assert not (tmp_path / "smoke.runs.gz").exists()
