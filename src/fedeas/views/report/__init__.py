"""The results of runs as one HTML page.

The page is self-contained, for a screen, a phone or paper. Its charts are drawn by plotly.js, which stands compressed
in the page. The page forbids the browser to load anything from elsewhere.
"""

import base64
import gzip
import os
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedeas.core import VERSION
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, written_whole
from fedeas.core.foreign_text import printable
from fedeas.runs.store import Run, read_run
from fedeas.views.methods import RunSnapshot, grouped_by_method, read_snapshot
from fedeas.views.report.content import page_content

__all__ = ["report"]


def report(
    runs: Run | PathLike | Iterable[Run | PathLike],
    out: PathLike = "report.html",
    title: str = "FedEAS report",
    reference: str | None = None,
) -> Path:
    """Write one self-contained HTML page about some runs, given as runs or run directories; return its path.

    Runs that differ only in their seed count as one method. Unfinished runs are drawn and listed, but are not in the
    tables. Methods are compared with the `reference`, the label or name of one of them, by default with FedEAS.
    """
    given = [runs] if isinstance(runs, Run | str | os.PathLike) else list(runs)
    found = [read_snapshot(each if isinstance(each, Run) else read_run(each)) for each in given]
    if not found:
        raise InputError("a report needs at least one run; make one with `fedeas run`")
    known: dict[str, RunSnapshot] = {}
    for each in found:  # under two labels, the report would rank a method against itself
        twin = known.setdefault(each.run.fingerprint, each)
        if twin is not each:
            raise InputError(f"{each.run.path}: the same config and seed as {twin.run.path}; give one of them")
    content = page_content(grouped_by_method(found, reference))
    # All that is put into the templates is escaped, and shown without control characters.
    environment = Environment(
        loader=PackageLoader("fedeas.views.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )  # fmt: skip
    template = environment.get_template("page.html")
    page = template.render(title=title, version=VERSION, plotly=_packed_plotly(), **content)
    with written_whole(out) as part:
        part.write_text(page, "utf-8")
    return Path(out)


@cache
def _packed_plotly() -> Markup:
    """The script of the package plotly, compressed: it is a third as large, and browsers can unpack it."""
    script = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return Markup(base64.b64encode(gzip.compress(script, mtime=0)).decode("ascii"))
