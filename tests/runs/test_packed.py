"""Many finished runs in one file."""

import gzip
from pathlib import Path

import pytest

from fedeas import InputError
from fedeas.paper.results import Results
from fedeas.runs.packed import ENDING, pack, unpack
from fedeas.runs.store import read_run

DIGITS = Path(__file__).parents[2] / "results" / "digits"


@pytest.fixture(scope="module")
def runs():
    return [read_run(path) for path in sorted(DIGITS.glob("*fedeas-beta-2-*"))[:4]]


def test_runs_are_read_back_as_they_were_packed(runs, tmp_path):
    pack(reversed(runs), tmp_path / f"some{ENDING}")
    back = unpack(tmp_path / f"some{ENDING}")
    assert [run.config for run in back] == [run.config for run in runs]
    assert [run.summary() for run in back] == [run.summary() for run in runs]
    assert [run.generator() for run in back] == [run.generator() for run in runs]
    assert [run.environment() for run in back] == [run.environment() for run in runs]
    assert all(run.finished for run in back)
    assert len({run.path for run in back}) == len(runs)


def test_a_file_that_was_written_again_is_read_again(runs, tmp_path):
    path = tmp_path / f"some{ENDING}"
    for some in (runs, runs[:1], runs[1:]):
        pack(some, path)
        for _ in range(2):
            assert [run.config for run in unpack(path)] == [run.config for run in some]


@pytest.mark.parametrize("folder", [".", "beyond"])
def test_results_find_packed_runs_in_a_folder_and_its_subfolders(runs, tmp_path, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    pack(runs, tmp_path / folder / f"some{ENDING}")
    found = Results([tmp_path])
    assert all(found.has(run.config) for run in runs)


def test_the_same_runs_give_the_same_file(runs, tmp_path):
    for name in ("one", "other"):
        pack(runs, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


DAMAGED = {"no gzip": b"no", "no runs": gzip.compress(b"[1]\n"), "half a run": gzip.compress(b'{"config": {}}\n')}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_refused_and_left_out_of_results(kind, tmp_path, caplog):
    path = tmp_path / f"some{ENDING}"
    path.write_bytes(DAMAGED[kind])
    with pytest.raises(InputError, match="damaged"):
        unpack(path)
    Results([tmp_path])
    assert "left out" in caplog.text


def test_a_packed_file_that_is_gone_is_named(tmp_path):
    path = tmp_path / f"some{ENDING}"
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot be read"):
        unpack(path)
