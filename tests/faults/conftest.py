"""Places where writing fails: a disk that is full, and one that may only be read."""

import subprocess

import pytest
from tried import keep_tried, tried_today


def pytest_addoption(parser):
    parser.addoption("--tried", help="JSON file for what the soak tests tried.")


@pytest.fixture(scope="session")
def tried(request):
    """Note how often something was tried, after it has gone well; kept at once, beside what else was tried today."""
    path = request.config.getoption("--tried", default=None)

    def note(what, times):
        if path:
            keep_tried(path, {**tried_today(path), what: times})

    return note


def _mounted(*arguments):
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True).returncode == 0


def _unmount(path):
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    """Make an empty disk of so many KB; without the right to mount, the test is skipped."""
    mounts = []

    def make(kilobytes):
        path = tmp_path / f"disk{len(mounts)}"
        path.mkdir()
        if not _mounted("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", path):
            pytest.skip("mounting needs root")
        mounts.append(path)
        return path

    yield make
    for path in mounts:
        _unmount(path)


@pytest.fixture
def read_only(tmp_path):
    """Make a folder read-only, for root too; without the right to mount, the test is skipped."""
    mounts = []

    def make(path):
        if not _mounted("--bind", path, path):
            pytest.skip("mounting needs root")
        mounts.append(path)
        if not _mounted("-o", "remount,ro,bind", path):
            pytest.skip("remounting needs root")

    yield make
    for path in mounts:
        _unmount(path)
