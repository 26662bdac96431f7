"""Serve the planner's page: Streamlit's options, and the names under which a browser may open it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedeas.views.web import FOLDER_VARIABLE, MAX_MEGABYTES

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("", "0.0.0.0", "::")

PAGE = Path(__file__).with_name("planner.py")


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
    streamlit(["run", str(PAGE), *options, *hosts], standalone_mode=False)


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
