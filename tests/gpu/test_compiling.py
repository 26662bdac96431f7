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


def compiled(folder, seconds):
    """Which of four kernels are compiled, and in how many other processes."""
    kernels = [Slow(folder / str(number), seconds) for number in range(4)]
    compiling._compile_together(kernels)
    found = {kernel.file.name: int(kernel.file.read_text()) for kernel in kernels if kernel.file.exists()}
    return set(found), set(found.values()) - {os.getpid()}


def test_all_kernels_are_compiled_in_processes_of_their_own(tmp_path):
    names, processes = compiled(tmp_path, 2 * compiling.ON_DISK)
    assert names == {"0", "1", "2", "3"}
    assert processes


def test_no_processes_are_started_if_kernels_are_on_disk(tmp_path):
    assert compiled(tmp_path, 0) == ({"0"}, set())


def test_a_failure_leaves_the_kernels_to_their_first_launch(monkeypatch):
    def fail(*_):
        raise OSError("no more processes")

    monkeypatch.setattr(compiling, "triton", object())
    monkeypatch.setattr(compiling, "_left_out_of", fail)
    assert compiling.compile_ahead(lambda: None) is None


@ON_GPU
def test_work_done_afterwards_is_right(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels = importlib.import_module("fedeas.gpu.head_kernels")
    x, weight, bias = (torch.randn(shape, device="cuda") for shape in ((2, 48, 96), (2, 7, 96), (2, 7)))
    compiling.compile_ahead(lambda: kernels.linear(x, weight, bias))
    expected = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
    torch.testing.assert_close(kernels.linear(x, weight, bias), expected, rtol=1e-2, atol=1e-2)
