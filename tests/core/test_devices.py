"""Devices; and settings of the whole process, threads and precision, which end with their context."""

from contextlib import suppress

import pytest
import torch

from fedeas.core.devices import chosen_device, torch_precision, torch_threads
from fedeas.core.errors import InputError

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


def test_another_gpu_than_the_first_is_refused_with_the_setting_that_makes_it_the_first():
    with pytest.raises(InputError, match=r"engine\.device 'cuda:3'.*CUDA_VISIBLE_DEVICES=3"):
        chosen_device("cuda:3", "engine.device")


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
