"""Names of datasets: their forms, without opening anything."""

from __future__ import annotations

import re

from fedeas.core.errors import InputError
from fedeas.core.spec import PREFIX, installed, own_code_named, read_call

HUB_REPOSITORIES = {
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "fashion-mnist": "zalando-datasets/fashion_mnist",
}
NAMES = ("digits", *HUB_REPOSITORIES, "hub:owner/name", "folder:DIR", "npz:FILE", "parquet:DIR", "python:module:name")
PLACES = ("folder", "npz", "parquet")

_REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def checked_name(name: str) -> str:
    """The name, or an error if it is not a valid name of a dataset; nothing is opened.

    >>> checked_name("hub:owner/name")
    'hub:owner/name'
    """
    kind, _, place = name.partition(":")
    known = name == "digits" or name in HUB_REPOSITORIES or (kind in PLACES and place)
    if known or (kind == "hub" and _REPOSITORY.fullmatch(place)):
        return name
    if name.startswith(PREFIX) or own_code_named(name.partition("(")[0], NAMES, "dataset"):
        return read_call(name, NAMES, "dataset").spec
    raise InputError(f"unknown dataset {name!r}; known are {', '.join([*NAMES, *installed('dataset')])}")


def is_place(name: str) -> bool:
    """Whether this names a file, folder or code on this machine, whose images may change."""
    return name.startswith((*(f"{kind}:" for kind in PLACES), PREFIX))
