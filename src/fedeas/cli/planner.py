"""``fedeas planner``: plan a budget on a page in the browser."""

from typing import Annotated

import typer

from fedeas.cli.options import RUNS, Folder
from fedeas.core.errors import extra_for


def planner(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8501,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback anyone can use the page.")
    ] = "127.0.0.1",
    names: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Another name by which browsers reach the page, such as a proxy's."),
    ] = None,
    folder: Folder = RUNS,
) -> None:
    """Plan in the browser: upload counts, move beta, compare policies."""
    from fedeas.views.web.serving import serve

    with extra_for("the planner"):
        serve(folder, host, port, names or ())
