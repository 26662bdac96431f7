"""A membership attack: how well can one tell from a diffusion model's weights which images it was trained on?

A model denoises images that it was trained on better than others. So an image's score is the log of its loss, at fixed
noise levels and with fixed noise, compared with how hard the image is anyway. Two things tell that: its loss under
reference weights that were not trained on it, where these are given, and the losses of other images of its class that
were not trained on. Other attacks may succeed more often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import binomtest, norm, rankdata

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.provenance import Seen
from fedeas.core.streams import stream
from fedeas.generators.base import Generator, GeneratorWrapper, Images
from fedeas.generators.diffusion.losses import image_losses
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.weights import Weights

ONE_IN = 1000
"""Members are looked for with at most one false alarm in so many other images."""

FEW = 50
"""Clients with fewer images than this have no figures of their own."""

ERROR = 0.05
"""How often an interval may miss."""

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Candidates:
    """Images of which some were trained on."""

    images: Images = field(repr=False)
    labels: IntArray = field(repr=False)
    owners: IntArray = field(repr=False)
    """The client of each image, from 0; `NOBODY` if it was not trained on."""
    names: tuple[str, ...] = ()
    """Names of the clients; none if there are no clients."""

    @staticmethod
    def drawn(
        trained: tuple[Images, IntArray], others: tuple[Images, IntArray], count: int,
        parts: Sequence[IntArray] = (), names: Sequence[str] = (),
    ) -> Candidates:  # fmt: skip
        """About `count` images of each kind, with their labels, always the same ones.

        Of the images that were trained on, `parts` are the clients'. Each gives as many as the others, and at least
        `FEW` if it has them. Classes with fewer than two of the other images are left out.
        """
        parts = parts or [np.arange(len(trained[1]))]
        each = max(FEW, -(-count // len(parts)))
        chosen = [np.sort(stream("members", client).permutation(part)[:each]) for client, part in enumerate(parts)]
        unseen = np.sort(stream("others").permutation(len(others[1]))[:count])
        own = np.concatenate(chosen)
        images = np.concatenate([trained[0][own], others[0][unseen]])
        labels = np.concatenate([trained[1][own], others[1][unseen]]).astype(np.int64)
        owners = np.repeat([*range(len(parts)), NOBODY], [*map(len, chosen), len(unseen)])
        kept = np.isin(labels, np.flatnonzero(np.bincount(others[1][unseen]) > 1))
        if min((owners[kept] != NOBODY).sum(), (owners[kept] == NOBODY).sum()) < 2:
            raise InputError("a membership attack needs two training images and two test images of a class, or more")
        return Candidates(images[kept], labels[kept], owners[kept], tuple(names))


@dataclass(frozen=True)
class Membership:
    """How well scores tell images that were trained on from others, with intervals."""

    members: int
    others: int
    auc: float
    """How often one that was trained on has the higher score of two; guessing gives 0.5. DeLong's interval."""
    auc_interval: tuple[float, float]
    found: float | None = None
    """Share of members found with at most one false alarm in `ONE_IN` others; None for fewer others than that.

    The interval is that of Clopper and Pearson, for the threshold that these others give.
    """
    found_interval: tuple[float, float] | None = None

    @staticmethod
    def of(members: FloatArray, others: FloatArray, error: float = ERROR) -> Membership:
        """Compare the scores of two images or more of each kind; the intervals miss with this probability."""
        every = rankdata(np.concatenate([members, others]))
        above = (every[: len(members)] - rankdata(members)) / len(others)  # share of others below each member
        below = 1 - (every[len(members) :] - rankdata(others)) / len(members)
        auc = float(above.mean())
        width = norm.ppf(1 - error / 2) * np.sqrt(above.var(ddof=1) / len(members) + below.var(ddof=1) / len(others))
        about = len(members), len(others), auc, (max(0.0, float(auc - width)), min(1.0, float(auc + width)))
        if len(others) < ONE_IN:
            return Membership(*about)
        hits = int((members > np.sort(others)[-1 - len(others) // ONE_IN]).sum())
        interval = binomtest(hits, len(members)).proportion_ci(1 - error, "exact")
        return Membership(*about, hits / len(members), (float(interval.low), float(interval.high)))


@dataclass(frozen=True)
class MembershipReport:
    """The success of the attack on all images together, and on those of each client."""

    overall: Membership
    clients: Mapping[str, Membership] = field(default_factory=dict)
    """Clients with at least `FEW` images; all their intervals hold at once with 95 %."""
    small_clients: int = 0
    """Clients with fewer images."""
    reference: str | None = None
    """Fingerprint of the reference weights."""

    def as_dict(self) -> dict[str, Any]:
        """The figures by name, ready for JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, its value, and its value for guesses."""
        chances = {"auc": "0.500", "found": f"{1 / ONE_IN:.1%}"}
        heads = {"auc": "membership attack, AUC", "found": f"members found at {1 / ONE_IN:.1%} false alarms"}
        rows = []
        for name, head in heads.items():
            rows.append((head, _shown(self.overall, name), chances[name]))
            known = {client: value for client, own in self.clients.items() if (value := getattr(own, name)) is not None}
            if known:
                worst = max(known, key=lambda client: known[client])
                half = median(known.values())
                rows.append(("- median client", f"{half:.3f}" if name == "auc" else f"{half:.2%}", chances[name]))
                rows.append(("- worst client", f"{_shown(self.clients[worst], name)}: {worst}", ""))
        if self.small_clients:
            rows.append((f"- clients with under {FEW} images, left out", f"{self.small_clients:,}", ""))
        return rows


def _shown(figures: Membership, name: str) -> str:
    value, interval = getattr(figures, name), getattr(figures, f"{name}_interval")
    if value is None:
        return f"too few images: {figures.others:,} of {ONE_IN:,}"
    form = ".3f" if name == "auc" else ".2%"
    return f"{value:{form}} ({interval[0]:{form}} to {interval[1]:{form}})"


def attacked(generator: Generator) -> DiffusionGenerator | None:
    """The diffusion model that makes a generator's images; None for other kinds."""
    while isinstance(generator, GeneratorWrapper):
        generator = generator.generator
    return generator if isinstance(generator, DiffusionGenerator) else None


def reference_weights(place: PathLike, dataset: str) -> Weights:
    """Weights to compare with; refused if they were trained on the training part of the dataset."""
    weights = Weights.load(place)
    seen: Seen | None = weights.seen
    while seen is not None:
        if seen.dataset == dataset and "train" in seen.parts:
            raise InputError(f"reference {place}: trained on {weights.seen}; give weights that have not seen {dataset}")
        seen = seen.start
    return weights


def attack(model: DiffusionGenerator, candidates: Candidates, reference: Weights | None = None) -> MembershipReport:
    """Attack a model's weights; reference weights have not been trained on any of the candidates."""
    if reference is not None and reference.shape != model.shape:
        made, wanted = (" x ".join(map(str, shape)) for shape in (reference.shape, model.shape))
        raise InputError(f"the reference makes images of {made}, and the generator of {wanted}")
    found, owners = scores(model, candidates, reference), candidates.owners
    others, clients = found[owners == NOBODY], range(len(candidates.names))
    large = {candidates.names[client]: own for client in clients if len(own := found[owners == client]) >= FEW}
    figures = {name: Membership.of(own, others, ERROR / len(large)) for name, own in large.items()}
    used = None if reference is None else reference.fingerprint
    return MembershipReport(Membership.of(found[owners != NOBODY], others), figures, len(clients) - len(large), used)


def scores(model: DiffusionGenerator, candidates: Candidates, reference: Weights | None = None) -> FloatArray:
    """A score for each candidate; it depends on that image and on those that were not trained on."""
    labels, about = candidates.labels, (model.device, model.batch_size)
    losses = np.log(image_losses(model.weights, candidates.images, labels, *about))
    if reference is not None:  # classes that it has not by name are "no class"
        rows = {name: row for row, name in enumerate(reference.class_names)}
        known = np.array([rows.get(name, reference.num_classes) for name in model.weights.class_names])
        losses -= np.log(image_losses(reference, candidates.images, known[labels], *about))
    unseen = candidates.owners == NOBODY
    for label in np.unique(labels):
        own = labels == label
        count = (own & unseen).sum()
        losses[:, own] -= losses[:, own & unseen].mean(axis=1, keepdims=True)
        losses[:, own & unseen] *= count / (count - 1)  # the mean of the others, without the image itself
    return np.asarray(-(losses / losses[:, unseen].std(axis=1, keepdims=True)).mean(axis=0))
