"""Serve the planner's page: Streamlit's options, and the names under which a browser may open it."""

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedeas.views.web import FOLDER_VARIABLE, MAX_MEGABYTES

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("", "0.0.0.0", "::")

APP, PAGE = (Path(__file__).with_name(f"{name}.py") for name in ("app", "planner"))
NOT_FRAMED = (b"content-security-policy", b"frame-ancestors 'self'"), (b"x-frame-options", b"SAMEORIGIN")

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]


def serve(folder: Path, host: str, port: int, names: Sequence[str] = ()) -> None:
    """Serve the page with the runs of a folder until it is stopped.

    The server opens no browser, sends no statistics, and answers to known names only.
    """
    from streamlit.web.cli import main as streamlit

    os.environ[FOLDER_VARIABLE] = str(folder)
    settings = {
        "server.address": host,
        "server.port": port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.maxUploadSize": MAX_MEGABYTES,
        "browser.gatherUsageStats": "false",
        "runner.postScriptGC": "false",  # a full collection after every change would take longer than the change
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "theme.light.primaryColor": "#0072b2",
        "theme.dark.primaryColor": "#56b4e9",
    }
    hosts = [f"--server.allowedHosts={name}" for name in hosts_of(host, names)]
    options = [f"--{name}={value}" for name, value in settings.items()]
    streamlit(["run", str(APP), *options, *hosts], standalone_mode=False)


def hosts_of(address: str, names: Sequence[str] = ()) -> list[str]:
    """The names under which the page may be opened.

    A web page elsewhere can point a name of its own at this address (DNS rebinding). Its requests carry that name, and
    are refused by it.

    >>> hosts_of("127.0.0.1", ["plans.example.org"])
    ['localhost', '127.0.0.1', '::1', 'plans.example.org']
    """
    own = [address]
    if address in EVERYWHERE:  # names and addresses of this machine, as far as it knows them
        name = socket.gethostname()
        own = [name, socket.getfqdn()]
        with suppress(OSError):
            own += sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None)})
    return list(dict.fromkeys([*LOOPBACK, *own, *names]))


class OwnRequests:
    """Pass on requests, on every path, that name this server and come from its own pages; let no other page frame them.

    A program may leave the origin out; browsers give it with every WebSocket and with all that another page sends.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        """Answer one request, or refuse it with status 403."""

        async def send_unframed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *NOT_FRAMED]}
            await send(message)

        if scope["type"] not in ("http", "websocket") or self._is_own(scope["headers"]):
            await self.app(scope, receive, send_unframed)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send_unframed({"type": "http.response.start", "status": 403})
            await send({"type": "http.response.body", "body": b"use the planner's own address, or --allow-host"})

    def _is_own(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        from streamlit import get_option

        hosts, origins = ([value.decode("latin-1").lower() for key, value in headers if key == name]
                          for name in (b"host", b"origin"))  # fmt: skip
        try:
            (host,), place = hosts, urlsplit(f"//{hosts[0]}")
            name = (place.hostname or "").rstrip(".")
            is_known = any(fnmatchcase(name, each.lower()) for each in get_option("server.allowedHosts"))
            is_plain = place.netloc == host and "@" not in host
            return is_known and is_plain and {urlsplit(origin).netloc for origin in origins} <= {host}
        except (ValueError, IndexError):
            return False
