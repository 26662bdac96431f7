"""The config of a run, and the fingerprint of what it means.

All spellings of a run have one fingerprint. Keys that do not change the result (where data are, which device computes)
are left out of it. When a run starts, it writes digests of its data, weights and code into the section ``content``
(`fedeas.federation.parts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any

from pydantic import PrivateAttr, ValidationInfo, field_validator, model_validator

from fedeas.config.generators import GENERATORS, Python, read_generator, without_places
from fedeas.config.hyperparameters import HYPERPARAMETERS, SCAFFOLD, parse_hyperparameters
from fedeas.config.sections import (
    ContentConfig,
    DataConfig,
    EngineConfig,
    ModelConfig,
    PartitionConfig,
    RoundsConfig,
    Section,
    Seed,
    TrainConfig,
)
from fedeas.core.arrays import json_digest
from fedeas.core.errors import FedEASError
from fedeas.core.spec import PREFIX, canonical_spec
from fedeas.data.names import is_place
from fedeas.planning.policies import policy_spec

RULES = 2
"""Part of every fingerprint. Raise it when the same config gives other numbers, so that old results are not reused."""

NO_GENERATION = "no-generation"
LABEL_RULE = "use at most 100 of the letters a-z and A-Z, digits, '.', '_' and '-', with a letter or digit first"
OWN = "own"
"""The partition scheme of clients that bring their own data."""


class RunConfig(Section):
    """Everything that defines a run; policy, generator and algorithm are kept in their one canonical spelling."""

    label: str = "run"
    seed: Seed = 0
    policy: str = "no-generation"
    generator: str = "gaussian"
    algorithm: str = "fedavg"
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    rounds: RoundsConfig = RoundsConfig()
    engine: EngineConfig = EngineConfig()
    content: ContentConfig = ContentConfig()
    _removed: dict[tuple[str, str], object] = PrivateAttr(default_factory=dict)

    @field_validator("label")
    @classmethod
    def _can_name_a_folder(cls, label: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", label):
            raise ValueError(f"label: {label[:80]!r} cannot name a folder; {LABEL_RULE}")
        return label

    @field_validator("policy", "generator", "algorithm")
    @classmethod
    def _in_one_spelling(cls, text: str, info: ValidationInfo) -> str:
        kind = str(info.field_name)
        return _spelling(kind, text) if info.context and kind == "policy" else _canonical(kind, text)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> RunConfig:
        if (self.data.protocol == "paper") != (self.partition.scheme == "paper"):
            raise ValueError("data.protocol 'paper' and partition.scheme 'paper' go together; set both or neither")
        if PREFIX not in self.algorithm and isinstance(own := parse_hyperparameters(self.algorithm), SCAFFOLD):
            own.check_momentum(self.train.momentum)
        if self.data.held_out and self.data.protocol != "clean":
            raise ValueError("data.held_out needs data.protocol 'clean', as 'paper' gives all images to clients")
        if self.policy.startswith("pool(") and not self.generator.startswith("shared("):
            shared = f"generator=shared(of={self.generator})"
            raise ValueError(f"policy pool counts images that all clients share; set {shared}")
        return self

    @property
    def is_old(self) -> bool:
        """Whether version 0.1 made the run: it can be shown, but not resumed."""
        return bool(self._removed)

    @property
    def participants(self) -> int:
        """Clients of a round, at least one."""
        return max(1, round(self.rounds.participation * self.partition.clients))

    @property
    def generates(self) -> bool:
        """Whether the policy can allocate any images."""
        return _spelling("policy", self.policy) != NO_GENERATION

    @property
    def drawn_partition(self) -> PartitionConfig:
        """The partition with the seed that this run uses for it."""
        seed = self.partition.seed + (self.seed if self.partition.redraw else 0)
        return self.partition.model_copy(update={"seed": seed, "redraw": False})

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines the result, in one spelling: equal for two configs of the same run."""
        content, meaning = self.content, self.model_dump(exclude={"label"})
        scheme = meaning["partition"]["scheme"] = self.partition.chosen(has_clients=False)
        meaning["rounds"]["participation"] = self.participants
        meaning["model"]["norm"] = self.model.usual_norm
        for kind in ("policy", "generator", "algorithm"):
            meaning[kind] = _spelling(kind, meaning[kind])
        out = {("engine", name) for name in EngineConfig.model_fields if name != "precision"} | {("data", "root")}
        out |= {("partition", name) for fields in SPLIT_FIELDS.values() for name in fields}
        out -= {("partition", name) for name in SPLIT_FIELDS[scheme]}
        out |= {place for place, value in ADDED_LATER.items() if meaning[place[0]][place[1]] == value}
        out |= {("train", "epochs")} if self.train.steps else set()
        # Names and paths of content whose digest is known.
        out |= {("model", "weights")} if content.weights else set()
        out |= {("data", "dataset")} if content.data and is_place(self.data.dataset) else set()
        if not self.generates:
            del meaning["generator"]
            out.add(("content", "generator"))
        elif content.generator:
            meaning["generator"] = without_places(self.generator)
        if scheme in UNSEEDED:
            out.add(("partition", "seed"))
            if content.partition:  # one split, wherever it comes from
                meaning["partition"]["scheme"] = "given"
                out.add(("partition", "file"))
        for section, name in out:
            del meaning[section][name]
        for (section, name), value in self._removed.items():
            meaning[section] |= {name: value} if value != REMOVED[section, name] else {}
        return json_digest([RULES, meaning], sort_keys=True)

    @property
    def method(self) -> str:
        """The fingerprint without the seed and what is drawn with it: the same for all seeds of a method."""
        redrawn = {"partition": ""} if self.partition.redraw else {}
        return self.model_copy(update={"seed": 0, "content": self.content.model_copy(update=redrawn)}).fingerprint

    @property
    def unpinned(self) -> RunConfig:
        """The same config without digests. Tables use it to look runs up, because they do not load data."""
        return self.model_copy(update={"content": ContentConfig()})

    @property
    def flat(self) -> dict[str, Any]:
        """All values by their keys on the command line, such as ``train.lr``."""
        content = self.model_dump(mode="json")
        sections = {name: content.pop(name) for name in list(content) if isinstance(content[name], dict)}
        return content | {f"{name}.{key}": value for name, part in sections.items() for key, value in part.items()}

    @property
    def directory(self) -> str:
        """The name of the run's folder."""
        return f"{self.label}-{self.fingerprint[:8]}"


SPLIT_FIELDS = {
    "dirichlet": ("alpha", "min_size", "cap"),
    "iid": (),
    "shards": ("per_client",),
    "natural": (),
    "file": (),
    "own": (),
    "paper": ("alpha",),
}
"""Which fields each scheme reads, besides clients and seed."""

UNSEEDED = ("natural", "file", OWN)
"""Schemes that draw nothing."""

ADDED_LATER: dict[tuple[str, str], object] = {
    ("train", "steps"): 0,
    ("train", "loss"): "cross-entropy",
    ("train", "sampling"): "shuffled",
    ("partition", "redraw"): False,
    ("partition", "file"): "",
    ("data", "held_out"): 0,
    ("content", "policy"): "",
    ("content", "algorithm"): "",
    ("content", "model"): "",
}
"""Newer fields with the value that equals the old behaviour. At that value they are left out of the hash, so that old
results keep their names."""

REMOVED: dict[tuple[str, str], object] = {("train", "server_epochs"): 0}
"""Fields of version 0.1 that are gone, with the value at which they had no effect."""

_SPELLING: dict[str, Callable[[str], str]] = {
    "policy": policy_spec,
    "generator": lambda text: read_generator(text, GENERATORS, Python).spec,
    "algorithm": lambda text: canonical_spec(text, HYPERPARAMETERS, "algorithm"),
}


@lru_cache(maxsize=1024)
def _canonical(kind: str, text: str) -> str:
    """The canonical spelling of a policy, a generator or an algorithm; an error if it is unknown.

    >>> _canonical("policy", "FedEAS( beta=12.0, gamma=0.5 )")
    'fedeas(beta=12)'
    """
    return _SPELLING[kind](text)


def _spelling(kind: str, text: str) -> str:
    """The canonical spelling; the text itself if it names a part that only an earlier version had."""
    try:
        return _canonical(kind, text)
    except FedEASError:
        return text


def recorded_config(content: Mapping[str, Any]) -> RunConfig:
    """The config of a run of this version or of version 0.1; it raises a `ValueError` if it is neither.

    Settings that this version does not have remain part of the fingerprint.

    >>> recorded_config({"train": {"server_epochs": 2}}).is_old
    True
    """
    known: dict[Any, Any] = deepcopy(dict(content))
    old = {place: known[place[0]].pop(place[1]) for place in REMOVED if place[1] in known.get(place[0], {})}
    config = RunConfig.model_validate(known, context=old)  # its policy and its loss may be gone
    config._removed.update(old)
    return config
