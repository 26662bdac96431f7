"""The settings of a node, which only its owner decides: where its data are, and what may leave it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedeas.core.errors import FedEASError, InputError
from fedeas.planning.policies import parse_policy

STATE = "FEDEAS_STATE"
"""Environment variable: folder of the clients' files, unless the node's config has a ``state-dir``."""

TEXTS = ("data", "data-root", "generator", "generator-file", "device")
PRIVACY = {"dp-clip": "clip", "dp-noise": "noise", "dp-delta": "delta", "dp-epsilon": "limit",
           "dp-sums-clip": "sums_clip", "dp-sums-epsilon": "sums_epsilon"}  # fmt: skip
NAMES = ("partition-id", "num-partitions", "state-dir", *TEXTS, "policies", "share-counts", *PRIVACY)

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
    unknown = sorted(set(given) - set(NAMES))
    if unknown:
        raise TellableError(f"its node config has an unknown {unknown[0]}; the settings are {', '.join(NAMES)}")
    number, clients = given.get("partition-id"), given.get("num-partitions")
    if not isinstance(number, int) or isinstance(number, bool):
        raise TellableError("its node config has no client number; set partition-id, counted from 0")
    if isinstance(clients, bool) or not isinstance(clients, int | None):
        raise TellableError("num-partitions in its node config must be a whole number, without quotes")
    share = given.get("share-counts", True)
    if not isinstance(share, bool):
        raise TellableError("share-counts in its node config must be true or false, without quotes")
    if given.get("generator") and given.get("generator-file"):
        raise TellableError("its node config has generator and generator-file; keep one, for its own or for the run's")
    # By default not a cache, which may be emptied: the epsilon that was spent is noted in this folder.
    default = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fedeas"
    state = given.get("state-dir") or os.environ.get(STATE) or default
    try:  # a list such as fedeas(beta=12); no-generation becomes the policies' full descriptions
        named = str(given.get("policies", "")).split(";")
        policies = tuple(parse_policy(each).spec for each in named if each.strip())
    except FedEASError as error:
        raise TellableError(f"policies in its node config: {error}") from None
    privacy = _privacy({name: given[name] for name in PRIVACY if name in given})
    texts = {name.replace("-", "_"): str(given[name]) for name in TEXTS if name in given}
    return number, NodeSettings(
        Path(str(state)), clients, share_counts=share, policies=policies, privacy=privacy, **texts
    )


def _privacy(given: Mapping[str, Scalar]) -> Privacy | None:
    """Read the settings of differential privacy; clip and noise switch it on together."""
    if not given:
        return None
    if not {"dp-clip", "dp-noise"} <= set(given):
        raise TellableError("its node config needs dp-clip and dp-noise for differential privacy; set both or none")
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < float(value) < (1 if name == "dp-delta" else math.inf):
            limits = "between 0 and 1" if name == "dp-delta" else "above 0"
            raise TellableError(f"{name} in its node config must be a number {limits}, without quotes")
    return Privacy(**{PRIVACY[name]: float(value) for name, value in given.items()})
