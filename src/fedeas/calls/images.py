"""The images of a plan as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from fedeas.calls.plan_images import source_for
from fedeas.core.arrays import IntArray
from fedeas.core.files import PathLike
from fedeas.generators.bank import Bank
from fedeas.generators.base import Shape
from fedeas.generators.kinds import AnyGenerator
from fedeas.planning.counts import Allocation
from fedeas.planning.plan import AnyPlan, read_plan

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset


@dataclass(frozen=True, eq=False)
class SyntheticImages:
    """Synthetic images of some clients, as arrays; also a map-style dataset of (image, label) for any `DataLoader`."""

    images: NDArray[np.uint8] = field(repr=False)
    """(N, channels, height, width)."""
    labels: IntArray = field(repr=False)
    owners: IntArray = field(repr=False)
    """The client of each image, by its row in the plan."""
    plan: Allocation
    classes: tuple[str, ...]
    """Names of the classes, by label."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: SupportsIndex) -> tuple[NDArray[np.uint8], int]:
        return self.images[index], int(self.labels[index])

    def of(self, client: int | str) -> SyntheticImages:
        """The images of one client, by name or row."""
        mine = self.owners == self.plan.row_of(client)
        return SyntheticImages(self.images[mine], self.labels[mine], self.owners[mine], self.plan, self.classes)

    def to_torch(self) -> TensorDataset:
        """Images and labels as tensors, for torch."""
        import torch
        from torch.utils.data import TensorDataset

        return TensorDataset(torch.from_numpy(self.images.copy()), torch.from_numpy(self.labels.copy()))


def generate(
    plan: AnyPlan,
    generator: AnyGenerator,
    *,
    dataset: str | None = None,
    data_root: PathLike | None = None,
    shape: Shape | None = None,
    client: int | str | None = None,
    bank: PathLike | None = None,
    device: str = "auto",
) -> SyntheticImages:
    """Make exactly the images of a plan; they are those of a run with the same clients and generator.

    Args:
        plan: what `fedeas.plan` or a policy gives, or the path of a written plan.
        generator: a spec such as ``gaussian``, a generator, or a function of labels and indices.
        dataset: the dataset whose images are imitated, as ``data.dataset`` of a run; needed by most specs.
        data_root: folder with the datasets' Parquet files.
        shape: channels, height and width, for a function of one's own without a dataset.
        client: only this one, by name or row.
        bank: folder in which images are kept, so that none is made twice.
        device: where the generator computes.

    >>> import numpy as np
    >>> def stripes(labels, index):
    ...     return np.broadcast_to((20 * labels).astype(np.uint8)[:, None, None, None], (len(labels), 1, 2, 2))
    >>> made = generate(Allocation([[0, 2], [1, 0]]), stripes, shape=(1, 2, 2))
    >>> made.labels, made.owners, made.images[:, 0, 0, 0]
    (array([1, 1, 0]), array([0, 0, 1]), array([20, 20,  0], dtype=uint8))
    """
    source = source_for(read_plan(plan), generator, dataset, data_root, shape, device)
    rows = range(len(source.plan.n)) if client is None else [source.plan.row_of(client)]
    parts = [source.addresses(row) for row in rows]
    labels, index = (np.concatenate(column) for column in zip(*parts, strict=True))
    owners = np.repeat(np.array(rows, dtype=np.int64), [len(part[0]) for part in parts])
    ready: Any = source.generator if bank is None else Bank(bank).of(source.generator)
    images = ready.sample(labels, index) if labels.size else np.empty((0, *ready.shape), np.uint8)
    return SyntheticImages(images, labels, owners, source.plan, source.classes)
