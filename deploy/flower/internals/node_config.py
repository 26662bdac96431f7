"""A node's config as Flower reads it from the command line."""

from __future__ import annotations

from flwr.common.config import parse_config_args

from fedeas.core.errors import InputError
from fedeas.flower.node_settings import Scalar


def parse_node_config(text: str) -> dict[str, Scalar]:
    """The settings in ``--node-config``: TOML scalars, or the name of a .toml file."""
    try:
        return parse_config_args([text])
    except Exception as error:  # of files, of TOML and of Flower's own command line
        raise InputError(f"--node-config {text}: cannot be read ({error})") from None
