"""The operator's requests to a running SuperLink: nodes and runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from deploy.flower.app import Bundle
from deploy.flower.connection import Connection, Scalar
from deploy.flower.environment import without_proxies
from deploy.flower.keys import read_certificate, read_operator_key
from fedeas.core.errors import FedEASError, InputError, RunError
from fedeas.flower.run_errors import error_in

WITHDRAWN = "unregistered"
"""Flower's status of a node whose key was withdrawn."""


class NodeStatus(NamedTuple):
    """A node's status at the SuperLink, registered, online or offline, when it last came online, and its key."""

    status: str
    activated: str
    key: bytes


@dataclass(frozen=True)
class RunStatus:
    """How a run is or ended, such as ``finished:completed`` or ``finished:failed``, and the details."""

    run_id: int
    status: str
    details: str

    @property
    def completed(self) -> bool:
        """Whether the run ended without an error."""
        return self.status == "finished:completed"

    @property
    def error(self) -> FedEASError | None:
        """The error with which FedEAS ended the run, if it did."""
        return error_in(self.details)


@dataclass(frozen=True)
class SuperLink:
    """A SuperLink as its operator reaches it."""

    connection: Connection

    @property
    def address(self) -> str:
        """Host and port of the operator's interface."""
        return self.connection.address

    def answers(self) -> bool:
        """Whether the SuperLink is up."""
        try:
            self.nodes()
        except RunError:
            return False
        return True

    def nodes(self) -> dict[int, NodeStatus]:
        """All registered nodes, by node id."""
        with self._control() as control:
            found = control.ListNodes(ListNodesRequest()).nodes_info
        known = {node.node_id: NodeStatus(node.status, node.last_activated_at, node.public_key) for node in found}
        return {node_id: node for node_id, node in known.items() if node.status != WITHDRAWN}

    def online_since(self, node_id: int) -> str | None:
        """When a node came online; None if it is not online, or if the SuperLink is too busy to answer."""
        try:
            known = self.nodes()[node_id]
        except RunError:
            return None
        return known.activated if known.status == "online" else None

    def register(self, public_key: bytes, name: str) -> int:
        """Register the node with this key, unless it is registered; return its id."""
        known = {node.key: node_id for node_id, node in self.nodes().items()}
        if public_key in known:
            return known[public_key]
        with self._control() as control:
            return int(control.RegisterNode(RegisterNodeRequest(public_key=public_key, name=name)).node_id)

    def unregister(self, node_id: int) -> None:
        """Withdraw a node's key: the node is cut off at once, and the key can never be registered again."""
        with self._control() as control:
            control.UnregisterNode(UnregisterNodeRequest(node_id=node_id))

    def start_run(self, app: Bundle, config: Mapping[str, Scalar]) -> int:
        """Start a run of the app; return its id."""
        fab = fab_to_proto(Fab(app.digest, app.content, {}))
        with self._control() as control:
            begun = control.StartRun(StartRunRequest(fab=fab, override_config=user_config_to_proto(dict(config))))
        if not begun.HasField("run_id"):
            raise RunError(f"the SuperLink at {self.address} did not start the run; its log has the reason")
        return int(begun.run_id)

    def follow(self, run_id: int, show: Callable[[str], None]) -> None:
        """Give each line of the run's log to `show` until the run ends."""
        rest = ""
        with self._control() as control:
            for part in control.StreamLogs(StreamLogsRequest(run_id=run_id, after_timestamp=0.0)):
                *lines, rest = (rest + part.log_output).split("\n")
                for line in lines:
                    show(line)
        if rest:
            show(rest)

    def run_status(self, run_id: int) -> RunStatus:
        """The status of a run."""
        with self._control() as control:
            try:
                runs = control.ListRuns(ListRunsRequest(run_id=run_id)).run_dict
            except httpx.HTTPStatusError as error:
                if not _is_not_found(error.response):
                    raise
                runs = {}
        if run_id not in runs:
            raise InputError(f"the SuperLink at {self.address} knows no run {run_id}; see `fedeas flower status`")
        status = runs[run_id].status
        return RunStatus(run_id, ":".join(filter(None, (status.status, status.sub_status))), status.details)

    def unfinished_runs(self) -> list[int]:
        """The runs that have not ended."""
        with self._control() as control:
            runs = control.ListRuns(ListRunsRequest()).run_dict
        return sorted(run_id for run_id, run in runs.items() if run.status.status != "finished")

    def stop_run(self, run_id: int) -> None:
        """End a run."""
        with self._control() as control:
            control.StopRun(StopRunRequest(run_id=run_id))

    @contextmanager
    def _control(self) -> Iterator[ControlHttpClient]:
        """A connection with the operator's key; what goes wrong on it becomes one line."""
        direct = without_proxies() if self.address.startswith("127.") else nullcontext()
        key = _WithKey(read_operator_key(self.connection.key))
        with direct:  # proxies are read from the environment when the connection is made
            connection = ControlHttpClient.from_server_address(
                self.address, insecure=False, root_certificates=read_certificate(self.connection.authority),
                interceptors=[key],
            )  # fmt: skip
        try:
            yield connection
        except httpx.TransportError as error:
            raise RunError(
                f"{self.address}: no SuperLink answers there ({error}); check address, certificate and server"
            ) from None
        except httpx.HTTPStatusError as error:
            raise self._refusal(error.response) from None
        finally:
            connection.close()

    def _refusal(self, response: httpx.Response) -> InputError:
        if response.status_code == httpx.codes.UNAUTHORIZED:
            return InputError(f"{self.connection.key}: the SuperLink at {self.address} has another key; use its own")
        if response.status_code == httpx.codes.NOT_FOUND:
            return InputError(f"{self.address}: not for operators; give the operator's port, not the nodes'")
        return InputError(f"the SuperLink at {self.address} refused: {_reason(response)}")


@dataclass(frozen=True)
class _WithKey:
    """Adds the operator's key to a request."""

    key: str

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers["Authorization"] = f"Bearer {self.key}"
        return call_next(context)


def _is_not_found(response: httpx.Response) -> bool:
    """Whether the SuperLink does not have what was asked for; at the nodes' port, the answer has no code of its own."""
    return response.status_code == httpx.codes.NOT_FOUND and "code" in _said(response)


def _reason(response: httpx.Response) -> str:
    """The first line of what the SuperLink says."""
    text = str(_said(response).get("detail", response.text))
    return text.partition("\n")[0][:200] or f"status {response.status_code}"


def _said(response: httpx.Response) -> dict[str, Any]:
    """The code and the details of an error, if the SuperLink gives them."""
    response.read()
    try:
        said = json.loads(response.text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
