"""FedMix: Mixup with averages of other clients' images, to first order in the mixing ratio."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedeas.algorithms.base import MODEL, Arrays, ClientJob, Fleet, Reply, group, model_arrays
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import Batch, Objective
from fedeas.config import hyperparameters
from fedeas.core.arrays import stream

IMAGES, LABELS, PARTNER, CLASSES = "mash/images", "mash/labels", "partner", "fleet/classes"


class FedMix(hyperparameters.FedMix, FedAvg):
    """Mean-augmented federated learning (Yoon et al., ICLR 2021, Eq. 5).

    At set-up each client sends averages of `mash` of its real images and of their labels (of all of them if `mash` is
    0), and every client gets the averages of all. With x̄, ȳ one of these, drawn for each sample, a client minimises

        (1 - lam) l(f((1 - lam) x), y) + lam l(f((1 - lam) x), ȳ) + lam dl/dx · x̄,

    the derivative taken at ((1 - lam) x, y): the first-order expansion of Mixup's loss, which needs only the averages
    of other clients' images. The derivative keeps its graph, so that the term trains the parameters.
    """

    needs_setup = True
    shares_counts = True
    differentiates_twice = True

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """The initial weights and the number of classes."""
        return {**model_arrays(model), CLASSES: torch.tensor(fleet.num_classes)}

    def setup_client(self, job: ClientJob) -> Reply | None:
        """Averages of the client's images, with pixels from 0 to 255, and of their labels."""
        size = self.mash if 0 < self.mash <= len(job.data) else len(job.data)
        whole = len(job.data) // size * size  # an average of fewer images would reveal more of each
        images = job.data.images[:whole].float()
        labels = functional.one_hot(job.data.labels[:whole], int(job.broadcast[CLASSES])).float()
        averages = {IMAGES: _averages(images, size), LABELS: _averages(labels, size)}
        return Reply(job.client, job.data.num_real, averages)

    def setup_server(self, server: Arrays, replies: Sequence[Reply]) -> Arrays:
        """The averages of all clients, in the order of client ids."""
        return {**server, **{key: torch.cat([reply.arrays[key] for reply in replies]) for key in (IMAGES, LABELS)}}

    def broadcast(self, server: Arrays, round: int) -> Arrays:
        """The global model and the averages."""
        return {**group(server, MODEL), IMAGES: server[IMAGES], LABELS: server[LABELS]}

    def objective(self, job: ClientJob) -> Objective:
        """The expanded Mixup loss; the draw of averages depends on (seed, round, client) alone."""
        averages = {IMAGES: job.data.normalise(job.broadcast[IMAGES]), LABELS: job.broadcast[LABELS]}
        rng = stream("fedmix-partners", job.seed, job.round, job.client)
        partners = torch.from_numpy(rng.integers(len(averages[LABELS]), size=job.samples_seen))
        return Objective(self.loss, averages, per_sample={PARTNER: partners.to(job.data.labels.device)})

    def loss(self, model: nn.Module, batch: Batch, shared: Arrays) -> Tensor:
        """Eq. (5) for one batch."""
        means, soft_labels = (shared[key][batch.drawn[PARTNER]] for key in (IMAGES, LABELS))
        derive = getattr(model, "outputs_and_derivatives", None)
        if derive is not None:  # the model gives both in one pass, so that no second derivatives are taken
            outputs, derivatives = derive((1 - self.lam) * batch.images, means)
            return expanded_loss(batch.adjusted(outputs), derivatives, batch.labels, soft_labels, self.lam)
        return expanded_mixup(
            lambda images: batch.adjusted(model(images)), batch.images, batch.labels, means, soft_labels, self.lam
        )


def expanded_mixup(
    logits_of: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    means: Tensor,
    soft_labels: Tensor,
    lam: float,
) -> Tensor:
    """Eq. (5) for a batch whose i-th sample is mixed with the i-th average; for any model, by two backward passes."""
    shrunk = ((1 - lam) * images).requires_grad_()
    logits = logits_of(shrunk)
    own = functional.cross_entropy(logits, labels)
    theirs = functional.cross_entropy(logits, soft_labels)
    (slope,) = torch.autograd.grad(own, shrunk, create_graph=True)
    return (1 - lam) * own + lam * theirs + lam * (slope * means).sum()


def expanded_loss(logits: Tensor, derivatives: Tensor, labels: Tensor, soft_labels: Tensor, lam: float) -> Tensor:
    """Eq. (5) for given logits and their derivatives along the averages.

    The derivative of a sample's cross-entropy is (softmax(logits) - one-hot label) times that of its logits.
    """
    own = functional.cross_entropy(logits, labels)
    theirs = functional.cross_entropy(logits, soft_labels)
    away = logits.softmax(dim=1) - functional.one_hot(labels, logits.shape[1])
    return (1 - lam) * own + lam * theirs + lam * (away * derivatives).sum(dim=1).mean()


def _averages(values: Tensor, size: int) -> Tensor:
    return values.reshape(-1, size, *values.shape[1:]).mean(dim=1)
