"""Rendered parts of the docs are up to date, and their examples and links work."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def load_renderer():
    spec = importlib.util.spec_from_file_location("render", ROOT / "docs" / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RENDERER = load_renderer()  # once, because it keeps the finished runs that it has read
RENDERED = RENDERER.PAGES
OTHERS = ("CHANGELOG.md", "CONTRIBUTING.md", "examples/flower_pytorch/README.md", "reproduction/results/README.md")
PAGES = [*RENDERED, *(ROOT / name for name in OTHERS)]


@pytest.mark.parametrize("page", RENDERED, ids=lambda page: str(page.relative_to(ROOT)))
def test_rendered_blocks_are_up_to_date(page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = page.read_text()
    assert RENDERER.rendered(text) == text, "run `make docs`"


@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_the_clean_protocol_comes_first(name):
    tables = re.findall(r"<!-- \$ python -m reproduction (.*--show.*) -->", (ROOT / name).read_text())
    assert tables[0].startswith("references --protocol clean ")


def test_no_result_on_the_page_of_results_is_typed():
    page = (ROOT / "docs" / "results.md").read_text()
    typed = re.sub(r"```.*?```", "", RENDERER.BLOCK.sub("", page), flags=re.DOTALL)
    assert not re.findall(r"\d+\.\d+", typed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def test_every_image_is_shown_on_a_page():
    shown = {name for page in PAGES for name in re.findall(r"images/([\w.-]+)\)", page.read_text())}
    assert {image.name for image in (ROOT / "docs" / "images").iterdir()} <= shown


def anchors(page):
    """The link targets of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_no_merge_was_left_half_done():
    marks = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
    assert not [page for page in PAGES if marks.search(page.read_text())]


def test_every_rendered_block_has_its_end():
    for page in PAGES:
        text = page.read_text()
        starts = sum(text.count(f"<!-- {kind}") for kind in ("$ ", "code ", "measured ", "tried -->", "fuzzed -->"))
        assert starts == text.count("<!-- end -->")


def test_the_performance_page_is_rendered_from_the_measured_results():
    script = "import page; print(page.page(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / "docs" / "performance.md").read_text(), "run `make bench`"
