import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedeas import InputError, imbalance
from fedeas.config import PartitionConfig
from fedeas.data.dataset import checked_labels
from fedeas.data.names import KNOWN
from fedeas.data.partition import FIRST_DRAWS, Partition, dirichlet, iid, paper_replay, shards
from fedeas.federation.split import split_as

labels_lists = st.lists(st.integers(0, 4), min_size=12, max_size=80)
CIFAR10 = KNOWN["cifar10"].labels(merged=True)
LABELS = np.random.default_rng(0).integers(0, 10, 5000)


def schemes(labels, clients, seed):
    yield iid(labels, clients, seed=seed)
    yield dirichlet(labels, clients, 0.5, seed=seed, cap=True)
    yield dirichlet(labels, clients, 2.0, seed=seed)
    yield shards(labels, clients, 2, seed=seed)


@given(labels_lists, st.integers(1, 4), st.integers(0, 5))
def test_every_sample_belongs_to_exactly_one_client(labels, clients, seed):
    for split in schemes(labels, clients, seed):
        assert sorted(np.concatenate(split.indices).tolist()) == list(range(len(labels)))
        assert not any(part.size for part in split.test_indices)
        assert split.counts.n.shape == (clients, split.num_classes)
        assert split.counts.total == sum(part.size for part in split.indices)


def test_counts_are_those_of_the_training_parts():
    split = paper_replay(LABELS, 7, 0.2)
    for k, part in enumerate(split.indices):
        assert split.counts.n[k].tolist() == [int((LABELS[part] == c).sum()) for c in range(10)]


def test_a_seed_fixes_the_partition():
    for first, again, other in zip(*(schemes(LABELS, 5, seed) for seed in (1, 1, 2)), strict=True):
        assert all(map(np.array_equal, first.indices, again.indices))
        assert not all(map(np.array_equal, first.indices, other.indices))


@given(labels_lists, st.integers(1, 6))
def test_iid_is_balanced_up_to_one(labels, clients):
    split = iid(labels, clients)
    n = np.stack([np.bincount(np.asarray(labels)[part], minlength=5) for part in split.indices])
    assert (n.max(axis=0) - n.min(axis=0) <= 1).all()
    assert n.sum(axis=1).max() - n.sum(axis=1).min() <= 1


def test_a_smaller_alpha_is_more_skewed():
    skews = [imbalance(dirichlet(LABELS, 20, alpha, seed=0).counts) for alpha in (0.05, 0.3, 1.0, 100.0)]
    assert skews == sorted(skews, reverse=True)


def test_no_client_collects_the_leftovers_of_rounding():
    """Cuts that are floored give the last client a sample of nearly every class."""
    labels = np.repeat(np.arange(100), 50)
    held = np.mean([(dirichlet(labels, 50, 0.1, seed=seed).counts.n > 0).sum(axis=1) for seed in range(20)], axis=0)
    others = held[:-1]
    assert abs(held[-1] - others.mean()) < 5 * others.std()


def test_the_cap_evens_out_sizes():
    free, capped = (dirichlet(LABELS, 20, 0.1, seed=0, cap=cap).counts.sizes for cap in (False, True))
    assert capped.std() < free.std()


def test_min_size_is_kept_or_refused():
    assert dirichlet(LABELS, 20, 0.1, min_size=40).counts.sizes.min() >= 40
    with pytest.raises(
        InputError, match=r"no Dirichlet\(0.01\) draw out of 5 gave each of 20 clients 40 samples; use a"
    ):
        dirichlet(LABELS, 20, 0.01, min_size=40, max_draws=5)
    with pytest.raises(InputError, match="20 clients of at least 300 samples need 6,000, there are 5,000"):
        dirichlet(LABELS, 20, 1.0, min_size=300)


def test_shards_limit_the_classes_of_a_client():
    counts = shards(np.repeat(np.arange(10), 100), clients=50, per_client=2).counts
    assert (counts.n > 0).sum(axis=1).max() <= 2
    assert (counts.sizes == 20).all()


def test_a_saved_partition_loads_unchanged(tmp_path):
    split = paper_replay(CIFAR10, 20, 0.1)
    split.save(tmp_path / "split.npz")
    again = Partition.load(tmp_path / "split.npz")
    assert all(map(np.array_equal, again.indices, split.indices))
    assert all(map(np.array_equal, again.test_indices, split.test_indices))
    assert again.recipe == split.recipe
    assert again.counts == split.counts
    assert [path.name for path in tmp_path.iterdir()] == ["split.npz"]


def test_other_files_are_refused_as_partitions(tmp_path):
    (tmp_path / "text.npz").write_text("nothing")
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    for name in ("text.npz", "other.npz"):
        with pytest.raises(InputError, match="damaged"):
            Partition.load(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        Partition.load(tmp_path / "none.npz")


def replay_step_by_step(labels, clients, alpha, seed):
    """The procedure behind the paper's tables, written a second time, one sample list at a time."""
    stream = np.random.RandomState(seed)
    by_class = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
    while True:
        owned = {k: [] for k in range(clients)}
        for members in by_class:
            stream.shuffle(members)
            edges = (np.cumsum(stream.dirichlet([alpha] * clients)) * len(members)).astype(int)
            edges = [0, *edges[:-1].tolist(), len(members)]
            for k in range(clients):
                owned[k] += members[edges[k] : edges[k + 1]].tolist()
        if min(map(len, owned.values())) >= 10:
            break
    parts = []
    for k in range(clients):
        mine = np.array(owned[k])
        stream.shuffle(mine)
        parts.append((mine[: int(len(mine) * 0.25)], mine[int(len(mine) * 0.25) :]))
    return parts


def test_the_replay_follows_the_recovered_procedure_on_any_labels():
    split = paper_replay(LABELS, 30, 0.1, seed=7)
    expected = replay_step_by_step(LABELS, 30, 0.1, seed=7)
    assert split.recipe["draws"] > 1
    for k, (test, train) in enumerate(expected):
        assert np.array_equal(split.test_indices[k], test)
        assert np.array_equal(split.indices[k], train)


def test_the_counts_of_a_replay_depend_on_class_sizes_alone():
    shuffled = np.random.default_rng(1).permutation(CIFAR10)
    assert paper_replay(shuffled, 20, 0.1).counts == paper_replay(CIFAR10, 20, 0.1).counts


SCHEMES = {
    "iid": (PartitionConfig(scheme="iid", clients=7, seed=3), lambda: iid(LABELS, 7, seed=3)),
    "shards": (
        PartitionConfig(scheme="shards", clients=7, per_client=3, seed=3),
        lambda: shards(LABELS, 7, 3, seed=3),
    ),
    "dirichlet": (
        PartitionConfig(clients=7, alpha=0.2, min_size=50, cap=True, seed=3),
        lambda: dirichlet(LABELS, 7, 0.2, seed=3, min_size=50, cap=True),
    ),
    "paper": (
        PartitionConfig(scheme="paper", clients=7, alpha=0.2, seed=3),
        lambda: paper_replay(LABELS, 7, 0.2, seed=3),
    ),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_config_gives_the_partition_of_its_scheme(scheme):
    config, expected = SCHEMES[scheme]
    found, wanted = split_as(LABELS, config), expected()
    assert all(map(np.array_equal, found.indices, wanted.indices))
    assert all(map(np.array_equal, found.test_indices, wanted.test_indices))
    assert found.recipe == wanted.recipe


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_arrays_of_a_partition_are_read_only(scheme, tmp_path):
    made = split_as(LABELS, SCHEMES[scheme][0])
    made.save(tmp_path / "split.npz")
    for partition in (made, Partition.load(tmp_path / "split.npz")):
        for array in (*partition.indices, *partition.test_indices, partition.labels, partition.counts.n):
            with pytest.raises(ValueError, match="read-only"):
                array[:1] = 0


def test_the_papers_partition_is_drawn_once_for_all_runs():
    config = SCHEMES["paper"][0]
    assert split_as(LABELS, config) is split_as(LABELS.astype(np.int32), config)
    assert split_as(LABELS, config) is not split_as(LABELS[::-1], config)


def test_partitioning_does_not_change_the_labels():
    labels = LABELS.copy()
    made = split_as(labels, SCHEMES["iid"][0])
    labels[:] = 0
    assert np.array_equal(made.labels, LABELS)


def test_known_datasets_have_their_official_sizes():
    sizes = {name: (sum(known.train), sum(known.test), len(known.classes)) for name, known in KNOWN.items()}
    assert sizes == {
        "cifar10": (50000, 10000, 10),
        "cifar100": (50000, 10000, 100),
        "fashion-mnist": (60000, 10000, 10),
        "digits": (1438, 359, 10),
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid([], 1), "labels must be a list"),
        (lambda: iid([0.5, 1], 1), "labels must be whole numbers"),
        (lambda: iid([0, -1], 1), "labels must be whole numbers"),
        (lambda: iid([0, 1], 3), "clients must be between 1 and the 2 samples, not 3"),
        (lambda: iid([0, 1], 0), "clients must be between 1"),
        (lambda: dirichlet([0, 1], 1, 0), "alpha must be above 0, not 0"),
        (lambda: dirichlet([0, 1], 1, 1.0, min_size=0), "min_size must be 1 or more"),
        (lambda: shards([0, 1], 1, 5), "5 shards cannot be cut from 2 samples"),
        (lambda: paper_replay(CIFAR10, 20, -1), "alpha must be above 0"),
    ],
)
def test_impossible_partitions_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


@settings(max_examples=8)
@given(clients=st.integers(2, 400), alpha=st.sampled_from([0.01, 0.05, 0.1, 1.0]), cap=st.booleans())
@example(clients=400, alpha=0.1, cap=False)
def test_a_split_that_is_not_found_in_a_limited_number_of_draws_is_refused_with_a_number_that_works(
    clients, alpha, cap
):
    labels, told = np.arange(400) % 4, []
    try:
        split = dirichlet(labels, clients, alpha, cap=cap, max_draws=1000, on_draw=told.append)
    except InputError as error:
        works = int(re.search(r"fewer clients \((\d+) work\)", str(error))[1])
        assert 1 <= works < clients
        assert dirichlet(labels, works, alpha, cap=cap, max_draws=FIRST_DRAWS).counts.sizes.min() >= 1
        assert len(told) <= 1000
    else:
        assert len(split.indices) == clients


def test_draws_in_which_hundreds_of_clients_get_nothing_are_soon_given_up():
    told = []
    with pytest.raises(InputError, match="fewer clients"):
        dirichlet(np.arange(1438) % 10, 1437, 0.1, on_draw=told.append)
    assert len(told) <= FIRST_DRAWS


@given(label=st.integers(10**6 + 10, 2**64 - 1))
def test_a_label_far_beyond_the_number_of_samples_is_refused_before_classes_are_counted_up(label):
    labels = np.array([0, 1, 2, label], dtype=np.uint64)
    with pytest.raises(InputError, match="label"):
        checked_labels("data.npz", labels, None)
    with pytest.raises(InputError, match="label"):
        iid(labels, 1)
