"""The settings of a node, which only its owner decides: where its data are, and what may leave it."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fedeas.core.errors import FedEASError, InputError
from fedeas.planning.policies import parse_policy

STATE = "FEDEAS_STATE"
"""Environment variable: folder of the clients' files, unless the node's config has a ``state-dir``."""

TEXTS = ("data", "data-root", "generator", "generator-file", "device")
PRIVACY = {"dp-clip": "clip", "dp-noise": "noise", "dp-delta": "delta", "dp-epsilon": "limit",
           "dp-sums-clip": "sums_clip", "dp-sums-epsilon": "sums_epsilon"}  # fmt: skip
KINDS: dict[str, type] = {
    "partition-id": int, "num-partitions": int, "state-dir": str, **dict.fromkeys(TEXTS, str), "policies": str,
    "share-counts": bool, **dict.fromkeys(PRIVACY, float),
}  # fmt: skip
WORDS = {int: "a whole number, without quotes", bool: "true or false, without quotes", str: "text, in quotes"}

Scalar = str | int | float | bool


class TellableError(InputError):
    """A reason not to take part that may be told to the server, because it says nothing about the client's data."""


@dataclass(frozen=True)
class Privacy:
    """How updates are made private.

    Args:
        clip: the largest norm of an update.
        noise: deviation of the noise, in units of `clip`.
        delta: the probability with which epsilon may not hold.
        limit: the epsilon beyond which the node answers no more.
        sums_clip, sums_epsilon: largest norm of an image's scores in sums for a Gaussian generator, and their epsilon.
    """

    clip: float
    noise: float
    delta: float = 1e-5
    limit: float = math.inf
    sums_clip: float = 0.0
    sums_epsilon: float = 0.0


@dataclass(frozen=True)
class NodeSettings:
    """Settings that only the owner of a node decides.

    Args:
        state: folder for files that must last: plans, client states, synthetic images.
        clients: the number of clients that the owner expects; None for any.
        data: the client's own dataset; without one, its part of the run's dataset.
        data_root: folder with datasets on this node.
        generator: the client's own generator; without one, the run's.
        generator_file: where the weights of the run's generator are on this node.
        device: where the node computes.
        share_counts: whether label counts may leave this node if the run needs them.
        policies: the only policies that the node computes a plan for; without any, it computes one for every policy.
        privacy: how updates are made private; None to send them as they are.
    """

    state: Path
    clients: int | None = None
    data: str = ""
    data_root: str | None = None
    generator: str = ""
    generator_file: str = ""
    device: str = "auto"
    share_counts: bool = True
    policies: tuple[str, ...] = ()
    privacy: Privacy | None = None


def read_node_config(given: Mapping[str, Scalar]) -> tuple[int, NodeSettings]:
    """The client's number and the settings in a node's config; what cannot be understood is refused, not ignored."""
    place, number = "its node config", given.get("partition-id")
    if unknown := sorted(set(given) - set(KINDS)):
        raise TellableError(f"{place} has an unknown {unknown[0]}; the settings are {', '.join(KINDS)}")
    if type(number) is not int:
        raise TellableError(f"{place} has no client number; set partition-id, counted from 0")
    private = {PRIVACY[name]: value for name, value in given.items() if name in PRIVACY}
    if private and not {"clip", "noise"} <= set(private):
        raise TellableError(f"{place} needs dp-clip and dp-noise for differential privacy; set both or none")
    for name, value in given.items():
        kind, most = KINDS[name], 1 if name == "dp-delta" else math.inf
        if kind is float and (type(value) not in (int, float) or not 0 < float(value) < most):
            limits = "above 0" if most > 1 else "between 0 and 1"
            raise TellableError(f"{name} in {place} must be a number {limits}, without quotes")
        if kind is not float and type(value) is not kind:
            raise TellableError(f"{name} in {place} must be {WORDS[kind]}")
    if given.get("generator") and given.get("generator-file"):
        raise TellableError(f"{place} has generator and generator-file; keep one, for its own or for the run's")
    try:  # a list such as fedeas(beta=12); no-generation becomes the policies' full descriptions
        named = str(given.get("policies", "")).split(";")
        policies = tuple(parse_policy(each).spec for each in named if each.strip())
    except FedEASError as error:
        raise TellableError(f"policies in {place}: {error}") from None
    # By default not a cache, which may be emptied: the epsilon that was spent is noted in this folder.
    default = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fedeas"
    own: dict[str, Any] = {name.replace("-", "_"): given[name] for name in (*TEXTS, "share-counts") if name in given}
    return number, NodeSettings(
        Path(str(given.get("state-dir") or os.environ.get(STATE) or default)),
        cast("int | None", given.get("num-partitions")),
        policies=policies,
        privacy=Privacy(**{name: float(value) for name, value in private.items()}) if private else None,
        **own,
    )
