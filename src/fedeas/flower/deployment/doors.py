"""The two doors of a SuperLink: a port for nodes, and one for everything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

NODES_PATHS = "/v1/fleet/"
REFUSED = 404

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
WebApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def two_doors(app: WebApp, nodes_port: int) -> WebApp:
    """Serve the nodes' interface on their port alone, and everything else on the other port alone."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["server"][1] == nodes_port) != scope["path"].startswith(NODES_PATHS):
            await answer(send, REFUSED)
        else:
            await app(scope, receive, send)

    return serve


async def answer(send: Send, status: int) -> None:
    """Answer with a status and nothing else."""
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})
