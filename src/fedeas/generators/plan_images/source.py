"""Make the generator for a plan, and match the plan's classes with the generator's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.foreign_text import first_of
from fedeas.data.sources import load_dataset
from fedeas.generators.base import Generator, Shape, checked_shape, described, plan_addresses
from fedeas.generators.registry import AnyGenerator, generator_from, parse_generator
from fedeas.generators.settings import GeneratorContext
from fedeas.planning.counts import Allocation


@dataclass(frozen=True, eq=False)
class PlanSource:
    """A generator for the images of a plan."""

    plan: Allocation
    generator: Generator
    classes: tuple[str, ...]
    """Names of the generator's classes, by label."""
    columns: IntArray
    """The generator's label of each class of the plan."""
    spec: str
    dataset: str | None = None
    """The name of the dataset that the images imitate, if one was given."""

    def addresses(self, row: int) -> tuple[IntArray, IntArray]:
        """Labels and indices of a client's images, the same as in a run in which it has this number."""
        wanted = np.zeros(self.generator.num_classes, dtype=np.int64)
        wanted[self.columns] = self.plan.n[row]
        return plan_addresses(row, wanted)


def source_for(
    plan: Allocation,
    generator: AnyGenerator,
    dataset: str | None = None,
    data_root: PathLike | None = None,
    shape: Shape | None = None,
    device: str = "auto",
) -> PlanSource:
    """The generator, made ready; a spec such as ``gaussian`` needs the dataset that it is fitted to."""
    settings, where = None, "cpu"
    if isinstance(generator, str):
        from fedeas.core.devices import chosen_device  # loads torch

        settings = parse_generator(generator)
        settings.check_plan(plan.n)
        where = str(chosen_device(device))
    context = None  # what is known of the images: from the dataset, the weights, or the shape alone
    if dataset is not None:
        data = load_dataset(dataset, data_root)
        context = GeneratorContext(data.name, data.images, data.labels, data.classes, device=where)
    elif settings is None or not settings.needs_data():
        form = settings.known_form() if settings is not None else None
        if form is None and shape is not None:
            form = plan.class_names, checked_shape(shape)
        if form is not None:
            context = GeneratorContext.without_images("the plan", *form, protocol="paper", device=where)

    def known() -> GeneratorContext:
        if context is None:
            name = generator if isinstance(generator, str) else getattr(generator, "__name__", "the function")
            raise InputError(
                f"generator {name} needs to know the images; give a dataset (--dataset folder:DIR, or in Python "
                "dataset='folder:DIR'), or for a function of your own a shape (--shape 3,32,32, or shape=(3, 32, 32))"
            )
        return context

    ready = generator_from(generator, known)
    spec = generator if isinstance(generator, str) else described(ready)
    classes = plan.classes or () if context is None else context.classes
    if context is None and len(classes) != ready.num_classes:
        classes = tuple(map(str, range(ready.num_classes)))
    return PlanSource(plan, ready, classes, _matched(plan, classes), spec, dataset)


def _matched(plan: Allocation, classes: tuple[str, ...]) -> IntArray:
    """The generator's label of each class of the plan: by name, or by position if one side has only numbers."""
    names = plan.classes
    if names is not None and {*names} <= {*classes}:
        return np.array([classes.index(name) for name in names])
    numbered = names is None or _only_numbers(names) or _only_numbers(classes)
    if numbered and plan.n.shape[1] == len(classes):
        return np.arange(len(classes))
    missing = next((name for name in names or () if name not in classes), None)
    shown = f"; class {missing!r} of the plan is none of {first_of(classes)}" if missing else ""
    raise InputError(
        f"the plan has {plan.n.shape[1]} classes, the generator {len(classes)}{shown}; plan with its classes"
    )


def _only_numbers(names: tuple[str, ...]) -> bool:
    return names == tuple(map(str, range(len(names))))
