"""Configs of runs that version 0.1 made: they can be shown, but not resumed."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from fedeas.config.run import REMOVED, RunConfig

SPECS = {("policy",), ("train", "loss")}
"""Fields whose value may name a part of version 0.1 that is gone."""


def recorded_config(content: Mapping[str, Any]) -> RunConfig:
    """The config of a run of this version or of version 0.1; it raises a `ValueError` if it is neither.

    Settings that this version does not have remain part of the fingerprint.

    >>> recorded_config({"train": {"server_epochs": 2}}).is_old
    True
    """
    known: dict[Any, Any] = deepcopy(dict(content))
    old = {place: known[place[0]].pop(place[1]) for place in REMOVED if place[1] in known.get(place[0], {})}
    try:
        config = RunConfig.model_validate(known)
    except ValidationError as error:
        gone = {each["loc"]: each["input"] for each in error.errors()}
        if not old or not gone.keys() <= SPECS or not all(isinstance(text, str) for text in gone.values()):
            raise
        for *section, name in gone:  # the rest must be right
            del (known[section[0]] if section else known)[name]
        config = RunConfig.model_validate(known)
        train = config.train.model_copy(update={"loss": gone.get(("train", "loss"), config.train.loss)})
        config = config.model_copy(update={"policy": gone.get(("policy",), config.policy), "train": train})
    config._removed.update(old)
    return config
