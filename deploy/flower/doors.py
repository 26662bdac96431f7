"""The two doors of a SuperLink: a port for nodes, and one for everything else."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

NODES_PATHS = "/v1/fleet/"
REFUSED = 404
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
"""Paths that every program reads in the same way: nothing to decode, no dot segments, no empty ones."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
WebApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def two_doors(app: WebApp, nodes_port: int) -> WebApp:
    """Serve the nodes' interface on their port alone, and everything else on the other port alone.

    Paths that are not plain are refused on both. A program behind the doors may rewrite a path after it has been
    checked here: ``/v1/fleet/../control/start-run`` would become the operator's.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not (_is_plain(scope) and _is_at_its_port(scope, nodes_port)):
            await answer(send, REFUSED)
        else:
            await app(scope, receive, send)

    return serve


def _is_plain(scope: Scope) -> bool:
    """Whether the path is plain as it was sent, too: the server has decoded it once, and may give both."""
    path: str = scope["path"]
    return PLAIN_PATH.fullmatch(path) is not None and scope.get("raw_path") in (None, path.encode())


def _is_at_its_port(scope: Scope, nodes_port: int) -> bool:
    path: str = scope["path"]
    port: int = scope["server"][1]
    return path.startswith(NODES_PATHS) == (port == nodes_port)


async def answer(send: Send, status: int) -> None:
    """Answer with a status and nothing else."""
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})
