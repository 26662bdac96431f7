"""`augment`: the counts and images that it adds to a client's dataset, and the arguments that it refuses."""

import hashlib
import inspect
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import fedeas
from fedeas import Allocation, CostAware, FedEAS, FullBalance, InputError, LabelCounts, NoGeneration, augment
from fedeas.config import TrainConfig
from fedeas.core.arrays import frozen
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.worker import Worker
from fedeas.generators import GaussianGenerator
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.weights import Weights
from fedeas.planning.tables import write_allocation

SKEWED = [30, 2, 0]
LOCAL = [FedEAS(12), FedEAS(3, fill="all"), FullBalance(), CostAware(price=0.1), NoGeneration()]


@dataclass
class Hashed:
    """Images that are hashes of their addresses, so that all differ, in read-only arrays; requests are recorded."""

    num_classes: int = 3
    shape: tuple[int, int, int] = (1, 4, 4)
    batch_size: int = 16
    fingerprint: str = "ab" * 32
    made: list[tuple[int, int]] = field(default_factory=list)

    def sample(self, labels, index):
        addresses = list(zip(labels.tolist(), index.tolist(), strict=True))
        self.made += addresses
        return frozen(np.stack([self.image(*address) for address in addresses]))

    def image(self, label, index):
        pixels = hashlib.shake_128(f"{label} {index}".encode()).digest(int(np.prod(self.shape)))
        return np.frombuffer(pixels, dtype=np.uint8).reshape(self.shape)


def labels_of(counts):
    return np.repeat(np.arange(len(counts)), counts)


def arrays(counts=SKEWED, shape=(1, 4, 4)):
    """A list of samples (uint8 array, int) and their labels."""
    labels = labels_of(counts)
    return [(np.zeros(shape, np.uint8), int(label)) for label in labels], labels


def augmented(counts=SKEWED, generator=None, **options):
    samples, labels = arrays(counts)
    return augment(samples, labels, len(counts), generator or Hashed(len(counts)), **options)


def synthetic(data):
    return [data[place] for place in range(data.num_real, len(data))]


def pixels(data):
    return np.stack([image for image, _ in synthetic(data)])


# The laws.

counts = st.lists(st.integers(0, 40), min_size=2, max_size=6).filter(any)


@given(counts, st.sampled_from(LOCAL))
def test_synthetic_counts_are_the_policys(own, policy):
    data = augmented(own, policy=policy)
    wanted = policy.allocate(LabelCounts([own])).n[0]
    assert np.array_equal(data.budget, wanted)
    assert np.array_equal(np.bincount([label for _, label in synthetic(data)], minlength=len(own)), wanted)
    assert (data.num_real, data.num_synthetic, len(data)) == (sum(own), wanted.sum(), sum(own) + wanted.sum())


@given(counts, st.integers(0, 2**31 - 1))
def test_images_have_the_addresses_of_a_federated_run(own, client):
    generator = Hashed(len(own))
    data = augmented(own, generator, client=client)
    wanted = [(label, (client << 32) + j) for label, count in enumerate(data.budget) for j in range(count)]
    assert generator.made == wanted
    for (image, label), address in zip(synthetic(data), wanted, strict=True):
        assert label == address[0]
        assert np.array_equal(image, generator.image(*address))


def test_real_samples_come_first_and_unchanged():
    samples, labels = arrays()
    data = augment(samples, labels, 3, Hashed())
    assert all(data[place] is samples[place] for place in range(len(samples)))


def test_two_calls_give_equal_images_and_two_clients_different_ones():
    first, again, other = (pixels(augmented(client=client)) for client in (4, 4, 5))
    assert np.array_equal(first, again)
    assert not (first == other).all(axis=(1, 2, 3)).any()


def test_a_worker_gives_the_client_the_same_images():
    """The images equal those of a federated run, in the same order."""
    table = LabelCounts([[5, 5, 5], SKEWED, [0, 9, 1]])
    worker = Worker(
        algorithm=None,
        model=None,
        load_client=lambda client: client_data(table.n[client]),
        allocation=FedEAS(12).allocate(table).n,
        generator=Hashed(),
        train=TrainConfig(),
        seed=0,
        total_rounds=1,
    )
    worker.prepare([0, 1, 2])
    for client in range(3):
        data = augmented(table.n[client].tolist(), client=client)
        theirs = worker.clients[client]
        assert data.num_real == theirs.num_real
        assert len(data) == len(theirs)
        for place, (image, label) in enumerate(synthetic(data), start=data.num_real):
            assert torch.equal(torch.from_numpy(image), theirs.images[place])
            assert label == theirs.labels[place]


def client_data(own):
    return ClientData.of(np.zeros((own.sum(), 1, 4, 4), np.uint8), labels_of(own), Normaliser.of((0.5,), (0.5,)))


def test_a_cache_generates_no_image_twice(tmp_path):
    generator = Hashed()
    first = augmented(generator=generator, bank=tmp_path, policy=FedEAS(4))
    again = augmented(generator=generator, bank=tmp_path, policy=FedEAS(4))
    assert len(generator.made) == first.num_synthetic
    assert np.array_equal(pixels(first), pixels(again))
    more = augmented(generator=generator, bank=tmp_path, policy=FullBalance())  # more of the same
    assert len(generator.made) == len(set(generator.made)) == more.num_synthetic > first.num_synthetic


class Untouchable(Dataset):
    """A dataset that has a length but cannot be read."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        raise AssertionError("a balanced client's samples need not be looked at")


@pytest.mark.parametrize("generator", ["diffusion(weights=nowhere)", Hashed(num_classes=99, shape=(9, 9, 9))])
def test_a_balanced_client_generates_nothing(generator, tmp_path):
    data = augment(Untouchable(), np.arange(12) % 3, 3, generator, bank=tmp_path / "bank")
    assert (data.num_real, data.num_synthetic, data.budget.tolist()) == (12, 0, [0, 0, 0])
    assert isinstance(generator, str) or not generator.made
    assert not (tmp_path / "bank").exists()


def test_the_default_is_the_papers_policy_and_policies_may_be_specs():
    own = [300, 2, 0]
    assert np.array_equal(augmented(own).budget, FedEAS(beta=12).allocate(LabelCounts([own])).n[0])
    assert augmented(own, policy="full-balance").budget.tolist() == [0, 298, 300]


# Use in PyTorch.


def halved(image):
    return image.float() / 510


def tensors(dtype=torch.uint8):
    labels = torch.from_numpy(labels_of(SKEWED))
    return TensorDataset(torch.zeros((len(labels), 1, 4, 4), dtype=dtype), labels), labels


@pytest.mark.parametrize("workers", [0, 2])
def test_the_result_works_with_data_loaders(workers):
    dataset, labels = tensors(torch.float32)
    data = augment(dataset, labels, 3, Hashed(), transform=halved)
    assert isinstance(data, Dataset)
    batches = list(DataLoader(data, batch_size=7, num_workers=workers))
    images, classes = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert (images.dtype, classes.dtype) == (torch.float32, torch.int64)
    assert np.array_equal(classes.bincount(minlength=3), SKEWED + data.budget)
    assert torch.equal(images[-1], data[len(data) - 1][0])
    assert 0.25 < images.max() <= 0.5


def test_the_result_can_be_sent_to_another_process():
    dataset, labels = tensors()
    data = augment(dataset, labels, 3, Hashed())
    back = pickle.loads(pickle.dumps(data))
    assert len(back) == len(data)
    assert all(torch.equal(back[place][0], data[place][0]) for place in range(len(data)))


def test_indices_may_be_negative_and_out_of_range_raises():
    data = augmented()
    assert np.array_equal(data[-1][0], data[len(data) - 1][0])
    assert len(list(data)) == len(data)
    for place in (len(data), -len(data) - 1):
        with pytest.raises(IndexError):
            data[place]


def test_a_transform_that_works_in_place_does_not_change_the_images():
    dataset, labels = tensors()
    data = augment(dataset, labels, 3, Hashed(), transform=lambda image: image.add_(1))
    first = data[len(data) - 1][0].clone()
    assert torch.equal(first, data[len(data) - 1][0])


BLANKS = {
    "tensor": torch.zeros(3, 4, 6, dtype=torch.uint8),
    "cube": torch.zeros(3, 3, 3, dtype=torch.uint8),
    "array": np.zeros((1, 4, 6), np.uint8),
}


@pytest.mark.parametrize("name", BLANKS)
def test_synthetic_images_have_the_form_of_the_real_ones(name):
    blank, labels = BLANKS[name], labels_of(SKEWED)
    generator = Hashed(shape=tuple(blank.shape))
    data = augment([(blank, label) for label in labels], labels, 3, generator)
    image, _ = data[data.num_real]
    assert type(image) is type(blank)
    assert np.array_equal(np.asarray(image), generator.image(1, 0))


@pytest.mark.parametrize(
    "as_label", [int, np.int64, np.uint8, torch.tensor, lambda label: torch.tensor(label, dtype=torch.uint8)]
)
def test_synthetic_labels_have_the_type_of_the_real_ones(as_label):
    labels = labels_of(SKEWED)
    samples = [(np.zeros((1, 4, 4), np.uint8), as_label(int(label))) for label in labels]
    data = augment(samples, labels, 3, Hashed())
    real, made = data[0][1], data[len(data) - 1][1]
    assert type(real) is type(made)
    assert getattr(real, "dtype", None) == getattr(made, "dtype", None)
    (_, classes) = next(iter(DataLoader(data, batch_size=len(data))))  # both in one batch
    assert np.array_equal(classes.bincount(minlength=3), SKEWED + data.budget)


def test_labels_may_be_list_array_or_tensor():
    samples, labels = arrays()
    tensor = torch.tensor(labels)
    budgets = [augment(samples, given, 3, Hashed()).budget for given in (labels.tolist(), labels, tensor, list(tensor))]
    assert np.ptp(budgets, axis=0).max() == 0


# Generators by name.


def digits(counts, shape=(1, 8, 8)):
    labels = labels_of(counts)
    return [(np.zeros(shape, np.uint8), int(label)) for label in labels], labels


def test_a_spec_and_its_generator_give_the_same_images():
    samples, labels = digits([40, *[3] * 9])
    named = augment(samples, labels, 10, "diffusion(weights=digits)", "fedeas(beta=12)", client=7)
    given = augment(samples, labels, 10, DiffusionGenerator(Weights.load("digits")), "fedeas(beta=12)", client=7)
    assert named.num_synthetic > 0
    assert np.array_equal(pixels(named), pixels(given))


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8, 1), (8, 8)])
def test_a_users_function_gets_the_shape_of_the_images(shape):
    samples, labels = digits([9, *[0] * 9], shape)
    options = {} if shape == (1, 8, 8) else {"transform": lambda image: image.numpy().reshape(shape)}
    data = augment(samples, labels, 10, "python:examples.custom_generator:stripes", **options)
    assert pixels(data).shape == (data.num_synthetic, *shape)


def test_a_fitted_gaussian_can_be_given():
    labels = np.arange(60) % 3
    images = np.random.default_rng(0).integers(0, 256, (60, 1, 4, 4), dtype=np.uint8)
    data = augmented(generator=GaussianGenerator.fit(images, labels, 3, components=4))
    assert pixels(data).dtype == np.uint8


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gan", "unknown generator 'gan'; known are gaussian"),
        ("diffusion(steps=fast)", "steps must be a whole number"),
        ("python:nowhere", "expected python:module:name"),
        ("python:no_such_module:name", "no module no_such_module"),
        ("gaussian", "fit a GaussianGenerator"),
        ("agreeing(of=gaussian, classifier=judge)", "fit a GaussianGenerator"),
        ("diffusion", "as in diffusion(weights=digits)"),
        ("diffusion(weights=nowhere)", "no weights called 'nowhere'"),
        ("diffusion(weights=digits)", "the plan has 3 classes, the generator 10; plan with its classes"),
        ("sd-turbo", "TextToImage.load"),
        ("agreeing(of=diffusion(weights=digits))", "needs a trained classifier"),
        ("shared", "as in diffusion(weights=digits)"),
        ("shared(of=gaussian)", "fit a GaussianGenerator"),
        ("shared(of=sd-turbo)", "TextToImage.load"),
        ("shared(of=agreeing(of=diffusion(weights=digits)))", "needs a trained classifier"),
        ("shared(of=diffusion(weights=digits), each=2)", "the pool has 2"),
        ("held-out", "give another generator"),
    ],
)
def test_specs_that_cannot_be_used_are_refused(spec, message):
    refused(message, generator=spec)


@pytest.mark.parametrize("names", [None, ("cat", "dog", "fox")])
@pytest.mark.parametrize("spec", ["{}", "shared(of={})"])
def test_a_gaussian_can_be_given_as_a_file(tmp_path, spec, names):
    labels = np.arange(60) % 3
    images = np.random.default_rng(0).integers(0, 256, (60, 1, 4, 4), dtype=np.uint8)
    fitted = GaussianGenerator.fit(images, labels, 3, components=4, class_names=names)
    fitted.save(tmp_path / "fitted.safetensors")
    data = augmented(generator=spec.format(f'gaussian(weights="{tmp_path / "fitted.safetensors"}")'))
    assert np.array_equal(pixels(data), pixels(augmented(generator=fitted)))


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (Image.new("RGB", (5, 3)), (3, 3, 5)),
        (Image.new("L", (5, 3)), (1, 3, 5)),
        (torch.zeros(3, 5, 4), (3, 5, 4)),
        (torch.zeros(5, 4, 3), (3, 5, 4)),
        (torch.zeros(5, 4), (1, 5, 4)),
    ],
)
def test_functions_make_images_of_the_shape_of_the_first_real_one(image, shape):
    def blank(labels, index):
        return np.zeros((len(labels), *shape), np.uint8)

    data = augment([(image, 0)] * 32, [0] * 32, 3, blank, transform=lambda made: image)
    assert data.images.shape == (data.num_synthetic, *shape)


# Refused arguments.


def refused(message, dataset=None, labels=None, num_classes=3, generator=None, **options):
    samples, own = arrays()
    with pytest.raises(InputError) as caught:
        augment(
            samples if dataset is None else dataset,
            own if labels is None else labels,
            num_classes,
            generator or Hashed(),
            **options,
        )
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0] * 31}, "31 labels for 32 samples"),
        ({"labels": 3}, "1 labels for 32 samples"),
        ({"labels": [0] * 31 + [3]}, "label 3 is not between 0 and 2"),
        ({"labels": [0] * 31 + [-1]}, "label -1 is not between 0 and 2"),
        ({"labels": [0.5] * 32}, "labels must be a list of whole numbers"),
        ({"labels": np.zeros((32, 3), int)}, "labels must be a list of whole numbers"),
        ({"labels": [1] * 32}, "sample 0 is of class 0, but labels begin with 1"),
        ({"dataset": [], "labels": []}, "the dataset is empty"),
        ({"dataset": Stream()}, "give a map-style dataset"),
        ({"dataset": [{"img": 0, "label": 0}] * 32}, "samples must be pairs (image, label), not dict"),
        ({"dataset": [(np.zeros((1, 4, 4), np.uint8), "cat")] * 32}, "must be whole numbers, not str"),
        ({"dataset": [(np.zeros((1, 4, 4), np.uint8), torch.eye(3)[0])] * 32}, "not float32 tensor (3,)"),
        ({"num_classes": 1}, "num_classes must be a whole number from 2 on, not 1"),
        ({"num_classes": 3.0}, "num_classes must be a whole number from 2 on, not 3.0"),
        ({"num_classes": 4}, "the plan has 4 classes, the generator 3; plan with its classes"),
        ({"generator": 3}, "generator must be a Generator, a spec such as python:module:name or a function"),
        ({"client": -1}, "client must be between 0 and"),
        ({"client": "3"}, "client must be a whole number, not '3'; a name needs a plan"),
        ({"policy": "lots"}, "unknown policy 'lots'"),
        ({"policy": "fedeas(beta=-1)"}, "beta must be a finite number above 0"),
        ({"policy": FedEAS}, "FedEAS is a class"),
        ({"labels": ["dog"] * 32}, "not of 'dog'"),
        ({"policy": 12}, "policy must be a policy or a spec such as 'fedeas(beta=12)', not int"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_one_line(arguments, message):
    refused(message, **arguments)


@pytest.mark.parametrize("name", ["uniform", "missing-only", "by-size", "greedy", "optimal"])
def test_policies_that_need_all_clients_are_refused(name):
    refused("fedeas, cost-aware, full-balance, no-generation", policy=f"{name}(budget=10)")


FLOATS = tensors(torch.float32)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": FLOATS}, "float32 tensor (1, 4, 4), synthetic ones as uint8 tensor (1, 4, 4); pass transform="),
        ({"dataset": FLOATS, "transform": lambda image: image.double()}, "synthetic ones as float64 tensor (1, 4, 4)"),
        ({"dataset": FLOATS, "transform": lambda image: image.float()[0]}, "synthetic ones as float32 tensor (4, 4)"),
        ({"generator": Hashed(shape=(3, 4, 4))}, "as uint8 array (1, 4, 4), synthetic ones as uint8 array (3, 4, 4)"),
        ({"generator": Hashed(shape=(1, 8, 8))}, "synthetic ones as uint8 array (1, 8, 8)"),
        (
            {"transform": lambda image: image.no_such},
            "transform fails for a uint8 tensor (1, 4, 4) with Attr",
        ),
        ({"dataset": [(Image.new("P", (4, 4)), 0)] * 32}, "PIL image P (4, 4)"),
        (
            {"dataset": [(Image.new("L", (4, 4)), 0)] * 32, "generator": Hashed(shape=(3, 4, 4))},
            "come as PIL image L (4, 4), synthetic ones as uint8 tensor (3, 4, 4); pass transform=",
        ),
        ({"dataset": [(np.zeros(16, np.uint8), 0)] * 32}, "uint8 array (16,)"),
        (
            {"dataset": [(np.zeros(16), 0)] * 32, "generator": "diffusion(weights=digits)"},
            "float64 array (16,) has no channels, height and width; give the generator itself",
        ),
    ],
)
def test_images_that_cannot_share_a_batch_are_refused_before_any_is_generated(arguments, message):
    generator = arguments.get("generator", Hashed())
    refused(message, **{**arguments, "generator": generator})
    assert isinstance(generator, str) or not generator.made


@pytest.mark.parametrize(("missing", "dtype"), [(0, np.float32), (1, np.uint8)])
def test_the_output_of_a_generator_is_checked(missing, dtype):
    generator = Hashed()
    generator.sample = lambda labels, index: np.zeros((len(labels) - missing, 1, 4, 4), dtype)
    refused("the generator must give uint8", generator=generator)


# Import from the package.


def test_augment_is_not_loaded_before_its_first_use():
    script = (
        "import sys, fedeas; assert 'torch' not in sys.modules; fedeas.augment; assert 'torch' in sys.modules;"
        "from fedeas import Augmented, augment; assert augment is fedeas.augment"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_torch_the_error_says_what_to_install():
    script = "import sys; sys.modules['torch'] = None; import fedeas; fedeas.augment"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.endswith("fedeas.augment needs torch: pip install 'fedeas[train]'\n")


def test_other_names_are_still_unknown():
    with pytest.raises(AttributeError, match="module 'fedeas' has no attribute 'augmented'"):
        fedeas.augmented  # noqa: B018


def test_the_signature_is_visible():
    names = ["dataset", "labels", "num_classes", "generator", "policy", "bank", "client", "plan", "budget", "transform"]
    assert list(inspect.signature(augment).parameters) == names


def paint(labels, index):
    return np.broadcast_to(labels.astype(np.uint8)[:, None, None, None], (len(labels), 1, 4, 4))


PLAN = Allocation([[1, 0], [2, 3]], "by hand", ["ann", "bob"], ["cat", "dog"])


@pytest.mark.parametrize("options", [{"plan": PLAN, "client": "bob"}, {"budget": PLAN.n[1]}, {"budget": [2, 3]}])
def test_a_client_takes_its_row_of_a_plan(options):
    pixels = np.zeros((6, 1, 4, 4), np.uint8)
    mine = augment([(image, 0) for image in pixels], [0] * 6, 2, paint, **{"client": 1, **options})
    assert mine.budget.tolist() == [2, 3]
    assert [int(mine[place][0].max()) for place in range(6, 11)] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_plan_can_be_given_as_its_file(tmp_path, as_path):
    path = tmp_path / "plan.csv"
    write_allocation(path, LabelCounts([[1, 1], [1, 1]], PLAN.clients, PLAN.classes), PLAN)
    mine = augment([(np.zeros((1, 4, 4), np.uint8), 0)], [0], 2, paint, plan=as_path(path), client="bob")
    assert mine.budget.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plan": "nowhere.csv"}, "nowhere.csv"),
        ({"budget": [1, 2, 3]}, "must have 2 numbers"),
        ({"budget": [1, -2]}, "must have 2 numbers"),
        ({"budget": [1, 0.5]}, "whole numbers"),
        ({"budget": "uniform(budget=10)"}, "a budget must be whole numbers"),
        ({"budget": FedEAS(3)}, "a budget must be whole numbers"),
        ({"budget": PLAN, "client": 0}, "a budget must be whole numbers"),
        ({"plan": [1, 2]}, "budget="),
        ({"plan": PLAN, "client": "eve"}, "no client 'eve'"),
        ({"plan": PLAN}, "the plan has 2 clients"),
        ({"client": "ann"}, "a name needs a plan"),
        ({"client": 1.5}, "must be a whole number"),
        ({"plan": PLAN, "policy": "full-balance"}, "only one"),
        ({"plan": PLAN, "budget": [1, 2]}, "only one"),
    ],
)
def test_a_budget_that_does_not_fit_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        augment([(np.zeros((1, 4, 4), np.uint8), 0)], [0], 2, paint, **options)
