"""What weights were trained on: recorded in files, including the trainings that they continue."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fedeas import InputError
from fedeas.core.provenance import (
    NOT_KNOWN,
    Answer,
    DatasetParts,
    Seen,
    check_clean,
    check_start,
    data_digest,
    refuse_unknown,
    seen_by,
)
from fedeas.core.weight_files import generator_weights

TRAIN, TEST, BOTH = ("train",), ("test",), ("train", "test")
CLEAN, UNKNOWN, SEEN = Answer


def part(seed, count=3):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 1, 2, 2), dtype=np.uint8), rng.integers(0, 2, count)


DIGITS = DatasetParts("digits", part(0), part(1))
WHOLE = tuple(np.concatenate(each) for each in zip(DIGITS.train, DIGITS.test, strict=True))
DIGESTS = {data_digest(*DIGITS.train): TRAIN, data_digest(*DIGITS.test): TEST, data_digest(*WHOLE): BOTH}

names = st.sampled_from(["", "digits", "cifar10", "cifar100", "npz:a.npz", "hub:owner/name"])
digests = st.none() | st.sampled_from([*DIGESTS, data_digest(*part(2))])
links = st.builds(Seen, names, st.sampled_from([(), TRAIN, BOTH]), digests)
chains = st.lists(links, min_size=1, max_size=4)
asked = st.sampled_from([TRAIN, TEST, BOTH])


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


@given(chains, asked, st.randoms())
def test_the_answer_of_a_chain_is_the_worst_of_its_trainings_in_any_order(parts, which, random):
    answers = [one.answer(DIGITS, (each,)) for one in parts for each in which]
    worst = SEEN if SEEN in answers else UNKNOWN if UNKNOWN in answers else CLEAN
    assert chained(parts).answer(DIGITS, which) is worst
    assert chained(random.sample(parts, len(parts))).answer(DIGITS, which) is worst


@given(chains, asked)
def test_a_longer_chain_never_has_a_better_answer(parts, which):
    answers = [chained(parts[-length:]).answer(DIGITS, which) for length in range(1, len(parts) + 1)]
    assert all(Answer.worst(pair) is pair[1] for pair in pairwise(answers))


@given(st.sampled_from([*DIGESTS]), names, names, asked, chains)
def test_a_copy_under_another_name_is_the_same_data(digest, own, other, which, parts):
    data = DatasetParts("npz:copy.npz", DIGITS.train, DIGITS.test)
    for name in (own, other):
        copy = chained([Seen(name, DIGESTS[digest], digest), *parts])
        assert copy.answer(data, which) == chained([Seen("npz:copy.npz", DIGESTS[digest]), *parts]).answer(data, which)


def test_other_data_under_a_known_name_are_that_dataset_but_a_changed_file_may_be_anything():
    other = data_digest(*part(2))
    assert Seen("digits", TRAIN, other).answer(DIGITS, TRAIN) is SEEN
    file = DatasetParts("npz:a.npz", DIGITS.train, DIGITS.test)
    assert [Seen("npz:a.npz", TRAIN, digest).answer(file, TEST) for digest in (None, other)] == [CLEAN, UNKNOWN]


def test_datasets_without_a_part_are_compared_by_the_other():
    nothing = np.zeros((0, 1, 2, 2), np.uint8), np.zeros(0, np.int64)
    only_tested = DatasetParts("npz:mine.npz", nothing, DIGITS.test)
    assert Seen("npz:b.npz", TRAIN, data_digest(*DIGITS.test)).answer(only_tested, TEST) is SEEN
    assert Seen("npz:b.npz", TRAIN, data_digest(*nothing)).answer(only_tested, TRAIN) is UNKNOWN


@pytest.mark.parametrize(
    ("seen", "dataset", "answer"),
    [
        (Seen("cifar100", TRAIN), "cifar10", CLEAN),
        (Seen("cifar10", TRAIN), "cifar10", CLEAN),
        (Seen("cifar10", BOTH), "cifar10", SEEN),
        (Seen("cifar10", TRAIN, start=Seen("cifar10", BOTH)), "cifar10", SEEN),
        (Seen("cifar10", TRAIN, start=NOT_KNOWN), "cifar10", UNKNOWN),
        (Seen("npz:a.npz", BOTH), "npz:./a.npz", SEEN),  # these names do not tell the datasets apart
        (Seen("npz:a.npz", TRAIN), "cifar10", UNKNOWN),
        (Seen("cifar10", BOTH), "hub:uoft-cs/cifar10", SEEN),
        (Seen("cifar10", BOTH), "the dataset", SEEN),  # one that has no name
        (NOT_KNOWN, "cifar10", UNKNOWN),
        (Seen("npz:all.npz", TRAIN), "cifar10", UNKNOWN),  # a file may contain any test images
        (Seen("npz:all.npz", TRAIN), "npz:all.npz", CLEAN),
        (Seen("cifar10", TRAIN), "hub:owner/name", UNKNOWN),
    ],
)
def test_test_parts_are_compared_by_name(seen, dataset, answer):
    assert seen.answer(DatasetParts(dataset), TEST) is answer


@pytest.mark.parametrize("record", [None, "digits", 3, {}, {"parts": "train"}, {"dataset": "digits", "parts": None}])
def test_a_record_that_cannot_be_read_is_unknown(record):
    assert Seen.of(record).answer(DIGITS) is UNKNOWN


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
    assert [seen.answer(DatasetParts(name), parts) for parts in (TRAIN, TEST)] == [SEEN, CLEAN]


@pytest.mark.parametrize(("dataset", "answer"), [("cifar100", SEEN), ("cifar10", SEEN), ("fashion-mnist", CLEAN)])
def test_the_shipped_cifar100_weights_have_seen_cifar10_through_their_start(dataset, answer):
    seen, data = seen_by(generator_weights("cifar100")), DatasetParts(dataset)
    assert [one.dataset for one in seen.chain] == ["cifar100", "cifar100", "cifar10"]
    assert seen.answer(data, TRAIN) is answer
    if answer is SEEN:
        with pytest.raises(InputError, match=rf"start cifar100: .* has seen images of {dataset}.*allow_seen=true"):
            check_start("cifar100", data)
    assert check_start("cifar100", data, allow_seen=True) is answer


def test_a_clean_run_refuses_weights_that_saw_its_test_images(tmp_path):
    path = written(tmp_path / "w.safetensors", {"seen": Seen("digits", TRAIN, start=Seen("digits", BOTH)).record})
    with pytest.raises(InputError) as caught:
        check_clean(path, seen_by(path), DIGITS, "take another")
    words = "digits (train), continued from digits (train and test)"
    assert str(caught.value) == f"{path}: trained on {words}, which a clean run on digits tests on; take another"
    check_clean(path, seen_by(path), DatasetParts("cifar10"), "take another")


def test_a_start_without_a_record_is_unknown_which_a_strict_user_refuses(tmp_path):
    path = written(tmp_path / "w.safetensors", {})
    answer = check_start(path, DIGITS)
    assert answer is UNKNOWN
    with pytest.raises(InputError, match="no record tells whether its ancestors have seen images of digits"):
        refuse_unknown(path, "digits", answer)
    for known in (CLEAN, SEEN):
        refuse_unknown(path, "digits", known)


def test_the_digest_of_data_depends_on_images_and_labels_only():
    images, labels = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4), np.array([0, 1])
    first = data_digest(images, labels)
    assert data_digest(np.asfortranarray(images), labels.astype(np.int32)) == first
    assert len({first, data_digest(images[::-1], labels), data_digest(images, labels[::-1])}) == 3
