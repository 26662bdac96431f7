"""A process of a node loads the node's app and no other."""

import os
import subprocess
import sys
from zipfile import ZipFile

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

from deploy.flower.node import APP, bundled, guarded
from fedeas import InputError
from fedeas.flower.operator import write_app

LOAD = """
import importlib, sys
sys.path.insert(0, sys.argv[1])  # as Flower does
importlib.import_module(sys.argv[2])
print("loaded")
"""


@pytest.fixture(scope="module")
def surroundings():
    return guarded()


@pytest.fixture
def load(surroundings):
    """Load a module in a guarded process, with the app in `folder` unpacked."""

    def call(folder, module, **more):
        command = [sys.executable, "-c", LOAD, str(folder), module]
        return subprocess.run(command, env={**surroundings, **more}, capture_output=True, text=True)

    return call


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The node's app as Flower bundles it: the folder with the bundle, the name and the digests."""
    folder = tmp_path_factory.mktemp("bundle")
    return folder, *bundled(write_app(folder / "app"), folder)


@pytest.fixture
def unpacked(bundle, tmp_path):
    """The node's app as Flower unpacks it."""
    folder = tmp_path / "apps" / "fedeas"
    with ZipFile(*bundle[0].glob("*.fab")) as files:
        files.extract("pyproject.toml", folder)
    return folder


def test_the_nodes_app_is_loaded(unpacked, load):
    done = load(unpacked, "colorsys")
    assert done.stdout == "loaded\n", done.stderr


@pytest.mark.parametrize("file", ["hostile.py", "colorsys.py", "colorsys/__init__.py", "__pycache__/x.pyc", "more.txt"])
def test_an_app_with_another_file_is_refused(unpacked, load, file):
    (unpacked / file).parent.mkdir(exist_ok=True)
    (unpacked / file).write_text("print('hostile')")
    done = load(unpacked, "hostile" if file == "hostile.py" else "colorsys")
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("ImportError: this node runs fedeas/fedeas")


def test_an_app_with_another_content_is_refused(unpacked, load):
    with (unpacked / "pyproject.toml").open("a") as file:
        file.write('more = "1"\n')
    done = load(unpacked, "colorsys")
    assert done.returncode
    assert "this node runs" in done.stderr


def test_a_guard_that_does_not_know_its_app_ends_the_process(unpacked, load):
    done = load(unpacked, "colorsys", **{APP: "nonsense"})
    assert done.returncode
    assert done.stdout == ""


def test_the_sitecustomize_of_an_installation_is_imported_too(unpacked, load, surroundings, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    path = os.pathsep.join((surroundings["PYTHONPATH"], str(tmp_path)))
    assert load(unpacked, "colorsys", PYTHONPATH=path).stdout == "mine\nloaded\n"


def test_the_app_has_only_its_pyproject(bundle):
    _, name, files = bundle
    assert name.startswith("fedeas/fedeas ")
    assert set(files) == {"pyproject.toml"}


def test_a_folder_that_is_no_app_is_refused(tmp_path):
    with pytest.raises(InputError, match="flwr build --app"):
        bundled(tmp_path / "nowhere", tmp_path)
