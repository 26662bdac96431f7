"""The planner in a real browser: what is shown and downloaded is what the library says, and nothing leaves loopback.

One page serves all tests, since loading it is what takes time; each of them makes its own choices first.
"""

import re
from urllib.parse import urlsplit

import pytest

pytest.importorskip("streamlit", reason="streamlit is missing: pip install 'fedeas[web]'")

from views.web.browser import SCREENSHOTS, chromium, complaints_of, overflow, recorded_runs, served
from waiting import LIMIT, wait_until

from fedeas import FedEAS, LabelCounts, Uniform, imbalance_removed, write_counts
from reproduction.published import example_counts

COUNTS = LabelCounts(
    [[900, 80, 20], [10, 300, 690], [400, 0, 380]], clients=["ann", "bob", "<b>eve"], classes=["cat", "dog", "owl"]
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The planner's page; at the end there must be no request beyond loopback and no error on the console."""
    folder = tmp_path_factory.mktemp("planner")
    recorded_runs(folder / "runs")
    hosts = set()
    with chromium() as browser, served(folder / "runs", folder / "log.txt") as address:
        page = browser.new_page(viewport={"width": 1280, "height": 1400}, accept_downloads=True)
        page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname or "127.0.0.1"))
        page.on("websocket", lambda socket: hosts.add(urlsplit(socket.url).hostname))
        complaints = complaints_of(page)
        page.set_default_timeout(1000 * LIMIT)
        page.goto(address)
        yield page
        page.close()
    assert hosts == {"127.0.0.1"}  # data: and blob: addresses have no host
    assert complaints == []


def settle(page):
    """Wait until the script has run: a list that is opened before would be closed again."""
    page.wait_for_timeout(200)
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()


def take(page, source):
    page.get_by_text(source, exact=True).click()
    settle(page)


def choose(page, label, option):
    from playwright.sync_api import TimeoutError as NotThere

    box = page.get_by_role("combobox", name=re.compile(re.escape(label)))
    wanted = page.get_by_role("option", name=option, exact=True)

    def chosen():
        """Whether the option was clicked; the list closes when the page scrolls or its script runs."""
        box.scroll_into_view_if_needed()
        if not wanted.is_visible():
            box.click()
        try:
            wanted.click(timeout=2000)
        except NotThere:
            return False
        return True

    wait_until(chosen)
    settle(page)


def shows(page, label, value):
    shown = page.get_by_test_id("stMetric").filter(has_text=label)
    shown.get_by_text(value, exact=True).wait_for(timeout=1000 * LIMIT)


def upload(page, path):
    take(page, "My file")
    page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(path)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_screen(page, width, scheme):
    counts = example_counts()
    page.emulate_media(color_scheme=scheme)
    shows(page, "Images to generate", f"{FedEAS(beta=12).allocate(counts).total:,}")
    SCREENSHOTS.mkdir(exist_ok=True)
    for name in ("Where images go", "Clients", "Budget", "Prices", "Runs", "Plan"):
        page.set_viewport_size({"width": width, "height": 700})
        page.get_by_role("tab", name=name, exact=True).click()
        settle(page)
        wait_until(lambda: overflow(page) <= 0, lambda name=name: name)
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": width, "height": min(height, 4000)})
        page.wait_for_timeout(300)
        page.screenshot(path=SCREENSHOTS / f"{width}-{scheme}-{name.split()[0].lower()}.png")
    page.set_viewport_size({"width": 1280, "height": 1400})
    page.emulate_media(color_scheme="light")


def test_another_policy_and_a_limit_change_the_plan(page):
    counts = example_counts()
    take(page, "Paper")
    choose(page, "How many images in all?", "at most so many images")
    shows(page, "Images to generate", "5,000")
    choose(page, "Who gets images?", "uniform")
    page.get_by_text("fedeas plan --example --policy uniform --total 5000").wait_for()
    shows(page, "Imbalance removed", f"{imbalance_removed(counts, Uniform(budget=5000).allocate(counts)):.2%}")


def test_an_uploaded_table_is_planned_changed_and_downloaded(page, tmp_path):
    write_counts(tmp_path / "mine.csv", COUNTS)
    choose(page, "Who gets images?", "fedeas")
    choose(page, "How many images in all?", "beta")
    upload(page, tmp_path / "mine.csv")
    shows(page, "Images to generate", f"{FedEAS(beta=12).allocate(COUNTS).total:,}")
    page.get_by_role("slider", name="Beta").press("ArrowRight")
    mine = FedEAS(beta=12.1).allocate(COUNTS)
    assert mine.total != FedEAS(beta=12).allocate(COUNTS).total
    shows(page, "Images to generate", f"{mine.total:,}")
    page.get_by_text("fedeas plan mine.csv --beta 12.1").wait_for()
    rows = page.get_by_role("table", name="Synthetic images").locator("tbody tr").all_inner_texts()
    plan = zip(COUNTS.clients, mine.n.tolist(), strict=True)
    assert [row.split("\t") for row in rows] == [[name, *(str(n) if n else "" for n in row)] for name, row in plan]
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Plan as CSV").click()
    waiting.value.save_as(tmp_path / "plan.csv")
    rows = [line.split(",") for line in (tmp_path / "plan.csv").read_text().splitlines()]
    assert rows[0] == ["client", *COUNTS.classes]
    assert rows[1:] == [[name, *map(str, row)] for name, row in zip(COUNTS.clients, mine.n.tolist(), strict=True)]


def test_a_plot_shows_the_numbers_of_a_point_and_hides_what_is_switched_off(page):
    take(page, "Paper")
    page.get_by_role("tab", name="Budget", exact=True).click()
    plot = page.get_by_role("group", name="Imbalance removed for how many images")
    star, uniform, others = (plot.locator(f".frame .{mark}").first for mark in ("star", "square", "diamond"))
    star.hover()
    tip = star.evaluate("point => getComputedStyle(point, '::after').content")
    assert page.get_by_test_id("stMetricValue").first.inner_text() in tip
    plot.get_by_text("uniform").click()
    uniform.wait_for(state="hidden")
    assert others.is_visible()
    plot.get_by_text("uniform").click()
    uniform.wait_for(state="visible")
    page.get_by_role("tab", name="Where images go", exact=True).click()
    settle(page)


def test_a_bad_table_is_explained(page, tmp_path):
    (tmp_path / "bad.csv").write_text("client,cat,dog\nann,3,1\nbob,2.5,4\n")
    take(page, "Paper")
    upload(page, tmp_path / "bad.csv")
    page.get_by_text("bad.csv: row 2 (client 'bob'), class 'cat': fractional count 2.5; give whole numbers").wait_for()
