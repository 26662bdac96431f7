"""Temporary files: those of dead processes are removed, those of living ones and of strangers are not."""

import os
import subprocess
import sys

import pytest

from fedeas import InputError
from fedeas.core import files
from fedeas.core.files import remove_leftovers, temporary, written_whole

DIES = """
import os, signal, sys
from pathlib import Path
from fedeas.core.files import written_whole
with written_whole(sys.argv[1]) as part:
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def left_behind(path):
    """The temporary file of a process that was killed while it wrote `path`."""
    subprocess.run([sys.executable, "-c", DIES, str(path)])
    (found,) = (each for each in path.parent.iterdir() if each.name.startswith("."))
    return found


def test_the_next_write_in_a_folder_removes_what_a_killed_process_left(tmp_path):
    assert left_behind(tmp_path / "checkpoint.safetensors").read_text() == "half"
    (tmp_path / ".own-file").write_text("not ours")
    with written_whole(tmp_path / "env.json") as part:
        part.write_text("{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".own-file", "env.json"]


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    part = temporary(tmp_path / "x.json")
    part.write_text("half")
    remove_leftovers(tmp_path)
    assert part.exists()


def test_what_another_machine_writes_is_left_alone_until_it_is_old(tmp_path, monkeypatch):
    part = left_behind(tmp_path / "x.json")
    monkeypatch.setattr(files, "_place", lambda: "0" * 8)
    remove_leftovers(tmp_path)
    assert part.exists()
    os.utime(part, (0, 0))
    remove_leftovers(tmp_path)
    assert not part.exists()


def test_temporary_folders_are_removed_with_their_content(tmp_path, monkeypatch):
    folder = temporary(tmp_path / "cache")
    folder.mkdir()
    (folder / "labels.npy").write_text("half")
    monkeypatch.setattr(files, "_TOKEN", "0" * 8)  # of an earlier process with this number
    remove_leftovers(tmp_path)
    assert not folder.exists()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="does not exist; create it first"), written_whole(tmp_path / "no" / "file"):
        pass
