"""A short fuzz run: every input of the corpus, and some hundred drawn ones (`make fuzz` draws many more)."""

import re
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="streamlit is missing: pip install 'fedeas[web]'")

from fuzz.__main__ import fuzz
from fuzz.making import CORPUS
from fuzz.watching import fault

import fedeas

KEPT = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_that_was_once_taken_badly_is_refused_or_read(path, tmp_path):
    assert fault(path.parent.name, path.read_bytes(), tmp_path) == ""


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))])
def test_no_drawn_input_gives_a_traceback_hangs_allocates_too_much_or_runs_code(part):
    assert fuzz(100, seed=1000 + part, keep=False) == []


# They pickle for processes that they started, over pipes and memory that nobody else has, or what they hold themselves.
AMONG_OURSELVES = (
    "federation/engines/processes.py",
    "data/cache.py",
    "testing/algorithms.py",
)


CALLS = [r"(import|from) pickle", r"torch\.load\(", r"(?<![\w.])eval\(", r"shell=True", r"yaml\.load"]


@pytest.mark.parametrize("call", CALLS)
def test_nothing_in_the_package_runs_what_it_reads(call):
    root = Path(fedeas.__file__).parent
    found = {
        path.relative_to(root).as_posix(): line
        for path in root.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if re.search(call, line)
    }
    assert {path: line for path, line in found.items() if path not in AMONG_OURSELVES} == {}
