"""What weights were trained on: recorded in files, including the trainings that they continue."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fedeas import InputError
from fedeas.core.provenance import NOT_KNOWN, Seen, check_clean, data_digest, seen_by, unknown_to_be_clean
from fedeas.core.weight_files import generator_weights

TRAIN, BOTH = ("train",), ("train", "test")
names = st.sampled_from(["", "digits", "cifar10", "cifar100"])
links = st.builds(Seen, names, st.sampled_from([(), TRAIN, BOTH]), st.none() | st.just("ab12"))
chains = st.lists(links, min_size=1, max_size=4)


def chained(parts):
    """The records of trainings, the last one first."""
    seen = None
    for one in reversed(parts):
        seen = Seen(one.dataset, one.parts, one.data, seen)
    return seen


@given(chains)
def test_a_record_comes_back_from_json(parts):
    seen = chained(parts)
    assert Seen.of(json.loads(json.dumps(seen.record))) == seen


@given(chains)
def test_test_images_seen_in_any_training_of_a_chain_count(parts):
    answer = chained(parts).seen_test_images_of("digits")
    tested = any(one.parts == BOTH and one.dataset in ("digits", "") for one in parts)
    complete = all(one.parts and (one.dataset or one.parts == BOTH) for one in parts)
    assert answer is (True if tested else False if complete else None)


@pytest.mark.parametrize(
    ("seen", "dataset", "answer"),
    [
        (Seen("cifar100", TRAIN), "cifar10", False),
        (Seen("cifar10", TRAIN), "cifar10", False),
        (Seen("cifar10", BOTH), "cifar10", True),
        (Seen("cifar10", TRAIN, start=Seen("cifar10", BOTH)), "cifar10", True),
        (Seen("cifar10", TRAIN, start=NOT_KNOWN), "cifar10", None),
        (Seen("npz:a.npz", BOTH), "npz:./a.npz", True),  # these names do not tell the datasets apart
        (Seen("npz:a.npz", TRAIN), "cifar10", None),
        (Seen("cifar10", BOTH), "hub:uoft-cs/cifar10", True),
        (Seen("cifar10", BOTH), "the dataset", True),  # one that has no name
        (NOT_KNOWN, "cifar10", None),
    ],
)
def test_datasets_are_compared_by_name(seen, dataset, answer):
    assert seen.seen_test_images_of(dataset) is answer


@pytest.mark.parametrize("record", [None, "digits", 3, {}, {"parts": "train"}, {"dataset": "digits", "parts": None}])
def test_a_record_that_cannot_be_read_is_unknown(record):
    assert Seen.of(record).seen_test_images_of("digits") is None


def written(path, about, key="fedeas"):
    save_file({"x": np.zeros(1)}, path, {key: json.dumps(about)})
    return path


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, NOT_KNOWN),
        ({"provenance": {"dataset": "digits", "protocol": "clean"}}, Seen("digits", TRAIN)),
        ({"provenance": {"dataset": "digits", "protocol": "merged", "data": "f0"}}, Seen("digits", BOTH, "f0")),
        ({"provenance": {"dataset": "digits", "protocol": "unknown"}}, Seen("digits")),
        ({"provenance": "lost"}, NOT_KNOWN),
        ({"format": "fedeas-pretrained-1", "dataset": "cifar100", "protocol": "clean"}, Seen("cifar100", TRAIN)),
        ({"dataset": "x", "seen": Seen("digits", BOTH, start=NOT_KNOWN).record}, Seen("digits", BOTH, start=NOT_KNOWN)),
    ],
)
def test_training_data_are_read_from_new_and_old_formats(tmp_path, about, expected):
    assert seen_by(written(tmp_path / "w.safetensors", about)) == expected


@pytest.mark.parametrize("name", ["digits", "cifar10"])
def test_packaged_generators_have_seen_training_parts_only(name):
    seen = seen_by(generator_weights(name))
    assert (seen.dataset, seen.parts) == (name, TRAIN)
    assert seen.seen_test_images_of(name) is False


def test_a_clean_run_refuses_weights_that_saw_its_test_images_and_notes_unknown_ones(tmp_path):
    path = written(tmp_path / "w.safetensors", {"seen": Seen("digits", TRAIN, start=Seen("digits", BOTH)).record})
    with pytest.raises(InputError) as caught:
        check_clean(path, "digits", "take another")
    words = "digits (train), continued from digits (train and test)"
    assert str(caught.value) == f"{path}: trained on {words}, which a clean run on digits tests on; take another"
    check_clean(path, "cifar10", "take another")
    assert unknown_to_be_clean(path, "cifar10") == ()
    written(path, {})
    check_clean(path, "digits", "take another")
    assert unknown_to_be_clean(path, "digits") == (f"{path}: which images it has seen",)


def test_the_digest_of_data_depends_on_images_and_labels_only():
    images, labels = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4), np.array([0, 1])
    first = data_digest(images, labels)
    assert data_digest(np.asfortranarray(images), labels.astype(np.int32)) == first
    assert len({first, data_digest(images[::-1], labels), data_digest(images, labels[::-1])}) == 3


def test_the_training_part_of_a_file_may_contain_any_test_images():
    assert Seen("npz:all.npz", ("train",)).seen_test_images_of("cifar10") is None
    assert Seen("npz:all.npz", ("train",)).seen_test_images_of("npz:all.npz") is False
    assert Seen("cifar10", ("train",)).seen_test_images_of("hub:owner/name") is None
