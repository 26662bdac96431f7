"""What an operator does on a SuperLink, here or on another machine: start runs and follow them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.flower.app import Bundle
from deploy.flower.client_keys import (
    add_client,
    changing_client_keys,
    listed_keys,
    next_client,
    nodes_of,
    read_client_keys,
)
from deploy.flower.connection import Scalar
from deploy.flower.internals.superlink import RunStatus, SuperLink
from deploy.flower.keys import fingerprint_of, pem_of, public_bytes
from fedeas.core.errors import InputError, RunError

PAUSE = 0.5
"""Seconds between two questions to the SuperLink."""


def run_app(
    superlink: SuperLink, app: str | Path | None, config: Mapping[str, Scalar], show: Callable[[str], None]
) -> RunStatus:
    """Run the app in a folder, by default FedEAS, and wait for its end; `show` gets each line of its log."""
    run_id = superlink.start_run(Bundle.of(app), config)
    try:
        superlink.follow(run_id, show)
    except RunError as error:
        raise RunError(
            f"run {run_id} has started; `fedeas flower status` shows whether it continues ({error})"
        ) from None
    return superlink.run_status(run_id)


def members(superlink: SuperLink) -> str:
    """The clients' nodes as a setting of a run, from the connection's list of keys; "" without a list."""
    path = superlink.connection.clients
    return "" if path is None else json.dumps(nodes_of(path, read_client_keys(path), superlink))


def admit(
    superlink: SuperLink, public_key: Path, client: int | None, confirm: Callable[[int, str], bool]
) -> tuple[int, int]:
    """Register a node's key as a client's; return the client's number and the node's id.

    Without a number, the first one that is free is taken: first come, first served. `confirm` is then asked with the
    number and the key's fingerprint, because nothing else says whose key it is. A key that the SuperLink refuses is not
    listed.
    """
    path, key = clients_file(superlink), public_bytes(public_key)
    text = public_key.read_text()
    number = next_client(listed_keys(path), text) if client is None else client
    if client is None and not confirm(number, fingerprint_of(text)):
        raise InputError(f"{public_key}: not confirmed, and not registered; compare the fingerprint with its owner's")
    with changing_client_keys(path) as keys:
        if client is not None or number == next_client(keys, text):
            add_client(path, keys, number, text)
            return number, superlink.register(key, public_key.stem)
    return admit(superlink, public_key, client, confirm)  # another command took the number during the confirmation


def client_states(superlink: SuperLink) -> dict[int, str]:
    """Each listed client's state at the SuperLink, such as online or offline."""
    path, nodes = superlink.connection.clients, {node.key: node for node in superlink.nodes().values()}
    keys = {} if path is None else listed_keys(path)
    known = {client: nodes.get(pem_of(key)) for client, key in sorted(keys.items())}
    return {client: "not registered" if node is None else node.status for client, node in known.items()}


def await_clients(superlink: SuperLink, patience: float) -> dict[int, str]:
    """The clients' states as soon as all are online, or after `patience` seconds."""
    end, states = time.monotonic() + patience, client_states(superlink)
    while set(states.values()) != {"online"} and time.monotonic() < end:
        time.sleep(PAUSE)
        states = client_states(superlink)
    return states


def withdraw(superlink: SuperLink, client: int) -> None:
    """Withdraw a client's key at the SuperLink, then remove it from the list of clients; the number is free then.

    If the SuperLink does not answer, the list is unchanged, and the command can be repeated.
    """
    path = clients_file(superlink)
    with changing_client_keys(path) as keys:
        if client not in keys:
            listed = ", ".join(map(str, sorted(keys))) or "none"
            raise InputError(f"{path}: there is no client {client}; it lists {listed}")
        key = pem_of(keys.pop(client))
        for node_id in [node_id for node_id, node in superlink.nodes().items() if node.key == key]:
            superlink.unregister(node_id)


def clients_file(superlink: SuperLink) -> Path:
    """The list of clients that the connection names."""
    path = superlink.connection.clients
    if path is None:
        raise InputError("the connection file names no list of clients; add clients = 'clients.toml'")
    return path
