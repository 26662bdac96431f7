"""A membership attack: how well can one tell from a diffusion model's weights which images it was trained on?

A model denoises images that it was trained on better than others. The score of an image is minus the log of its loss at
fixed noise levels. To allow for hard images, losses are divided by those of reference weights, if there are some, and
the mean of images of the same class that were not trained on is subtracted. Other attacks may succeed more often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.stats import binomtest, norm, rankdata

from fedeas.core.arrays import FloatArray, IntArray, stream
from fedeas.core.errors import InputError, log
from fedeas.core.provenance import TEST, Answer, DatasetParts
from fedeas.generators.base import Generator, GeneratorWrapper, Images
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.updates import image_losses
from fedeas.generators.diffusion.weights import Weights

ONE_IN = 1000  # the attack may take one in this number of other images for a member
FEW = 50  # the fewest images of a client for which there are figures
ERROR = 0.05  # how often an interval may miss
NOBODY = -1
FORMS = {"auc": ".3f", "found": ".2%"}
Labelled = tuple[Images, IntArray]
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Images that were trained on, and others; `owners` are the clients of the first, and `NOBODY` for the others."""

    images: Images
    labels: IntArray
    owners: IntArray
    clients: tuple[str, ...] = ()

    @staticmethod
    def drawn(
        trained: Labelled, others: Labelled, count: int, parts: Sequence[IntArray] = (), clients: Iterable[object] = ()
    ) -> Candidates:
        """About `count` images of each kind, always the same ones; classes with fewer than two others are left out.

        `parts` are the clients' images. Each client gives as many as the others, and at least `FEW` if it has them.
        """
        parts = parts or [np.arange(len(trained[1]))]
        each = max(FEW, -(-count // len(parts)))
        chosen = [np.sort(stream("members", client).permutation(part)[:each]) for client, part in enumerate(parts)]
        own, unseen = np.concatenate(chosen), np.sort(stream("others").permutation(len(others[1]))[:count])
        labels = np.concatenate([trained[1][own], others[1][unseen]]).astype(np.int64)
        owners = np.repeat([*range(len(parts)), NOBODY], [*map(len, chosen), len(unseen)])
        kept = np.isin(labels, np.flatnonzero(np.bincount(others[1][unseen]) > 1))
        images = np.concatenate([trained[0][own], others[0][unseen]])
        return Candidates(images[kept], labels[kept], owners[kept], tuple(map(str, clients)))


@dataclass(frozen=True)
class Membership:
    """How well scores tell images that were trained on from others."""

    members: int
    others: int
    auc: float  # how often the image that was trained on has the higher score of two
    auc_interval: Interval  # DeLong's
    found: float | None = None  # share of members found; None for fewer than `ONE_IN` others
    found_interval: Interval | None = None  # Clopper and Pearson's, given the threshold

    @staticmethod
    def of(members: FloatArray, others: FloatArray, error: float = ERROR) -> Membership:
        """Compare the scores of two images or more of each kind; each interval misses with this probability."""
        ranks = rankdata(np.concatenate([members, others]))
        above = (ranks[: len(members)] - rankdata(members)) / len(others)  # share of others below each member
        below = 1 - (ranks[len(members) :] - rankdata(others)) / len(members)
        auc = float(above.mean())
        width = norm.ppf(1 - error / 2) * np.sqrt(above.var(ddof=1) / len(members) + below.var(ddof=1) / len(others))
        about = len(members), len(others), auc, (max(0.0, float(auc - width)), min(1.0, float(auc + width)))
        if len(others) < ONE_IN:
            return Membership(*about)
        hits = int((members > np.sort(others)[-1 - len(others) // ONE_IN]).sum())
        low, high = binomtest(hits, len(members)).proportion_ci(1 - error, "exact")
        return Membership(*about, hits / len(members), (float(low), float(high)))

    def shown(self, name: str) -> str:
        """The figure of this name with its interval."""
        value, interval = getattr(self, name), getattr(self, f"{name}_interval")
        if value is None:
            return f"too few images: {self.others:,} of {ONE_IN:,}"
        return "{0:{form}} ({1:{form}} to {2:{form}})".format(value, *interval, form=FORMS[name])


@dataclass(frozen=True)
class MembershipReport:
    """The success of an attack on all images, and on those of each client that has at least `FEW`."""

    overall: Membership
    clients: Mapping[str, Membership]  # all their intervals hold together, so that of the worst client is not too short
    small_clients: int

    def rows(self) -> list[tuple[str, str, str]]:
        """Measure, its value, and its value for guesses."""
        rows = []
        for name, head, chance in (
            ("auc", "membership attack: AUC", 0.5),
            ("found", f"members found at {1 / ONE_IN:.1%} false alarms", 1 / ONE_IN),
        ):
            rows.append((head, self.overall.shown(name), f"{chance:{FORMS[name]}}"))
            known = {client: value for client, own in self.clients.items() if (value := getattr(own, name)) is not None}
            if known:
                worst = max(known, key=lambda client: known[client])
                rows.append((f"{name}, median client", f"{median(known.values()):{FORMS[name]}}", ""))
                rows.append((f"{name}, worst client", f"{self.clients[worst].shown(name)}: {worst}", ""))
        left_out = (f"clients with under {FEW} images, left out", str(self.small_clients), "")
        return [*rows, left_out] if self.small_clients else rows


def attack(
    generator: Generator, candidates: Candidates, dataset: str, reference: Weights | None = None
) -> MembershipReport | None:
    """Attack the weights of a diffusion model with images of this dataset; None for other kinds of generators."""
    while isinstance(generator, GeneratorWrapper):
        generator = generator.generator
    if not isinstance(generator, DiffusionGenerator):
        return None
    data, seen = DatasetParts(dataset), Answer.SEEN
    if reference and (reference.shape != generator.shape or reference.seen.answer(data, ("train",)) is seen):
        raise InputError(f"a reference must not have seen {dataset}, and make images of its shape: {reference.seen}")
    if not candidates.clients and generator.weights.seen.answer(data, TEST) is seen:
        log.warning("no membership attack, as the weights have seen the test images: %s", generator.description)
        return None
    owners, clients = candidates.owners, enumerate(candidates.clients)
    if min((owners != NOBODY).sum(), (owners == NOBODY).sum()) < 2:
        raise InputError("a membership attack needs two training images and two test images of a class, or more")
    found = scores(generator, candidates, reference)
    others = found[owners == NOBODY]
    large = {name: own for client, name in clients if len(own := found[owners == client]) >= FEW}
    figures = {name: Membership.of(own, others, ERROR / len(large)) for name, own in large.items()}
    overall = Membership.of(found[owners != NOBODY], others)
    return MembershipReport(overall, figures, len(candidates.clients) - len(large))


def scores(model: DiffusionGenerator, candidates: Candidates, reference: Weights | None = None) -> FloatArray:
    """A score for each candidate; it depends on that image and on those that were not trained on."""
    labels, unseen = candidates.labels, candidates.owners == NOBODY
    losses = np.log(image_losses(model.weights, candidates.images, labels, model.device, model.batch_size))
    if reference is not None:  # a class that it has not by name is "no class"
        rows = {name: row for row, name in enumerate(reference.class_names)}
        classes = np.array([rows.get(name, reference.num_classes) for name in model.weights.class_names])[labels]
        losses -= np.log(image_losses(reference, candidates.images, classes, model.device, model.batch_size))
    for label in np.unique(labels):
        own = labels == label
        count = (own & unseen).sum()
        losses[:, own] -= losses[:, own & unseen].mean(axis=1, keepdims=True)
        losses[:, own & unseen] *= count / (count - 1)  # the mean of the others, without the image itself
    return np.asarray(-(losses / losses[:, unseen].std(axis=1, keepdims=True)).mean(axis=0))
