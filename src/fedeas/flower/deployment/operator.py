"""What an operator does on a SuperLink, here or on another machine: start runs and follow them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedeas.flower.deployment.app import Bundle
from fedeas.flower.deployment.client_keys import nodes_of, read_client_keys
from fedeas.flower.deployment.superlink import Scalar, SuperLink


@dataclass(frozen=True)
class FlowerRunResult:
    """How a run ended: ``finished:completed``, ``finished:failed`` or ``finished:stopped``."""

    run_id: int
    status: str
    details: str

    @property
    def completed(self) -> bool:
        """Whether the run ended without an error."""
        return self.status == "finished:completed"


def run_app(
    superlink: SuperLink, app: str | Path | None, config: Mapping[str, Scalar], show: Callable[[str], None]
) -> FlowerRunResult:
    """Run the app in a folder, by default FedEAS, and wait for its end; `show` gets each line of its log."""
    run_id = superlink.start_run(Bundle.of(app), config)
    superlink.follow(run_id, show)
    return FlowerRunResult(run_id, *superlink.run_status(run_id))


def members(superlink: SuperLink) -> str:
    """The clients' nodes as a setting of a run, from the connection's list of keys; "" without a list."""
    path = superlink.connection.clients
    return "" if path is None else json.dumps(nodes_of(path, read_client_keys(path), superlink))
