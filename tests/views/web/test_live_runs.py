"""In a real browser the list of runs refreshes by itself, and stops when all runs have ended."""

import pytest

pytest.importorskip("streamlit", reason="streamlit is missing: pip install 'fedeas[web]'")

from streamlit.proto.BackMsg_pb2 import BackMsg
from views.web.browser import chromium, complaints_of, finish, recorded_runs, served
from waiting import LIMIT

from fedeas.runs.store import RunStore
from fedeas.views.web.planner import REFRESH_SECONDS

PATIENCE = 1000 * LIMIT  # milliseconds


@pytest.fixture
def opened(tmp_path):
    """The tab of runs, a run in progress, whose lock is held, and all requests to compute the page again."""
    recorded_runs(tmp_path / "runs")
    (run,) = (run for run in RunStore(tmp_path / "runs").all() if not run.finished)
    asked = []
    with run.locked(), chromium() as browser, served(tmp_path / "runs", tmp_path / "log.txt") as address:
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.on("websocket", lambda socket: socket.on("framesent", lambda frame: asked.extend(_reruns(frame))))
        complaints = complaints_of(page)
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.get_by_role("tab", name="Runs", exact=True).click()
        says(page, "3 of 6 rounds")
        yield page, run, asked
        page.close()
    assert complaints == []


def _reruns(frame):
    message = BackMsg.FromString(frame) if isinstance(frame, bytes) else BackMsg()
    return [message.rerun_script] if message.WhichOneof("type") == "rerun_script" else []


def says(page, state):
    """Wait for a run in this state; the grid is a canvas, and its accessible table has the text."""
    page.locator("td[role=gridcell]", has_text=state).wait_for(state="attached", timeout=PATIENCE)


def add_round(run, number):
    run.append_round({"round": number, "accuracy": 0.6 + 0.01 * number})


def rests(page):
    page.get_by_text("none is in progress").wait_for(timeout=PATIENCE)


@pytest.mark.slow
def test_new_rounds_appear_until_all_runs_have_ended_and_then_on_request(opened):
    page, run, asked = opened
    asked.clear()
    for number in (4, 5):
        add_round(run, number)
        says(page, f"{number} of 6 rounds")
    assert len(asked) >= 2
    assert all(request.is_auto_rerun and request.fragment_id for request in asked)  # never the whole page

    finish(run, 0.66, 5)
    rests(page)
    asked.clear()
    page.wait_for_timeout(3 * 1000 * REFRESH_SECONDS)
    assert asked == []

    (run.path / "summary.json").unlink()  # as if another run had begun
    page.get_by_role("button", name="Refresh").click()
    says(page, "5 of 6 rounds")
    add_round(run, 6)
    says(page, "6 of 6 rounds")
