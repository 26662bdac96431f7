"""``fedeas planner``: plan a budget on a page in the browser."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedeas.errors import InputError
from fedeas.web.runs import FOLDER_VARIABLE
from fedeas.web.sources import MAX_MEGABYTES

PAGE = Path(__file__).parent.parent / "web" / "planner.py"


def planner(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8501,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback anyone can use the page.")
    ] = "127.0.0.1",
    folder: Annotated[Path, typer.Option("--runs", help="Folder of run directories to show.")] = Path("runs"),
) -> None:
    """Plan in the browser: upload counts, move beta, compare policies, download the plan."""
    if find_spec("streamlit") is None or find_spec("plotly") is None:
        raise InputError("the planner needs Streamlit and Plotly: pip install 'fedeas[web]'")
    from streamlit.web.cli import main as streamlit

    os.environ[FOLDER_VARIABLE] = str(folder)
    streamlit(["run", str(PAGE), *streamlit_options(host, port)], standalone_mode=False)


def streamlit_options(host: str, port: int) -> list[str]:
    """Options of a server that opens no browser, sends no statistics and watches no files."""
    settings = {
        "server.address": host,
        "server.port": port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.maxUploadSize": MAX_MEGABYTES,
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "theme.base": "light",
        "theme.primaryColor": "#0072b2",
    }
    return [f"--{name}={value}" for name, value in settings.items()]
