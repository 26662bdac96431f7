"""Flower's own SuperLink behind FedEAS's two doors, for versions of Flower that `internals` does not know.

The program ``flower-superlink`` listens on a loopback port. Nodes' requests are handed on to it, and the operator's if
they carry the operator's key. What is lost: whoever has an account on the server's host can reach that loopback port,
where Flower asks for no key, and start runs there.
"""

from __future__ import annotations

import hmac
import os
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from deploy.flower.doors import NODES_PATHS, REFUSED, Receive, Scope, Send, WebApp, answer
from deploy.flower.environment import program, search_path
from fedeas.core.errors import RunError

OPERATOR_PATHS = "/v1/control/"
UNAUTHORIZED, UNAVAILABLE = 401, 502
PER_CONNECTION = {b"host", b"connection", b"transfer-encoding", b"keep-alive", b"upgrade"}
"""Headers that are about one connection, and are not handed on."""


@contextmanager
def stock_superlink(arguments: Sequence[str], address: tuple[str, int]) -> Iterator[subprocess.Popen[bytes]]:
    """Run flower-superlink during a ``with`` block, which begins when it listens at `address`."""
    surroundings = {**os.environ, "PATH": search_path()}
    process = subprocess.Popen([program("flower-superlink"), *arguments], env=surroundings)
    try:
        _await(process, address)
        yield process
    finally:
        process.terminate()
        process.wait()


def _await(process: subprocess.Popen[bytes], address: tuple[str, int]) -> None:
    while process.poll() is None:
        with suppress(OSError), socket.create_connection(address, timeout=1):
            return
        time.sleep(0.1)
    raise RunError("flower-superlink ended; the reason is above")


def handed_on(address: tuple[str, int], authority: Path, key: str) -> WebApp:
    """A web app that hands requests on to the SuperLink at `address`, the operator's only with the key."""
    trusted = ssl.create_default_context(cafile=authority)
    client = httpx.AsyncClient(verify=trusted, timeout=None, trust_env=False, limits=httpx.Limits())

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = _refusal(scope, key)
        if refusal is not None:
            await answer(send, refusal)
            return
        target = b"?".join(filter(None, (scope["raw_path"], scope["query_string"])))
        url = httpx.URL(f"https://{address[0]}:{address[1]}", raw_path=target)
        headers = _kept(scope["headers"])
        request = client.build_request(scope["method"], url, headers=headers, content=_body(receive))
        try:
            response = await client.send(request, stream=True)
        except httpx.TransportError:
            await answer(send, UNAVAILABLE)
            return
        await _hand_back(response, send)

    return serve


def _refusal(scope: Scope, key: str) -> int | None:
    """The status with which a request is refused; None if it may pass."""
    if scope["path"].startswith(NODES_PATHS):
        return None
    if not scope["path"].startswith(OPERATOR_PATHS):
        return REFUSED
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    known = len(given) == 1 and hmac.compare_digest(given[0], f"Bearer {key}".encode())
    return None if known else UNAUTHORIZED


def _kept(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in PER_CONNECTION]


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _hand_back(response: httpx.Response, send: Send) -> None:
    """Send the answer on, part by part as it comes."""
    try:
        headers = _kept(response.headers.raw)
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for part in response.aiter_raw():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await response.aclose()
