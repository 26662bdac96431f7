"""What an ordinary user may not read: an error that names it, or the same result; never a result without it."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedeas.calls.plan_images import ImageFormat, source_for, write_images
from fedeas.config import load_config
from fedeas.core.errors import FedEASError
from fedeas.core.files import known_error
from fedeas.core.weight_files import folder_digest
from fedeas.data.sources import load_dataset, load_own
from fedeas.federation.run import execute
from fedeas.generators.bank import Bank
from fedeas.planning.counts import Allocation
from fedeas.runs.packed import read_runs
from fedeas.runs.store import RunStore

NOBODY = 65534
PLAN = Allocation([[2, 1], [0, 2]], "by hand", ["A", "B"], ["cat", "dog"])
SMALL = ["data.dataset=digits", "partition.clients=3", "rounds.total=2", "policy=fedeas(beta=3)", "train.epochs=1"]


@pytest.fixture
def place(monkeypatch):
    """A folder that belongs to an ordinary user, as pytest's own folders do not."""
    folder = Path(tempfile.mkdtemp(prefix="fedeas-unreadable-"))
    monkeypatch.setenv("FEDEAS_CACHE", str(folder / "cache"))
    yield folder
    shutil.rmtree(folder)


@contextmanager
def as_nobody():
    """Without the rights of root, who may read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def dots(labels, index):
    return (labels + index % 7).astype(np.uint8)[:, None, None, None].repeat(4, 2).repeat(4, 3)


def generate(form):
    return lambda base: write_images(source_for(PLAN, dots, shape=(1, 4, 4)), base, form)


def generated_again(form):
    return lambda base: generate(form)(base)[:2]  # none of which is made again


def write_pictures(base):
    for client in "AB":
        for label in ("cat", "dog"):
            (base / client / label).mkdir(parents=True)
            for number in range(3):
                Image.new("L", (3, 3), number).save(base / client / label / f"{number}.png")


def read_pictures(base):
    data = load_dataset(f"folder:{base}")
    return data.sample_names, data.test_names, data.digest


def read_banks(base):
    return [(kept.name, kept.images, kept.problem) for name in Bank(base).names() for kept in [Bank(base).kept(name)]]


def write_bank(base):
    write_images(source_for(PLAN, dots, shape=(1, 4, 4)), base / "out", bank=base)
    shutil.rmtree(base / "out")


def write_run(base):
    execute(load_config(None, SMALL), RunStore(base))


KINDS = {
    "images in folders": (write_pictures, read_pictures),
    "Parquet files": (generate(ImageFormat.PARQUET), lambda base: load_own(f"parquet:{base}").digest),
    "a model": (write_pictures, folder_digest),
    "a bank": (write_bank, read_banks),
    "runs": (write_run, lambda base: [(run.path, run.summary(), run.rounds()) for run in RunStore(base).all()]),
    "runs of a folder": (write_run, lambda base: [(run.path, run.summary()) for run in read_runs(base)]),
    **{f"generate as {form}": (generate(form), generated_again(form)) for form in ImageFormat},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_read_is_named_and_never_left_out(kind, place, caplog):
    write, read = KINDS[kind]
    base = place / "base"
    base.mkdir()
    write(base)
    b"".decode("cp437")  # of zip files; nobody may be unable to import modules, so this and `read` do it before
    sound = read(base)
    for path in (place, *place.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    with as_nobody():
        hidden = [path for path in (base, *sorted(base.rglob("*"))) if not path.name.startswith(".")]
        for path in hidden:
            mode = path.stat().st_mode
            for less in (0o000, 0o400) if path.is_dir() else (0o000,):
                path.chmod(less)
                shutil.rmtree(place / "cache", ignore_errors=True)
                caplog.clear()
                try:
                    found = read(base)
                except (FedEASError, OSError) as error:
                    known = known_error(error) if isinstance(error, OSError) else error
                    assert known is not None and str(path) in str(known), path
                else:
                    assert found == sound or str(path) in caplog.text + str(found), path
                finally:
                    path.chmod(mode)
