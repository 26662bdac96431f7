"""Threads and precision are settings of the whole process: a context sets them and brings the earlier ones back."""

from contextlib import suppress

import pytest
import torch

from fedeas.errors import InputError
from fedeas.gpu.devices import torch_precision, torch_threads

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def settings():
    cudnn = torch.backends.cudnn
    return torch.get_num_threads(), torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.deterministic


@pytest.mark.parametrize("error", [None, ValueError])
@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16"])
def test_a_precision_ends_with_its_context(name, error):
    before = settings()
    with suppress(ValueError), torch_precision(name, GPU):
        assert torch.backends.cudnn.deterministic == (name == "fp32")
        assert torch.backends.cudnn.allow_tf32 == (name != "fp32")
        assert torch.get_float32_matmul_precision() == ("highest" if name == "fp32" else "high")
        if error:
            raise error
    assert settings() == before


def test_a_refused_precision_changes_nothing():
    before = settings()
    with pytest.raises(InputError, match="needs a GPU"), torch_precision("bf16", CPU):
        pass
    assert settings() == before


@pytest.mark.parametrize("number", [None, 1, 3])
def test_a_number_of_threads_ends_with_its_context(number):
    before = torch.get_num_threads()
    with torch_threads(number):
        assert torch.get_num_threads() == (number or before)
    assert torch.get_num_threads() == before
