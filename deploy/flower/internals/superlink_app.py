"""Flower's SuperLink as a web app that asks for the operator's key."""

from __future__ import annotations

import hmac
import sys
from collections.abc import Sequence
from typing import Any

from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
from flwr.superlink.main import create_app

from deploy.flower.doors import WebApp

Metadata = Sequence[tuple[str, str | bytes]]


class OperatorOnly(NoOpControlAuthnPlugin):
    """Lets requests of the operator pass: those that carry the operator's key."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        """Compare the given key with the operator's, in a time that tells nothing about it."""
        given = [value.encode() if isinstance(value, str) else value for _, value in metadata]
        if len(given) != 1 or not hmac.compare_digest(given[0], self.key.encode()):
            return False, None
        return super().validate_tokens_in_metadata(metadata)

    def refresh_tokens(self, metadata: Metadata) -> tuple[Metadata | None, AccountInfo | None]:
        """Nothing to refresh: the key is the operator's file."""
        return None, None


def superlink_app(arguments: Sequence[str], key: str) -> WebApp:
    """The SuperLink that flower-superlink would start with these arguments, with an operator's key."""
    sys.argv = ["flower-superlink", *arguments]
    config = _parse_superlink_lifespan_config()
    config.authn_plugin = OperatorOnly(key)
    app: WebApp = create_app(config, SuperLinkLifespan)
    return app


def log_config() -> dict[str, Any]:
    """The log of the web server as Flower writes it."""
    return get_uvicorn_log_config(console_handler.level)
