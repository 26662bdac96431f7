"""Requests to a running SuperLink: list nodes, register a node, get a run's status, sign off a dead node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, RegisterNodeRequest
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedeas.errors import RunError
from fedeas.flower.deployment.environment import without_proxies
from fedeas.flower.deployment.keys import public_bytes, read_node_key


class NodeStatus(NamedTuple):
    """A node's status at the SuperLink, registered, online or offline, and when it last came online."""

    status: str
    activated: str


@dataclass(frozen=True)
class SuperLink:
    """A SuperLink's address, and the authority that signed its certificate."""

    address: str
    authority: Path

    def answers(self) -> bool:
        """Whether the SuperLink is up."""
        try:
            self.nodes()
        except httpx.TransportError:
            return False
        return True

    def nodes(self) -> dict[int, NodeStatus]:
        """All registered nodes, by node id."""
        with self._control() as control:
            found = control.ListNodes(ListNodesRequest()).nodes_info
        return {node.node_id: NodeStatus(node.status, node.last_activated_at) for node in found}

    def online_since(self, node_id: int) -> str | None:
        """When a node came online; None if it is not online, or if the SuperLink is too busy to answer."""
        try:
            known = self.nodes()[node_id]
        except httpx.TransportError:
            return None
        return known.activated if known.status == "online" else None

    def register(self, public_key: Path, name: str) -> int:
        """Register the node with this key, unless it is registered; return its id."""
        key = public_bytes(public_key)
        with self._control() as control:
            known = {node.public_key: node.node_id for node in control.ListNodes(ListNodesRequest()).nodes_info}
            if key in known:
                return int(known[key])
            return int(control.RegisterNode(RegisterNodeRequest(public_key=key, name=name)).node_id)

    def run_status(self, run_id: int) -> tuple[str, str]:
        """The run's status, such as ``finished:completed`` or ``finished:failed``, and the details."""
        with self._control() as control:
            runs = control.ListRuns(ListRunsRequest(run_id=run_id)).run_dict
        if run_id not in runs:
            raise RunError(f"the SuperLink at {self.address} knows no run {run_id}")
        status = runs[run_id].status
        return ":".join(filter(None, (status.status, status.sub_status))), status.details

    def deactivate(self, private_key: Path, node_id: int) -> bool:
        """Sign a dead node off with its own key; return whether the SuperLink counted it as online.

        Otherwise a killed node counts as online for up to a minute, and its next start is refused during that time.
        """
        key = read_node_key(private_key)
        signed = NodeAuthHttpInterceptor(key, key.public_key())
        version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
        connection = FleetHttpClient.from_server_address(
            self.address, False, self.authority.read_bytes(), interceptors=[version, signed]
        )
        with connection as fleet:
            try:
                fleet.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
            except httpx.HTTPError:
                # Offline already, unknown, or no SuperLink: the node notices all of these when it connects.
                return False
        return True

    @contextmanager
    def _control(self) -> Iterator[ControlHttpClient]:
        direct = without_proxies() if self.address.startswith("127.") else nullcontext()
        with direct:  # proxies are read from the environment when the connection is made
            connection = ControlHttpClient.from_server_address(
                self.address, insecure=False, root_certificates=self.authority.read_bytes(), interceptors=[]
            )
        try:
            yield connection
        finally:
            connection.close()
