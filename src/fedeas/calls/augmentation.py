"""Add synthetic samples to one client's own dataset, for use in any training loop.

The images are those of a federated run: the same policy, generator and client number give the same images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Dataset

from fedeas.calls.plan_images import source_for
from fedeas.calls.plans import plan as plan_counts
from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError, PolicyError, SpecError
from fedeas.core.files import PathLike
from fedeas.generators.bank import Bank
from fedeas.generators.base import Shape, checked_address, plan_addresses
from fedeas.generators.kinds import AnyGenerator, parse_generator
from fedeas.planning.counts import Allocation, LabelCounts, whole_numbers
from fedeas.planning.plan import AnyPlan, read_plan
from fedeas.planning.policies import POLICIES, AllocationPolicy, FedEAS

Transform = Callable[[Tensor], Any]

PAPER = FedEAS(12)
CHANNELS = (1, 3, 4)
"""Usual numbers of channels; they tell whether an array has its channels first or last."""

TRANSFORM = "pass transform=, from a uint8 tensor (channels, height, width) to what the dataset gives"


@dataclass(frozen=True, eq=False)
class Augmented(Dataset[Any]):
    """The samples of one client, real ones first, then synthetic ones; a map-style dataset for any `DataLoader`.

    Training uses all of them in the same way; the client's weight in the federation is `num_real` alone. The transform
    of synthetic images is applied at each access, so a random transform varies between epochs.
    """

    num_real: int
    """N_k, the weight to report to the server."""
    budget: IntArray
    """Synthetic samples of each class."""
    real: Any = field(repr=False)
    images: Any = field(default=(), repr=False)
    labels: Any = field(default=(), repr=False)
    transform: Transform | None = field(default=None, repr=False)

    @property
    def num_synthetic(self) -> int:
        """Synthetic samples of all classes."""
        return int(self.budget.sum())

    def __len__(self) -> int:
        return self.num_real + self.num_synthetic

    def __getitem__(self, index: SupportsIndex) -> Any:
        place = range(len(self))[index]
        if place < self.num_real or self.transform is None:
            return self.real[place]
        own = self.images[place - self.num_real].clone()  # a transform may work in place
        return self.transform(own), self.labels[place - self.num_real]


def augment(
    dataset: Dataset[Any] | Sequence[Any],
    labels: ArrayLike | Tensor,
    num_classes: int,
    generator: AnyGenerator,
    policy: AllocationPolicy | str | None = None,
    bank: PathLike | None = None,
    *,
    client: int | str | None = None,
    plan: AnyPlan | None = None,
    budget: ArrayLike | None = None,
    transform: Transform | None = None,
) -> Augmented:
    """Join one client's dataset with its synthetic samples: those of a plan, or what a policy gives for its counts.

    Args:
        dataset: samples (image, label) of this client alone, by number.
        labels: the labels of all samples, in their order.
        num_classes: C; labels are 0 to C - 1.
        generator: a generator, a spec such as ``diffusion(weights=digits)`` or ``python:module:name``, or a function of
            labels and indices. Specs and functions make images of the shape of the first real one; build a generator
            that needs more yourself.
        policy: a local policy, which needs only this client's counts, or its spec; FedEAS(12) by default.
        bank: folder of an image bank; without one, images are generated again at each call.
        client: this client's number in the federation, so that no two clients get the same images; its name, if the
            plan has names. Without a plan of several clients it is 0 by default.
        plan: a plan, an allocation or the path of a written plan, of which this client's row is taken, instead of a
            policy.
        budget: the row itself, synthetic samples of each class, instead of a policy or a plan.
        transform: converts a generated image, a uint8 tensor (channels, height, width), to the form that the dataset
            gives. Not needed if that is a uint8 tensor or array with its channels first.

    >>> from fedeas.generators import GaussianGenerator
    >>> pixels = np.random.default_rng(0).integers(0, 256, (40, 1, 4, 4), dtype=np.uint8)
    >>> generator = GaussianGenerator.fit(pixels, np.arange(40) % 2, num_classes=2, components=4)
    >>> mine = augment([(image, 0) for image in pixels[::2]], [0] * 20, 2, generator)
    >>> mine.num_real, mine.budget, len(mine)
    (20, array([ 0, 37]), 57)
    """
    try:
        classes = _checked_labels(dataset, labels, num_classes)
        number, row = _row(policy, plan, budget, client, classes, num_classes)
        made, index = plan_addresses(number, row)
        if isinstance(generator, str) and (reason := parse_generator(generator).needs_data()):
            raise InputError(reason)  # a client has its own samples only
        if not row.any():  # neither load the generator nor read the dataset
            return Augmented(classes.size, row, dataset)
        sample = dataset[0]
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise InputError(f"samples must be pairs (image, label), not {type(sample).__name__}; wrap the dataset")
        image, label = sample
        own = np.asarray(label.cpu() if isinstance(label, Tensor) else label)
        if own.ndim or own.dtype.kind not in "iu":
            raise InputError(f"labels in samples must be whole numbers, not {_form(label)}; wrap the dataset")
        if own != classes[0]:
            wrong = f"sample 0 is of class {own}, but labels begin with {classes[0]}"
            raise InputError(f"{wrong}; give them in samples' order")

        shape = None if hasattr(generator, "shape") else _shape(image)
        source = source_for(Allocation(row[None]), generator, shape=shape).generator
        convert = transform or (np.asarray if isinstance(image, np.ndarray) else torch.as_tensor)
        # Tried on a blank image, before any generation: real and synthetic samples must fit into one batch.
        blank = torch.zeros(source.shape, dtype=torch.uint8)
        try:
            form = _form(convert(blank.clone()))
        except Exception as error:  # a user's function can fail in any way
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise InputError(f"transform fails for a {_form(blank)} with {reason}; {TRANSFORM}") from error
        if form != _form(image):
            raise InputError(f"real images come as {_form(image)}, synthetic ones as {form}; {TRANSFORM}")
        images = (source if bank is None else Bank(bank).of(source)).sample(made, index)
        wanted = (made.size, *source.shape)
        if images.dtype != np.uint8 or images.shape != wanted:
            raise InputError(f"the generator must give uint8 {wanted}, not {images.dtype} {images.shape}")
        tensor = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        classes_made: Any = made.tolist()  # labels with the type of a real one: a batch must be of one type
        if isinstance(label, Tensor):
            classes_made = torch.from_numpy(made).to(label.device, label.dtype)
        elif isinstance(label, np.generic | np.ndarray):
            classes_made = made.astype(label.dtype)
        return Augmented(classes.size, row, dataset, tensor, classes_made, convert)
    except (SpecError, PolicyError) as error:  # a faulty spec is a faulty argument, too
        raise InputError(str(error)) from None


def _checked_labels(dataset: Any, labels: Any, num_classes: int) -> IntArray:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise InputError(f"a {type(dataset).__name__} has no numbered samples; give a map-style dataset")
    if not isinstance(num_classes, int | np.integer) or num_classes < 2:
        raise InputError(f"num_classes must be a whole number from 2 on, not {num_classes!r}")
    given = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if given.shape[:1] != (len(dataset),):
        raise InputError(f"{given.size:,} labels for {len(dataset):,} samples; give one for each, in their order")
    if not len(dataset):
        raise InputError("the dataset is empty; leave out a client without samples")
    return checked_address(given, np.arange(len(dataset)), num_classes)[0]


def _row(
    policy: AllocationPolicy | str | None,
    plan: AnyPlan | None,
    budget: Any,
    client: int | str | None,
    classes: IntArray,
    num_classes: int,
) -> tuple[int, IntArray]:
    """The client's number, and its synthetic samples of each class."""
    if sum(given is not None for given in (policy, plan, budget)) > 1:
        raise InputError("give a policy, a plan or a budget, only one of them")
    if plan is not None:
        table = read_plan(plan, "give a row as budget=")
        if client is None and len(table.n) > 1:
            raise InputError(f"the plan has {len(table.n):,} clients; give client, the name or number of this one")
        number = table.row_of(0 if client is None else client)
        row = table.n[number]
    else:
        if client is not None and not isinstance(client, int | np.integer):
            raise InputError(f"client must be a whole number, not {client!r}; a name needs a plan with names")
        number = int(client or 0)
        if budget is None:
            found = plan_counts(LabelCounts(np.bincount(classes, minlength=num_classes)[None]), policy or PAPER)
            if not found.policy.is_local:
                local = ", ".join(name for name, kind in POLICIES.items() if kind.is_local)
                wanted = f"needs the counts of all clients; use one that needs its own only: {local}"
                raise InputError(f"policy {found.policy} {wanted}")
            row = found.n[0]
        else:
            row = whole_numbers(budget, "a budget")
    if row.shape != (num_classes,) or row.min() < 0:
        raise InputError(f"the budget must have {num_classes} numbers of 0 or more, one for each class")
    return number, row


def _shape(image: Any) -> Shape:
    """Channels, height and width of an image that has two or three axes."""
    match np.shape(image):
        case height, width:
            return 1, height, width
        case height, width, channels if hasattr(image, "getbands") or (channels in CHANNELS and height not in CHANNELS):
            return channels, height, width
        case channels, height, width:
            return channels, height, width
    raise InputError(f"{_form(image)} has no channels, height and width; give the generator itself, not its spec")


def _form(thing: Any) -> str:
    """Describe everything that must be the same in all samples of a batch: container, type, shape, device."""
    if isinstance(thing, Tensor):
        place = "" if thing.device.type == "cpu" else f" on {thing.device}"
        return f"{str(thing.dtype).removeprefix('torch.')} tensor {tuple(thing.shape)}{place}"
    if isinstance(thing, np.ndarray):
        return f"{thing.dtype} array {thing.shape}"
    if hasattr(thing, "getbands"):
        return f"PIL image {thing.mode} {thing.size}"
    return type(thing).__name__
