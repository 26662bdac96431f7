"""A process of Flower's own executor loads the node's app and no other."""

import os
import subprocess
import sys
from io import BytesIO
from zipfile import ZipFile

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

from deploy.flower.app import Bundle
from deploy.flower.stock_executor import APP, guarded

LOAD = """
import importlib, sys
sys.path.insert(0, sys.argv[1])  # as Flower does
importlib.import_module(sys.argv[2])
print("loaded")
"""


def load(folder, module, **more):
    """Load a module in a guarded process, with the app in `folder` unpacked."""
    command = [sys.executable, "-c", LOAD, str(folder), module]
    surroundings = {**os.environ, **guarded(Bundle.of()), **more}
    return subprocess.run(command, env=surroundings, capture_output=True, text=True)


@pytest.fixture
def unpacked(tmp_path):
    """The node's app as Flower unpacks it."""
    folder = tmp_path / "apps" / "fedeas"
    with ZipFile(BytesIO(Bundle.of().content)) as files:
        files.extract("pyproject.toml", folder)
    return folder


def test_the_nodes_app_is_loaded(unpacked):
    done = load(unpacked, "colorsys")
    assert done.stdout == "loaded\n", done.stderr


@pytest.mark.parametrize("file", ["hostile.py", "colorsys.py", "colorsys/__init__.py", "__pycache__/x.pyc", "more.txt"])
def test_an_app_with_another_file_is_refused(unpacked, file):
    (unpacked / file).parent.mkdir(exist_ok=True)
    (unpacked / file).write_text("print('hostile')")
    done = load(unpacked, "hostile" if file == "hostile.py" else "colorsys")
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("ImportError: this node runs fedeas/fedeas")


def test_an_app_with_another_content_is_refused(unpacked):
    with (unpacked / "pyproject.toml").open("a") as file:
        file.write('more = "1"\n')
    done = load(unpacked, "colorsys")
    assert done.returncode
    assert "this node runs" in done.stderr


def test_a_guard_that_does_not_know_its_app_ends_the_process(unpacked):
    done = load(unpacked, "colorsys", **{APP: "nonsense"})
    assert done.returncode
    assert done.stdout == ""


def test_the_sitecustomize_of_an_installation_is_imported_too(unpacked, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    path = os.pathsep.join((guarded(Bundle.of())["PYTHONPATH"], str(tmp_path)))
    assert load(unpacked, "colorsys", PYTHONPATH=path).stdout == "mine\nloaded\n"
