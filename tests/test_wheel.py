"""The wheel alone, installed in an environment of its own and used in another folder: import, plan, run and report."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUICK = ["rounds.total=1", "train.epochs=1", "engine.threads=1", "engine.processes=1", "policy=no-generation"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "hatchling" in done.stderr:
        pytest.skip("hatchling, which builds the wheel, cannot be had from the package index")
    assert not done.returncode, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def fedeas(wheel, tmp_path_factory):
    """Run a command of the installed wheel; what it depends on comes from this environment."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, symlinks=True)
    install = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib"), "COLUMNS": "100", "HOME": str(home)}
    environment |= {"FEDEAS_CACHE": str(home / "cache"), "FEDEAS_WEIGHTS": ""}

    def call(*arguments, program="fedeas"):
        command = [home / "bin" / program, *arguments]
        return subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True)

    call.folder, call.home = elsewhere, home
    return call


@pytest.mark.slow
def test_the_wheel_holds_the_library_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"fedeas"}


@pytest.mark.slow
def test_the_source_release_holds_what_sets_up_servers_and_nodes(tmp_path):
    tool, python = tmp_path / "hatchling", [sys.executable, "-m"]
    if subprocess.run([*python, "pip", "install", "--quiet", "--target", str(tool), "hatchling"]).returncode:
        pytest.skip("hatchling, which builds the release, cannot be had from the package index")
    command = [*python, "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tool)}, check=True, capture_output=True)
    with tarfile.open(*tmp_path.glob("*.tar.gz")) as release:
        names = {name.partition("/")[2] for name in release.getnames()}
    kept = [path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    assert {name for name in kept if "__pycache__" not in name} <= names


@pytest.mark.slow
def test_the_wheel_is_imported_and_has_the_version_of_the_project(fedeas):
    done = fedeas("-c", "import fedeas; print(fedeas.__version__, fedeas.__file__)", program="python")
    version, place = done.stdout.split()
    assert version == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert place.startswith(str(fedeas.home))
    assert fedeas("--version").stdout == f"fedeas {version}\n"


@pytest.mark.slow
def test_the_wheel_is_what_runs(fedeas):
    done = fedeas("weights", "ls")
    assert str(fedeas.home) in done.stdout.replace("\n", "")
    assert str(ROOT) not in done.stdout


@pytest.mark.slow
def test_the_wheel_plans(fedeas):
    (fedeas.folder / "counts.csv").write_text("client,cat,dog\na,90,10\nb,5,200\n")
    done = fedeas("plan", "counts.csv", "--beta", "4", "--out", "plan.csv")
    assert done.returncode == 0, done.stderr
    assert (fedeas.folder / "plan.csv").read_text().count("\n") > 2


@pytest.mark.slow
def test_the_wheel_runs_a_config_by_name_and_reports_it(fedeas):
    done = fedeas("run", "digits", *QUICK)
    assert done.returncode == 0, done.stderr
    run = next((fedeas.folder / "runs").glob("digits-*"))
    assert json.loads((run / "summary.json").read_text())["rounds"] == 1
    done = fedeas("report", str(run), "--out", "report.html")
    assert done.returncode == 0, done.stderr
    assert "<html" in (fedeas.folder / "report.html").read_text()


@pytest.mark.slow
def test_the_wheel_brings_the_weights_of_digits_and_says_where_to_put_others(fedeas):
    assert fedeas("generator", "info", "digits").returncode == 0
    done = fedeas("generator", "info", "cifar10")
    assert done.returncode == 2
    assert str(fedeas.home / "cache" / "weights") in done.stderr
