"""benchmarks/beyond.py goes on where it stopped."""

import shutil
import sys
import time
from pathlib import Path

import pytest

from fedeas.errors import InputError
from fedeas.runs.packed import unpack

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
        beyond.pack_more("smoke", tmp_path / "runs", packed)
        shutil.rmtree(tmp_path / "runs")
    assert beyond.missing(two_runs, packed) == []
    assert {run.config.label for run in unpack(packed)} == {config.label for config in two_runs}


def test_runs_of_other_experiments_are_not_packed(two_runs, tmp_path):
    other = two_runs[0].model_copy(update={"rounds": two_runs[0].rounds.model_copy(update={"total": 1})})
    make([other], tmp_path / "runs")
    beyond.pack_more("smoke", tmp_path / "runs", tmp_path / "smoke.runs.gz")
    assert unpack(tmp_path / "smoke.runs.gz") == []


def test_a_damaged_file_of_results_is_not_overwritten(two_runs, tmp_path):
    packed = tmp_path / "smoke.runs.gz"
    packed.write_bytes(b"damaged")
    with pytest.raises(InputError):
        beyond.missing(two_runs, packed)
