"""Kernels are compiled on all cores before their first launch."""

import importlib.util
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from fedeas.gpu import compiling

ON_GPU = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not torch.cuda.is_available(), reason="needs Triton and a GPU"
)


@dataclass
class Slow:
    """Stands for a kernel: leaves a file with the process that compiled it."""

    file: Path
    seconds: float

    def compile(self):
        time.sleep(self.seconds)
        self.file.write_text(str(os.getpid()))


def compiled(monkeypatch, folder, seconds):
    """Which of four kernels are compiled, and in how many other processes; two are of the second function."""
    works = [
        {number: Slow(folder / str(number), seconds) for number in (0, 1)},
        {number: Slow(folder / str(number), seconds) for number in (1, 2, 3)},
    ]
    monkeypatch.setattr(compiling, "triton", object())
    monkeypatch.setattr(compiling, "_left_out_of", lambda work: work())
    compiling.compile_ahead(*(lambda kernels=kernels: kernels for kernels in works))
    found = {file.name: int(file.read_text()) for file in folder.iterdir()}
    return set(found), set(found.values()) - {os.getpid()}


def test_all_kernels_are_compiled_in_processes_of_their_own(monkeypatch, tmp_path):
    names, processes = compiled(monkeypatch, tmp_path, 2 * compiling.ON_DISK)
    assert names == {"0", "1", "2", "3"}
    assert processes


def test_no_processes_are_started_if_kernels_are_on_disk(monkeypatch, tmp_path):
    assert compiled(monkeypatch, tmp_path, 0) == ({"0"}, set())


def test_a_failure_leaves_the_kernels_to_their_first_launch(monkeypatch):
    def fail(*_):
        raise OSError("no more processes")

    monkeypatch.setattr(compiling, "triton", object())
    monkeypatch.setattr(compiling, "_left_out_of", fail)
    assert compiling.compile_ahead(lambda: None) is None


KERNELS = """
import triton
import triton.language as tl

@triton.jit
def double(x, out, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    tl.store(out + place, 2 * tl.load(x + place))

@triton.jit
def negate(x, out, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    tl.store(out + place, -tl.load(x + place))
"""


@ON_GPU
def test_kernels_that_were_left_out_are_compiled_and_then_work(monkeypatch, tmp_path):
    cache, file = tmp_path / "cache", tmp_path / "two_kernels.py"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    monkeypatch.setattr(compiling, "ON_DISK", 0.0)  # however quick the first one is
    file.write_text(KERNELS)
    spec = importlib.util.spec_from_file_location("two_kernels", file)
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    x, twice, less = torch.arange(64.0, device="cuda"), *torch.zeros(2, 64, device="cuda")

    def work():
        kernels.double[(1,)](x, twice, 64)
        kernels.negate[(1,)](x, less, 64)

    compiling.compile_ahead(work)
    assert not twice.any()  # left out
    assert {path.stem for path in cache.rglob("*.cubin")} == {"double", "negate"}
    files = set(cache.rglob("*"))
    work()
    assert set(cache.rglob("*")) == files  # nothing was left to compile, not even a launcher
    assert torch.equal(twice, 2 * x)
    assert torch.equal(less, -x)
