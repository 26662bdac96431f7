"""A real browser, a planner on a free loopback port, and run directories to show."""

import os
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import LIMIT, wait_until

from fedeas.config import load_config
from fedeas.runs.store import RunStore

CHROMIUM = os.environ.get("FEDEAS_CHROMIUM", "/usr/bin/chromium")
SCREENSHOTS = Path(__file__).parent / "screenshots"


@contextmanager
def served(runs, log):
    """The address of a running `fedeas planner`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "fedeas", "planner", "--port", str(port), "--runs", str(runs)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(process, f"http://127.0.0.1:{port}/_stcore/health", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(process, address, log):
    def answers():
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=LIMIT):
                return True
        except OSError:
            return False

    wait_until(answers, log.read_text)


@contextmanager
def chromium():
    """The browser, or a skip that says what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install playwright")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no browser at {CHROMIUM}; set FEDEAS_CHROMIUM to a chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def overflow(page):
    """Pixels by which the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def complaints_of(page):
    """A list of all errors that the page reports."""
    found = []
    page.on("console", lambda message: found.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def recorded_runs(root):
    """A finished run and one in progress, as `fedeas run` makes them."""
    for policy, label, done in (("fedeas(beta=2)", "finished", 6), ("uniform(budget=9)", "under-way", 3)):
        run = RunStore(root).open(load_config(None, [f"policy={policy}", f"label={label}", "rounds.total=6"]))
        for number in range(1, done + 1):
            run.append_round({"round": number, "accuracy": 0.5 + 0.05 * number + 0.01 * done})
        if done == 6:
            finish(run, 0.86, 6)


def finish(run, accuracy, last):
    """Write the summary of a run whose accuracy is that of its last round."""
    numbers = {"accuracy": accuracy, "final": accuracy, "peak": accuracy, "total": 9, "generated": 9}
    unknown = dict.fromkeys(("steps", "samples", "rounds_to_threshold", "gamma_hat", "imbalance_removed"))
    seconds = {"generate": 0.0, "train": 1.0, "total": 1.0}
    run.write_json("summary.json", {**numbers, **unknown, "window": [last, last], "seconds": seconds})
