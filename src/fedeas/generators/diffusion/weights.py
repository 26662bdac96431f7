"""A trained diffusion model in one file: half-precision averaged weights with all that is needed to use them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.core.provenance import Seen, seen_in
from fedeas.core.weight_files import SUFFIX, described, generator_weights, read_tensors, write_tensors
from fedeas.generators.base import Shape, fingerprint_of
from fedeas.generators.diffusion.presets import Network, Preset

FORMAT = "fedeas-diffusion-1"


@dataclass(frozen=True, eq=False)
class Weights:
    """The result of a training: the tensors of the network, float16, and the default sampler."""

    network: Network
    shape: Shape
    class_names: tuple[str, ...]
    tensors: Mapping[str, Tensor] = field(repr=False)
    solver: str = "dpm"
    steps: int = 20
    guidance: float = 1.0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Which data were seen under which protocol, for how long, where."""

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of network, tensors and training data."""
        seen = {key: self.provenance.get(key) for key in ("dataset", "protocol", "data")}
        content = [FORMAT, asdict(self.network), self.shape, self.num_classes, seen]
        return fingerprint_of(content, {name: tensor.numpy() for name, tensor in sorted(self.tensors.items())})

    @property
    def seen(self) -> Seen:
        """The images that they were trained on, including earlier trainings that they started from."""
        return seen_in(self.provenance)

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return all(bool(tensor.isfinite().all()) for tensor in self.tensors.values())

    def build(self) -> nn.Module:
        """The network with these weights, in float32, ready to be evaluated."""
        network = self.network.build(self.shape, self.num_classes)
        network.load_state_dict({name: tensor.float() for name, tensor in self.tensors.items()})
        return network.eval().requires_grad_(False)

    def save(self, path: PathLike) -> None:
        """Write the file, whole or not at all."""
        about = {
            "format": FORMAT,
            "network": asdict(self.network),
            "shape": self.shape,
            "class_names": self.class_names,
            "sampler": {"solver": self.solver, "steps": self.steps, "guidance": self.guidance},
            "provenance": dict(self.provenance),
        }
        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        write_tensors(path, tensors, {"fedeas": json.dumps(about)})

    @staticmethod
    def load(place: PathLike) -> Weights:
        """Read a file, or weights by name, such as those of a dataset that come with the package.

        >>> Weights.load("digits").shape
        (1, 8, 8)
        """
        path = generator_weights(place)
        if path.suffix != SUFFIX:
            raise InputError(f"{path}: generators are {SUFFIX} files; pickled checkpoints are not opened")
        if not path.exists():
            raise InputError(f"{path}: no such file; make it with `fedeas generator train`")
        metadata, tensors = read_tensors(path)
        about = described(metadata)
        if about.get("format") != FORMAT:
            remedy = "make one with `fedeas generator train`"
            raise InputError(f"{path}: not a diffusion generator of this version; {remedy}")
        try:
            channels, height, width = about["shape"]
            sampler = about["sampler"]
            weights = Weights(
                Network.of(about["network"]),
                (int(channels), int(height), int(width)),
                tuple(about["class_names"]),
                tensors,
                sampler["solver"],
                sampler["steps"],
                sampler.get("guidance", 1.0),
                dict(about["provenance"]),
            )
            wanted = weights.network.build(weights.shape, weights.num_classes).state_dict()
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: its description cannot be used ({error})") from None
        fitting = {name: f"torch.float16 {tuple(tensor.shape)}" for name, tensor in wanted.items()}
        found = {name: f"{tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items()}
        for name in sorted(fitting | found):
            if (own := found.get(name, "missing")) != (due := fitting.get(name, "nothing of this name")):
                raise InputError(f"{path}: does not fit its own description: {name} is {own}, the network has {due}")
        return weights


def trained_weights(
    tensors: Mapping[str, Tensor], preset: Preset, shape: Shape, class_names: tuple[str, ...], start: Weights | None,
    updates: int, images: int, seconds: float, provenance: Mapping[str, Any],
) -> Weights:  # fmt: skip
    """The result of a training: copies of the tensors in half precision, and what they and their start have seen.

    `provenance` has at least the data's digest, and where known the dataset and the protocol.
    """
    before = start.provenance if start is not None else {}
    own = Seen.under(
        provenance.get("protocol"), provenance.get("dataset"), provenance["data"], start.seen if start else None
    )
    seen = {**provenance, "seen": own.record}
    if start is not None and before.get("protocol") != "clean":
        seen["protocol"] = before.get("protocol", "unknown")  # images of earlier trainings stay seen
    seen["updates"], seen["images"] = updates + before.get("updates", 0), images + before.get("images", 0)
    seen["minutes"] = round(seconds / 60 + before.get("minutes", 0), 2)
    sampler = preset.solver, preset.steps, preset.guidance
    return Weights(preset.network, shape, class_names, half(tensors), *sampler, provenance=seen)


def half(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the weights in half precision, as in the file."""
    return {name: tensor.detach().to("cpu", torch.float16).clone() for name, tensor in tensors.items()}
