"""Keep a node's id, and sign the node off at the SuperLink when it is dead, with its own key."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import IO

import httpx
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from deploy.flower.keys import read_certificate, read_node_key


def sign_off(address: str, authority: Path, private_key: Path, node_id: int) -> bool:
    """Sign a dead node off with its own key; return whether the SuperLink counted it as online.

    Otherwise a killed node counts as online for up to a minute, and its next start is refused during that time.
    """
    key = read_node_key(private_key)
    signed = NodeAuthHttpInterceptor(key, key.public_key())
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    connection = FleetHttpClient.from_server_address(
        address, False, read_certificate(authority), interceptors=[version, signed]
    )
    with connection as fleet:
        try:
            fleet.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
        except httpx.HTTPError:
            # Offline already, unknown, or no SuperLink: the node notices all of these when it connects.
            return False
    return True


def keep_node_id(file: IO[str]) -> None:
    """Write the id of this process's node to the file as soon as the SuperLink has told it."""
    logging.getLogger("flwr").addHandler(_NodeId(file))


class _NodeId(logging.Handler):
    """Finds the node's id in the log, because Flower writes it nowhere else."""

    def __init__(self, file: IO[str]) -> None:
        super().__init__()
        self.file = file

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "SuperNode ID: %s":
            with suppress(OSError):  # on a full disk the node works, too; it is only not signed off after a kill
                self.file.seek(0)
                self.file.truncate()
                self.file.write(record.getMessage().rpartition(" ")[2])
                self.file.flush()
