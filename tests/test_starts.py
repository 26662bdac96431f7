"""Initial weights of a run's model: known by their content."""

import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from fedeas import InputError, starts
from fedeas.weights import weights_digest

TENSORS = {"a": torch.arange(4.0), "b": torch.tensor(3)}


def pretend_torchvision(monkeypatch, get_state_dict):
    weights = SimpleNamespace(IMAGENET1K_V1=SimpleNamespace(get_state_dict=get_state_dict))
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchvision.models", SimpleNamespace(ResNet18_Weights=weights))


def test_the_content_is_that_of_the_file_by_name_or_path(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_WEIGHTS", str(tmp_path))
    path = tmp_path / "own-pretrained.safetensors"
    save_file(TENSORS, path)
    assert starts.content(str(path)) == starts.content("own-pretrained") == {"weights": weights_digest(path)}
    assert starts.content("") == {}
    with pytest.raises(InputError, match="there are no weights called 'other'"):
        starts.content("other")


def test_torchvisions_tensors_have_the_digest_of_a_file_of_them(tmp_path, monkeypatch):
    save_file(TENSORS, tmp_path / "w.safetensors")
    pretend_torchvision(monkeypatch, lambda progress: TENSORS)
    assert starts.content("torchvision") == {"weights": weights_digest(tmp_path / "w.safetensors")}


def test_nothing_is_known_of_tensors_that_cannot_be_had(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    assert starts.content("torchvision") == {}
