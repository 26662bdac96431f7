"""Symbolic links in an output folder: no command writes through one, whatever it leads to."""

import shutil
from contextlib import suppress

import numpy as np
import pytest

from fedeas.calls.plan_images import ImageFormat, source_for, write_images
from fedeas.cli import main
from fedeas.config import load_config
from fedeas.core.errors import FedEASError
from fedeas.federation.run import execute
from fedeas.planning.counts import Allocation
from fedeas.runs.store import RunStore

PLAN = Allocation([[2, 1], [0, 2]], "by hand", ["A", "B"], ["cat", "dog"])
SMALL = ["data.dataset=digits", "partition.clients=3", "rounds.total=3", "policy=fedeas(beta=3)", "train.epochs=1"]


def dots(labels, index):
    return (labels + index % 7).astype(np.uint8)[:, None, None, None].repeat(4, 2).repeat(4, 3)


def images(form, bank=None):
    def make(out):
        write_images(source_for(PLAN, dots, shape=(1, 4, 4)), out, form, bank=out / bank if bank else None)

    return make


def a_run(pauses):
    """The same run again: broken off after each call, so that there is always something to write."""

    def make(out):
        execute(load_config(None, SMALL), RunStore(out), pause=lambda record: pauses)

    return make


def command(*arguments):
    def make(out):
        with pytest.raises(SystemExit):
            main([argument.format(out) for argument in arguments])

    return make


WORKS = {
    **{f"generate as {form}": images(form) for form in ImageFormat},
    "generate with a bank": images(ImageFormat.FOLDER, "bank"),
    "plan": command("plan", "--example", "--out", "{}/plan.csv", "--plot", "{}/plan.png"),
    "plan as Parquet": command("plan", "--example", "--out", "{}/plan.parquet"),
    "partition": command("partition", "digits", "--clients", "4", "--out", "{}/split.npz"),
    "a run": a_run(pauses=False),
    "a run that is broken off": a_run(pauses=True),
}


@pytest.mark.parametrize("leads_to", ["a copy", "other content", "nothing"])
@pytest.mark.parametrize("work", WORKS)
def test_nothing_is_written_through_a_link_in_place_of_a_file(work, leads_to, tmp_path, capsys):
    make, whole, target = WORKS[work], tmp_path / "whole", tmp_path / "target"
    whole.mkdir()
    make(whole)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert files
    for file in files:
        out = shutil.copytree(whole, tmp_path / "out")
        if leads_to == "a copy":
            shutil.copy(out / file, target)
        elif leads_to == "other content":
            target.write_bytes(b"precious")
        before = target.read_bytes() if target.exists() else None
        (out / file).unlink()
        (out / file).symlink_to(target)
        with suppress(FedEASError):
            make(out)
        assert (target.read_bytes() if target.exists() else None) == before, file
        target.unlink(missing_ok=True)
        shutil.rmtree(out)


@pytest.mark.parametrize("work", [work for work in WORKS if "generate" in work or "run" in work])
def test_nothing_is_written_through_a_link_in_place_of_a_folder(work, tmp_path):
    make, whole, target = WORKS[work], tmp_path / "whole", tmp_path / "target"
    whole.mkdir()
    make(whole)
    folders = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_dir())
    for folder in (folder for folder in folders if folder.name != "bank"):  # the user names the bank: it may be a link
        out = shutil.copytree(whole, tmp_path / "out")
        shutil.rmtree(out / folder)
        target.mkdir()
        (out / folder).symlink_to(target)
        with suppress(FedEASError):
            make(out)
        assert not [*target.iterdir()], folder
        target.rmdir()
        shutil.rmtree(out)
