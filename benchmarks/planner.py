"""How long is the wait for the planner's page? The page's whole script runs as Streamlit runs it, without a browser."""

from __future__ import annotations

import os
import tempfile
import time
from statistics import median

from measure import save
from streamlit.testing.v1 import AppTest

from fedeas.cli.planner import PAGE
from fedeas.web import downloads, sources
from fedeas.web.runs import FOLDER_VARIABLE

SIZES = [(100, 100), (20, 10), (45, 44), (500, 100)]
UPLOADS = STEPS = 9


def opened() -> AppTest:
    """The page, as it is after its first file: what Python loads only once is not measured."""
    page = AppTest.from_file(str(PAGE), default_timeout=60).run()
    page.segmented_control(key="source").set_value("My file").run()
    uploaded(page, b"a,b\n3,4\n")
    return page


def uploaded(page: AppTest, content: bytes) -> float:
    """Seconds from a new file to the whole page."""
    page.file_uploader(key="file").set_value(("counts.csv", content, "text/csv"))
    start = time.perf_counter()
    page.run()
    spent = time.perf_counter() - start
    assert not page.exception
    assert not page.error
    return spent


def stepped(page: AppTest, beta: float) -> float:
    """Seconds from a step of the slider to the whole page."""
    page.slider(key="beta").set_value(beta)
    start = time.perf_counter()
    page.run()
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as nothing:
        os.environ[FOLDER_VARIABLE] = nothing
        page, rows = opened(), []
        for clients, classes in SIZES:
            files = [downloads.counts_file(sources.drawn(clients, classes, 500, 0.1, n).counts) for n in range(UPLOADS)]
            files_ms = [1000 * uploaded(page, file) for file in files]
            steps_ms = [1000 * stepped(page, 6 + place / 10) for place in range(STEPS)]
            rows.append(
                {"clients x classes": f"{clients} x {classes}", **spread("file", files_ms), **spread("step", steps_ms)}
            )
    save("planner", f"The planner's page after a new file of counts and after a step of beta, {UPLOADS} each", rows)


def spread(name: str, times: list[float]) -> dict[str, int]:
    """The median and the worst."""
    return {f"{name}: median, ms": round(median(times)), f"{name}: worst, ms": round(max(times))}


if __name__ == "__main__":
    main()
