"""The report in a real browser: one file, opened from disk, with the numbers of the runs' summaries."""

from statistics import mean, stdev

import pytest
from views.web.browser import SCREENSHOTS, chromium, complaints_of, overflow
from waiting import wait_until

from fedeas.config import load_config
from fedeas.federation.run import execute
from fedeas.runs.store import RunStore
from fedeas.views.report import report as write_report

QUICK = [
    "train.lr=0.05",
    "train.epochs=1",
    "rounds.total=3",
    "partition.clients=6",
    "engine.threads=1",
]
LONG = "even-" + "-".join(["a-method-with-a-long-name"] * 3)
POLICIES = {"none": "no-generation", "ours": "fedeas(beta=3)", LONG: "uniform(budget=fedeas(beta=3))"}
ACCURACY, FINAL, SAMPLES = 1, 3, 0  # cells after the method's name, in the first table and in the second
IMAGES = "Array.from(document.images, image => [image.complete, image.naturalWidth, image.clientWidth])"
CHARTS = "Array.from(document.querySelectorAll('.chart'), chart => chart.querySelector('.main-svg')?.clientWidth)"
# Pixels between the title of each horizontal axis and the nearer side of its chart.
MARGINS = """Array.from(document.querySelectorAll('.chart:has(.xtitle)'), chart => {
    const [title, whole] = [chart.querySelector('.xtitle'), chart].map(part => part.getBoundingClientRect());
    return Math.min(title.left - whole.left, whole.right - title.right) })"""
# Plotly's own check of the figures; values that have no effect are no faults.
FAULTS = """Array.from(document.querySelectorAll('.chart'), chart => Plotly.validate(chart.data, chart.layout) ?? [])
    .flat().map(fault => fault.msg).filter(text => !text.endsWith('did not get coerced'))"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three policies on digits, two seeds each, by their names."""
    store = RunStore(tmp_path_factory.mktemp("report") / "runs")
    return {
        label: [execute(_config(label, policy, seed), store) for seed in (0, 1)] for label, policy in POLICIES.items()
    }


def _config(label, policy, seed):
    return load_config(None, [*QUICK, f"label={label}", f"policy={policy}", f"seed={seed}"])


@pytest.fixture(scope="module")
def page(runs):
    """The report from disk; at the end there must be no other request and no error on the console."""
    path = runs["ours"][0].path.parent / "report.html"
    write_report([run for seeds in runs.values() for run in seeds], path)
    asked = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        complaints = complaints_of(page)
        page.goto(path.as_uri())
        wait_until(lambda: page.evaluate(f"{CHARTS}.every(width => width > 0)"), lambda: str(complaints))
        yield page
        page.close()
    assert [address for address in asked if not address.startswith("data:")] == [path.as_uri()]
    assert complaints == []


def test_the_table_equals_the_summaries(page, runs):
    for label, seeds in runs.items():
        summaries = [run.summary() for run in seeds]
        accuracies = [100 * each["accuracy"] for each in summaries]
        finals = [100 * each["final"] for each in summaries]
        first, second, _ = (_cells(table, label) for table in page.locator("table.numbers").all())
        assert first[ACCURACY] == f"{mean(accuracies):.2f} ± {stdev(accuracies):.2f}"
        assert first[FINAL] == f"{mean(finals):.2f} ± {stdev(finals):.2f}"
        assert second[SAMPLES] == f"{round(mean(each['generated'] for each in summaries)):,}"


def _cells(table, label):
    row = table.locator("tbody tr", has_text=label)
    return [text.split("\n")[0] for text in row.locator("td").all_inner_texts()]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_report_fits_its_screen_and_shows_all_pictures(page, width, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    wait_until(lambda: page.evaluate(f"{CHARTS}.every(shown => shown <= {width})"))
    assert overflow(page) <= 0
    assert min(page.evaluate(MARGINS)) >= 0
    assert page.evaluate(FAULTS) == []
    pictures = page.evaluate(IMAGES)
    assert len(pictures) == 10
    assert all(complete and natural > 0 and 0 < shown <= width for complete, natural, shown in pictures)
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{width}-report-{scheme}.png", full_page=True)


def test_the_toolbar_covers_no_part_of_a_chart_and_uploads_nothing(page):
    for chart in page.locator(".chart").all():
        chart.hover()
        toolbar, drawn = chart.locator(".modebar").bounding_box(), chart.locator(".nsewdrag").bounding_box()
        assert toolbar["height"] > 0
        assert toolbar["y"] + toolbar["height"] <= drawn["y"]
    names = page.locator(".chart .modebar-btn").evaluate_all("all => all.map(each => each.dataset.title)")
    assert names
    assert not [name for name in names if "Share" in name]


def test_a_name_in_the_legend_switches_its_lines_off_and_on(page):
    figure = page.locator("figure", has=page.locator(".key")).first
    counted = [figure.locator(".scatterlayer .trace").count()]
    for _ in range(2):
        figure.get_by_role("button", name="even").click()
        counted.append(figure.locator(".scatterlayer .trace").count())
    assert counted[1] < counted[0] == counted[2]


def test_charts_have_the_colours_of_the_screen_and_of_paper(page):
    ink = "document.querySelector('.chart .xtick text').style.fill"
    found = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        wait_until(lambda: page.evaluate(f"{ink} === getComputedStyle(document.body).color"))
        found[scheme] = page.evaluate(ink)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ink) == found["light"] != found["dark"]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ink) == found["dark"]


def test_synthetic_images_are_enlarged_to_whole_pixels(page):
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.locator(".strips > span").all_inner_texts() == [str(label) for label in range(10)]
    for strip in page.locator(".strips > img").all():
        natural, shown = strip.evaluate("image => [image.naturalWidth, image.clientWidth]")
        assert shown > natural
        assert shown % natural == 0
        assert strip.evaluate("image => getComputedStyle(image).imageRendering") == "pixelated"
