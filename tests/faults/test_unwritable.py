"""Full and read-only disks: one line, the right exit code, and nothing half written."""

import errno
import os
import subprocess
from dataclasses import replace

import pytest

from deploy.flower.__main__ import main as deployment
from deploy.flower.certificates import Certificates
from fedeas import InputError
from fedeas.cli import main
from fedeas.config import load_config
from fedeas.core import files
from fedeas.core.errors import RunError
from fedeas.core.records import Journal
from fedeas.federation.run import execute
from fedeas.generators.diffusion.presets import PRESETS
from fedeas.runs.store import RunStore

SMALL = ["data.dataset=digits", "partition.clients=4", "rounds.total=2", "policy=fedeas(beta=3)", "train.epochs=1"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The training of a generator takes few images, and no command announces how long it takes on a busy machine."""
    monkeypatch.setattr("fedeas.cli.progress.LONG", float("inf"))
    monkeypatch.setitem(PRESETS, "digits", replace(PRESETS["digits"], batch=8, steps=2))


def told(capsys, *arguments):
    """The exit code and the only line on standard error."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.startswith("error: "), error
    return end.value.code


COMMANDS = {
    "plan --out": ["plan", "--example", "--out", "{}/plan.csv"],
    "plan --plot": ["plan", "--example", "--plot", "{}/plan.png"],
    "partition --out": ["partition", "digits", "--clients", "4", "--out", "{}/split.npz"],
    "run": ["run", *SMALL, "--runs", "{}/runs"],
    "generator train": ["generator", "train", "digits", "--updates", "1", "--device", "cpu", "--out", "{}/weights"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_read_only_folder_is_told_in_one_line(command, tmp_path, read_only, capsys):
    read_only(tmp_path)
    assert told(capsys, *(part.format(tmp_path) for part in COMMANDS[command])) == 2


def test_a_broken_off_run_on_a_read_only_disk_is_told_in_one_line(tmp_path, read_only, capsys):
    run = execute(load_config(None, SMALL), RunStore(tmp_path), pause=lambda record: True)
    read_only(tmp_path)
    assert told(capsys, "run", *SMALL, "--runs", tmp_path) in (2, 3)
    assert told(capsys, "report", run.path, "--out", tmp_path / "report.html") == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_told_in_one_line_and_leaves_no_part(command, small_disk, capsys):
    disk = small_disk(8)
    (disk / "ballast").write_bytes(bytes(8192))
    assert told(capsys, *(part.format(disk) for part in COMMANDS[command])) == 3
    assert not [path for path in disk.rglob(".*") if path.name not in (".lock", ".bank", ".locks")]


def test_a_folder_for_keys_that_is_read_only_is_told_in_one_line(tmp_path, read_only, capsys):
    read_only(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        deployment(["keys", str(tmp_path / "keys")])
    said = capsys.readouterr().err
    assert (stopped.value.code, said.count("\n")) == (2, 1)
    assert said.startswith("error: ")


def test_keys_are_made_once_there_is_room_again(small_disk):
    made = Certificates(small_disk(8) / "keys")
    (made.folder.parent / "ballast").write_bytes(bytes(4096))
    with pytest.raises((InputError, OSError)):
        made.make()
    subprocess.run(["mount", "-o", "remount,size=100k", str(made.folder.parent)], check=True)
    made.make()
    assert made.server.exists()


def test_a_training_that_fills_the_disk_keeps_the_state_before(small_disk, capsys):
    disk = small_disk(40_000)
    train = [part.format(disk) for part in COMMANDS["generator train"]]
    with pytest.raises(SystemExit) as end:
        main(train)
    assert end.value.code == 0
    capsys.readouterr()
    before = {path.name: path.read_bytes() for path in (disk / "weights").iterdir()}
    room = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(room.f_bavail * room.f_frsize))
    assert told(capsys, *train) == 3
    assert {path.name: path.read_bytes() for path in (disk / "weights").iterdir()} == before


@pytest.mark.parametrize(("number", "expected"), [(errno.ENOSPC, RunError), (errno.EROFS, InputError)])
def test_a_failed_write_leaves_the_file_as_it_was(tmp_path, number, expected):
    path = tmp_path / "file"
    path.write_text("before")

    def fails():
        with files.written_whole(path) as part:
            part.write_text("after")
            raise OSError(number, os.strerror(number))

    with pytest.raises(expected):
        fails()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_names_as_long_as_the_file_system_allows_can_be_written(tmp_path):
    path = tmp_path / ("ä" * 120 + ".json")
    files.write_bytes(path, b"content")
    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("name", ["x" * 300, f"x.{'y' * 300}", f"{'x' * 300}/file", f"{'x/' * 3000}file"])
def test_a_name_that_is_too_long_is_told_in_one_line(tmp_path, name, capsys):
    with pytest.raises(InputError, match=r"cannot be written \(File name too long\)"):
        files.write_bytes(tmp_path / name, b"")
    with pytest.raises(InputError, match=r"cannot be (written|created) \(File name too long\)"):
        Journal(tmp_path / name, "").add({})
    assert told(capsys, "plan", "--example", "--out", tmp_path / f"{name}.csv") == 2
