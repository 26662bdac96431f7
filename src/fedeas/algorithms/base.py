"""The parts of algorithms: jobs, replies, and functions over named tensors, the same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn

from fedeas.config.sections import TrainConfig
from fedeas.core.arrays import IntArray
from fedeas.core.devices import copy_all
from fedeas.core.errors import InputError
from fedeas.data.client import ClientData

# Flat keys "group/name". One type for server state, client state and messages, so checkpoint and wire are written once.
Arrays = dict[str, Tensor]

MODEL = "model/"


@dataclass(frozen=True)
class Fleet:
    """The server's knowledge at the start: the clients' sizes N_k, not their label counts, and the run's seed."""

    sizes: IntArray
    num_classes: int
    seed: int = 0


@dataclass(frozen=True)
class ClientJob:
    """All that a client needs for its part of a round. The model is a workspace; its weights are in the broadcast.

    An engine may set `trainer` to replace the plain training loop.
    """

    client: int
    round: int
    seed: int
    total_rounds: int
    model: nn.Module
    data: ClientData
    broadcast: Arrays
    state: Arrays
    train: TrainConfig
    precision: str = "fp32"
    trainer: Callable[[ClientJob, Any], Any] | None = None

    @property
    def samples_seen(self) -> int:
        """Number of images in all batches; an image counts each time it is seen."""
        return sum(batch_sizes(len(self.data), self.train))

    @property
    def steps(self) -> int:
        """Number of batches."""
        return len(batch_sizes(len(self.data), self.train))


def batch_sizes(size: int, train: TrainConfig) -> list[int]:
    """Sizes of the batches that a client with `size` samples trains on in a round.

    A last batch of one image is left out of its epoch, because batch norm cannot train on a single image; each epoch
    leaves out a different image. A client with one image sees it twice in one batch. With ``train.steps`` every batch
    is full.

    >>> batch_sizes(65, TrainConfig(batch_size=32, epochs=1)), batch_sizes(66, TrainConfig(batch_size=32, epochs=1))
    ([32, 32], [32, 32, 2])
    """
    if train.steps:
        return [train.batch_size] * train.steps
    whole, rest = divmod(size, train.batch_size)
    if size == 1 < train.batch_size:
        rest = 2
    return ([train.batch_size] * whole + [rest] * (rest > 1)) * train.epochs


@dataclass(frozen=True)
class Reply:
    """A client's reply to the server. Its weight is N_k: real samples only, never the synthetic ones.

    Metrics are numbers, or objects that ``float`` turns into numbers.
    """

    client: int
    weight: int
    arrays: Mapping[str, Tensor]
    metrics: Mapping[str, SupportsFloat] = field(default_factory=dict)


@torch.no_grad()
def model_arrays(model: nn.Module) -> Arrays:
    """A copy of a model's parameters and buffers, independent of their memory layout."""
    own = as_group(model.state_dict(), MODEL)
    copies = {key: torch.empty_like(tensor, memory_format=torch.contiguous_format) for key, tensor in own.items()}
    copy_all(copies.values(), own.values())
    return copies


@torch.no_grad()
def load_model(model: nn.Module, arrays: Arrays) -> None:
    """Put parameters and buffers into a model."""
    own = as_group(model.state_dict(), MODEL)
    _check_names(arrays, own, "the server's state or its broadcast", "both must have all tensors of the model")
    copy_all(own.values(), [arrays[key] for key in own])


def _check_names(arrays: Mapping[str, Tensor], keys: Iterable[str], whose: str, remedy: str) -> None:
    """Refuse arrays that lack one of the keys, as those of a user's own algorithm may."""
    if missing := [key for key in keys if key not in arrays]:
        raise InputError(f"{whose} lacks {missing[0]}; {remedy}")


def features_of(model: Any, images: Tensor) -> Tensor:
    """The features that the model passes to its head."""
    features: Tensor = model.features(images)
    return features


def head_of(model: Any) -> nn.Linear:
    """The model's last layer."""
    head: nn.Linear = model.head
    return head


def group(arrays: Mapping[str, Tensor], prefix: str) -> Arrays:
    """The arrays whose key begins with the prefix."""
    return {key: tensor for key, tensor in arrays.items() if key.startswith(prefix)}


def members(arrays: Mapping[str, Tensor], prefix: str) -> Arrays:
    """The arrays of a group, by their names without the prefix."""
    return {key.removeprefix(prefix): tensor for key, tensor in group(arrays, prefix).items()}


def as_group(arrays: Mapping[str, Tensor], prefix: str) -> Arrays:
    """The same arrays as the members of a group."""
    return {prefix + name: tensor for name, tensor in arrays.items()}


def weighted_mean(replies: Sequence[Reply], keys: Iterable[str]) -> Arrays:
    """sum_k w_k x_k with w_k = N_k / sum_{j in S} N_j, for floating tensors, in the order of the replies.

    Integer tensors, such as BatchNorm's step counter, are not averaged: the largest value is kept.
    """
    total, keys = sum(reply.weight for reply in replies), list(keys)
    for reply in replies:
        _check_names(reply.arrays, keys, f"the reply of client {reply.client}", "clients must send what is averaged")
    floating = [key for key in keys if replies[0].arrays[key].is_floating_point()]
    first = [replies[0].arrays[key] for key in floating]
    mean = list(torch._foreach_mul(first, replies[0].weight / total)) if floating else []
    for reply in replies[1:] if floating else ():
        torch._foreach_add_(mean, [reply.arrays[key] for key in floating], alpha=reply.weight / total)
    means = dict(zip(floating, mean, strict=True))
    whole = {key: torch.stack([r.arrays[key] for r in replies]).amax(dim=0) for key in keys if key not in means}
    return {**means, **whole}
