"""Initial weights of a run's model: identified by their content, and refused if they have seen test images."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from fedeas import InputError
from fedeas.core.provenance import NOT_KNOWN, Seen
from fedeas.core.weight_files import weights_digest
from fedeas.models import build as starts

TENSORS = {"a": torch.arange(4.0), "b": torch.tensor(3)}


def pretend_torchvision(monkeypatch, get_state_dict):
    weights = SimpleNamespace(IMAGENET1K_V1=SimpleNamespace(get_state_dict=get_state_dict))
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchvision.models", SimpleNamespace(ResNet18_Weights=weights))


def test_the_content_is_that_of_the_file_by_name_or_path(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_WEIGHTS", str(tmp_path))
    path = tmp_path / "own-pretrained.safetensors"
    save_file(TENSORS, path)
    assert starts.start_digest(str(path)) == starts.start_digest("own-pretrained") == weights_digest(path)
    assert starts.start_digest("") == ""
    with pytest.raises(InputError, match="there are no weights called 'other'"):
        starts.start_digest("other")


def test_torchvisions_tensors_have_the_same_digest_as_a_file_of_them(tmp_path, monkeypatch):
    save_file(TENSORS, tmp_path / "w.safetensors")
    pretend_torchvision(monkeypatch, lambda progress: TENSORS)
    assert starts.start_digest("torchvision") == weights_digest(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("seen", "dataset", "refused", "unknown"),
    [
        (Seen("cifar100", ("train",)), "cifar10", False, 0),
        (Seen("cifar10", ("train", "test")), "cifar10", True, 0),
        (Seen("cifar10", ("train",), start=Seen("cifar10", ("train", "test"))), "cifar10", True, 0),
        (NOT_KNOWN, "cifar10", False, 1),
    ],
)
def test_a_clean_run_refuses_weights_that_have_seen_its_test_images(tmp_path, seen, dataset, refused, unknown):
    path = tmp_path / "w.safetensors"
    save_file(TENSORS, path, {"fedeas": json.dumps({"seen": seen.record})})
    assert starts.start_seen(str(path)) == seen
    if refused:
        with pytest.raises(InputError, match=r"w\.safetensors: trained on .*; choose other model\.weights, or none"):
            starts.check_clean_start(str(path), dataset)
    else:
        assert len(starts.check_clean_start(str(path), dataset)) == unknown


def test_weights_without_a_record_are_reported_as_unknown(tmp_path):
    save_file(TENSORS, tmp_path / "w.safetensors")
    path = str(tmp_path / "w.safetensors")
    assert starts.check_clean_start(path, "digits") == (f"{path}: which images it has seen",)
    assert starts.check_clean_start("torchvision", "digits") == ("torchvision: which images it has seen",)
    assert starts.check_clean_start("", "digits") == ()
    assert (starts.start_seen("torchvision"), starts.start_seen("")) == (NOT_KNOWN, None)


def test_weights_that_cannot_be_loaded_have_no_digest(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    assert starts.start_digest("torchvision") == ""
