"""The documentation site: every page is in its navigation, it builds without a warning, and its tutorial runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedeas

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_every_page_is_in_the_navigation_once():
    entries = re.findall(r"^[\w/-]+$", (DOCS / "index.md").read_text(), re.MULTILINE)
    pages = [page.relative_to(DOCS).with_suffix("") for pattern in ("*.md", "*/*.ipynb") for page in DOCS.glob(pattern)]
    assert sorted(entries) == sorted(str(page) for page in pages if page.name != "index")


def test_the_python_reference_has_every_public_name():
    documented = re.findall(r"^\.\. auto\w+:: fedeas\.(\w+)", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert set(dir(fedeas)) - {"__version__"} <= set(documented)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    """The build executes the notebooks and stops at the first error in one."""
    for needed in ("furo", "myst_nb"):
        pytest.importorskip(needed, reason="the site's tools are missing: pip install '.[docs]'")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path / "site")]
    done = subprocess.run([*command, "-d", str(tmp_path / "trees")], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "CSV, Parquet or NPY" in (tmp_path / "site" / "command-line.html").read_text()


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run_one_after_the_other(tmp_path):
    page = (DOCS / "tutorial.md").read_text()
    (tmp_path / "make_hospitals.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    here = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path / "flwr"),
    }
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env=os.environ | here, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    local, flower = (sorted((tmp_path / name).glob("planned-*/summary.json")) for name in ("runs", "flower-runs"))
    assert (len(local), len(flower)) == (2, 1)
    assert flower[0].parent.name in {path.parent.name for path in local}
    assert (tmp_path / "report.html").exists()
