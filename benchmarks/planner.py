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
UPLOADS = 9


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


def main() -> None:
    with tempfile.TemporaryDirectory() as nothing:
        os.environ[FOLDER_VARIABLE] = nothing
        page, rows = opened(), []
        for clients, classes in SIZES:
            files = [downloads.counts_file(sources.drawn(clients, classes, 500, 0.1, n).counts) for n in range(UPLOADS)]
            times = [1000 * uploaded(page, file) for file in files]
            table = f"{clients} x {classes}"
            rows.append(
                {"clients x classes": table, "median, ms": round(median(times)), "worst, ms": round(max(times))}
            )
    save("planner", f"First view of the planner after a new file of counts, {UPLOADS} files each", rows)


if __name__ == "__main__":
    main()
