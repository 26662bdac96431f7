"""Files of weights: where a name is looked up, where new ones go, and what their digest depends on."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from safetensors.torch import save_file

from fedeas import InputError
from fedeas.core import weight_files as weights
from fedeas.core.weight_files import (
    checkout_of,
    description,
    folder_for_new,
    generator_weights,
    model_weights,
    search_folders,
    weights_digest,
)

ROOT = Path(weights.__file__).parents[3]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Five folders that replace the ones that are searched."""
    package, chosen, checkout, here = (tmp_path / name for name in ("package", "chosen", "checkout/weights", "here"))
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(weights, "PACKAGED", package)
    monkeypatch.setattr(weights, "checkout_of", lambda package: checkout.parent)
    monkeypatch.setenv("FEDEAS_WEIGHTS", f"{tmp_path / 'empty'}{os.pathsep}{chosen}")
    here.mkdir()
    monkeypatch.chdir(here)
    folders = [package, chosen, checkout, tmp_path / "cache" / "weights", here / "weights"]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def put(folder, name="own"):
    save_file({"x": torch.zeros(1)}, folder / f"{name}.safetensors")


@pytest.mark.parametrize("find", [generator_weights, model_weights])
def test_a_name_is_looked_up_in_package_variable_checkout_cache_and_current_folder(places, find):
    for folder in reversed(places):
        put(folder)
        assert find("own").resolve() == folder / "own.safetensors"


def test_a_generator_is_found_in_the_folder_of_its_training(places):
    (places[2] / "own-compact").mkdir()
    put(places[2] / "own-compact", "generator")
    assert generator_weights("own-compact") == places[2] / "own-compact" / "generator.safetensors"


def test_an_error_for_missing_weights_names_every_folder_searched(places):
    put(places[1], "mine")
    put(places[1], "cifar100-pretrained")
    for find in (generator_weights, model_weights):
        with pytest.raises(InputError) as caught:
            find("own")
        message = str(caught.value)
        assert all(str(folder) in message for folder in places[:4])
        assert "weights;" in message
        assert "\n" not in message
    with pytest.raises(InputError, match="name one of mine, or make some with `fedeas generator train`"):
        generator_weights("own")  # classifiers are not offered


@pytest.mark.parametrize(
    ("name", "command"),
    [("fashion-mnist-pretrained", "fashion-mnist"), ("cifar100-imagenet-stem", "cifar100 --stem imagenet")],
)
def test_an_error_for_missing_initial_weights_names_the_command_that_makes_them(places, name, command):
    with pytest.raises(InputError) as caught:
        model_weights(name)
    assert str(caught.value).endswith(f" make them with `fedeas pretrain {command}`")


def test_paths_are_taken_as_they_are(places):
    for place in ("w.safetensors", "weights/own", Path("a/b.safetensors")):
        assert generator_weights(place) == model_weights(place) == Path(place)
    assert model_weights("") is model_weights("torchvision") is None


def test_new_weights_are_found_by_name(places, monkeypatch):
    assert folder_for_new() == places[1].parent / "empty"
    monkeypatch.delenv("FEDEAS_WEIGHTS")
    assert folder_for_new() == places[2]
    monkeypatch.setattr(weights, "checkout_of", lambda package: None)
    assert folder_for_new() == Path("weights")
    assert folder_for_new() in search_folders()


def test_a_folder_is_searched_once(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FEDEAS_WEIGHTS", str(ROOT / "weights"))
    assert [folder.name for folder in search_folders()] == [
        "trained",
        "weights",
        "weights",
    ]  # the last one is the cache's


def test_the_weights_of_the_checkout_are_found_from_any_folder(tmp_path):
    script = "from fedeas.core.weight_files import generator_weights; print(generator_weights('cifar10'))"
    environment = {key: value for key, value in os.environ.items() if key != "FEDEAS_WEIGHTS"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == ROOT / "weights" / "cifar10.safetensors"


@pytest.mark.parametrize(
    ("inner", "project", "found"),
    [
        ("src/fedeas", '[project]\nname = "fedeas"', True),
        ("src/fedeas", '[project]\nname = "other"', False),
        ("src/fedeas", "no toml", False),
        ("src/fedeas", None, False),
        ("site-packages/fedeas", '[project]\nname = "fedeas"', False),
    ],
)
def test_a_checkout_is_recognised_by_its_layout_and_its_project(tmp_path, inner, project, found):
    (tmp_path / inner).mkdir(parents=True)
    if project is not None:
        (tmp_path / "pyproject.toml").write_text(project)
    assert checkout_of(tmp_path / inner) == (tmp_path if found else None)


TENSORS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array(7, dtype=np.int64)}


def written(path, tensors=TENSORS, **metadata):
    path.write_bytes(save(tensors, metadata))
    return path


def test_the_digest_covers_names_types_shapes_and_bytes_in_order(tmp_path):
    digest = hashlib.sha256(b'["a", "I64", []]' + TENSORS["a"].tobytes())
    digest.update(b'["b", "F32", [2, 3]]' + TENSORS["b"].tobytes())
    assert weights_digest(written(tmp_path / "w.safetensors")) == digest.hexdigest()


@given(st.dictionaries(st.text("ab", min_size=1), st.lists(st.integers(0, 255), max_size=4), min_size=1))
def test_metadata_and_order_do_not_change_the_digest(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("w")
    tensors = {name: np.array(values, dtype=np.uint8) for name, values in lists.items()}
    one = written(folder / "one.safetensors", tensors)
    other = written(folder / "other.safetensors", dict(reversed(tensors.items())), fedeas='{"machine": "another"}')
    assert weights_digest(one) == weights_digest(other)


@pytest.mark.parametrize(
    "change",
    [
        {"b": TENSORS["b"] + 1},
        {"b": TENSORS["b"].reshape(3, 2)},
        {"b": TENSORS["b"].view(np.int32)},
        {"c": TENSORS["b"]},
    ],
)
def test_every_change_of_a_tensor_changes_the_digest(tmp_path, change):
    before = weights_digest(written(tmp_path / "w.safetensors"))
    assert weights_digest(written(tmp_path / "v.safetensors", {**TENSORS, **change})) != before


def test_a_tensor_of_many_blocks_is_read_to_its_end(tmp_path, monkeypatch):
    whole = weights_digest(written(tmp_path / "w.safetensors"))
    monkeypatch.setattr(weights, "BLOCK", 5)
    assert weights_digest(written(tmp_path / "v.safetensors")) == whole


def test_a_file_that_changes_within_a_process_is_read_again(tmp_path):
    path = written(tmp_path / "w.safetensors")
    before = weights_digest(path)
    later = path.stat().st_mtime_ns + 1
    written(path, {**TENSORS, "b": TENSORS["b"] + 1})
    os.utime(path, ns=(later, later))
    assert weights_digest(path) != before


@pytest.mark.parametrize("content", [None, b"", b"no tensors", b"\x02\0\0\0\0\0\0\0[]", b"\xff" * 20])
@pytest.mark.parametrize("read", [weights_digest, description])
def test_a_file_without_tensors_is_refused_in_one_line(tmp_path, content, read):
    path = tmp_path / "w.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    path = written(tmp_path / "w.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="bytes, 168 by its header"):
        weights_digest(path)


def test_the_description_is_what_this_project_wrote(tmp_path):
    about = {"format": "x", "dataset": "digits"}
    assert description(written(tmp_path / "w.safetensors", fedeas=json.dumps(about))) == about
    assert description(written(tmp_path / "v.safetensors", about=json.dumps(about))) == about
    assert description(written(tmp_path / "u.safetensors", format="pt")) == {}
