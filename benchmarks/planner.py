"""How long is the wait for the planner's page? The page's whole script runs as Streamlit runs it, without a browser.

    python benchmarks/planner.py browser

times steps of the slider on every tab in a real browser instead (chromium, or the one in $FEDEAS_CHROMIUM, and
playwright): from the key to the page that has been drawn anew. CPU times depend little on other work of the machine.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

import psutil
from measure import save
from streamlit.testing.v1 import AppTest

from fedeas.views.web import FOLDER_VARIABLE, choices
from fedeas.views.web.choices import table_file
from fedeas.views.web.serving import PAGE

SIZES = [(100, 100), (20, 10), (45, 44), (500, 100)]
UPLOADS = STEPS = 9
TABS = ["Where images go", "Clients", "Budget", "Prices"]
CHROMIUM = os.environ.get("FEDEAS_CHROMIUM", "/usr/bin/chromium")
WATCH = """() => {
  const figures = () => [...document.querySelectorAll("[data-testid=stMetricValue]")].map(e => e.innerText).join()
  const running = () => !document.querySelector("[data-testid=stApp][data-test-script-state=notRunning]")
  const before = figures()
  window.redrawn = new Promise(done => document.addEventListener("keydown", event => {
    const start = event.timeStamp
    const look = () => figures() === before || running() ? requestAnimationFrame(look)
      : requestAnimationFrame(() => requestAnimationFrame(now => done(now - start)))
    look()
  }, {once: true, capture: true}))
}"""


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
            files = [table_file(choices.drawn(clients, classes, 500, 0.1, n).counts) for n in range(UPLOADS)]
            files_ms = [1000 * uploaded(page, file) for file in files]
            steps_ms = [1000 * stepped(page, 6 + place / 10) for place in range(STEPS)]
            rows.append(
                {"clients x classes": f"{clients} x {classes}", **spread("file", files_ms), **spread("step", steps_ms)}
            )
    save("planner", f"The planner's page after a new file of counts and after a step of beta, {UPLOADS} each", rows)


@contextmanager
def served(folder: str) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a planner, and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "fedeas", "planner", "--port", str(port), "--runs", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{address}/_stcore/health"):
                break
            time.sleep(0.2)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def stepped_in_browser(page: Any) -> float:
    """Milliseconds from a key on the slider to the second frame after the new figures and the end of the script."""
    page.get_by_role("slider").first.focus()
    page.evaluate(WATCH)
    page.keyboard.press("ArrowRight")
    return float(page.evaluate("window.redrawn"))


def in_browser() -> None:
    from playwright.sync_api import sync_playwright

    clients, classes = 20, 10
    content = table_file(choices.drawn(clients, classes, 500, 0.1, 0).counts)
    with tempfile.TemporaryDirectory() as nothing, served(nothing) as (address, server), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.set_default_timeout(60_000)
        page.goto(address)
        page.get_by_text("My file", exact=True).click()
        file = {"name": "counts.csv", "mimeType": "text/csv", "buffer": content}
        page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(file)
        page.get_by_text(f"Clients: {clients}").first.wait_for()
        rows = [on_tab(page, server, tab) for tab in TABS]
        browser.close()
    save(
        "planner-browser",
        f"A step of beta for {clients} clients and {classes} classes in a real browser without a GPU, from the key to "
        f"the new page, {STEPS} steps on each tab",
        rows,
    )


def on_tab(page: Any, server: psutil.Process, tab: str) -> dict[str, object]:
    """Times of steps while a tab is open."""
    page.get_by_role("tab", name=tab, exact=True).click()
    page.get_by_role("tabpanel", name=tab, exact=True).wait_for()
    stepped_in_browser(page)  # loads what the others need
    before = cpu_seconds([server]), cpu_seconds(browsers())
    times = [stepped_in_browser(page) for _ in range(STEPS)]
    after = cpu_seconds([server]), cpu_seconds(browsers())
    assert not page.get_by_test_id("stAlert").count()
    planner_ms, browser_ms = (round(1000 * (end - start) / STEPS) for start, end in zip(before, after, strict=True))
    cpu = {"CPU of planner, ms": planner_ms, "CPU of browser, ms": browser_ms}
    return {"tab": tab, "fastest, ms": round(min(times)), **spread("step", times), **cpu}


def browsers() -> list[psutil.Process]:
    """The processes of the browser that this one started."""
    return [each for each in psutil.Process().children(recursive=True) if "chrom" in each.name()]


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """CPU seconds that these processes have used."""
    return float(sum(sum(each.cpu_times()[:2]) for each in processes))


def spread(name: str, times: list[float]) -> dict[str, int]:
    """The median and the worst."""
    return {f"{name}: median, ms": round(median(times)), f"{name}: worst, ms": round(max(times))}


if __name__ == "__main__":
    in_browser() if sys.argv[1:] == ["browser"] else main()
