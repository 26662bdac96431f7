"""Work that is killed at chosen or random moments: ``python crashes.py FOLDER COUNT WORKS HOWS`` prints the kills.

Every start is a fork of one process that has done the work once, so that a kill costs a fraction of a second.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import torch

from fedeas.config import load_config
from fedeas.core.errors import InputError
from fedeas.core.weight_files import read_tensors
from fedeas.federation import checkpoint
from fedeas.federation.run import execute
from fedeas.generators.bank import Bank
from fedeas.generators.diffusion import training
from fedeas.generators.diffusion.presets import Network, Preset
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.runs.store import RunStore

RUN = [
    "data.dataset=digits", "partition.clients=4", "rounds.total=3", "rounds.participation=0.5", "train.epochs=1",
    "policy=fedeas(beta=3)", "algorithm=scaffold", "model.name=small-cnn", "engine.name=local", "data.protocol=clean",
]  # fmt: skip
TINY = Preset(
    Network((8, 16), layers=1, attention=(False, False), groups=4), batch=8, updates=6, lr=1e-2, ema=0.6, steps=3
)
LABELS, NUMBERS = (part.reshape(-1) for part in np.meshgrid(np.arange(3), np.arange(20)))


class Noise:
    """A generator for the bank: noise from the address."""

    num_classes, shape, batch_size, fingerprint = 3, (1, 8, 8), 7, "ab" * 32

    def sample(self, labels, index):
        pairs = zip(labels.tolist(), index.tolist(), strict=True)
        return np.stack([np.random.default_rng(pair).integers(0, 256, self.shape, dtype=np.uint8) for pair in pairs])


def work_run(folder):
    execute(load_config(None, RUN), RunStore(folder))


def work_bank(folder):
    Bank(folder).of(Noise()).sample(LABELS, NUMBERS + (np.arange(LABELS.size) % 4 << 32))


def work_training(folder):
    images = np.random.default_rng(0).integers(0, 256, (12, 1, 4, 4), dtype=np.uint8)
    training.train(Trainer(images, np.arange(12) % 2, ("a", "b"), TINY), folder)


def work_flower(folder):
    """A Flower server and its nodes in one process: all of them are killed in the same moment."""
    from flower.grids import StraightGrid

    from fedeas.flower.app import run_on

    config = load_config(None, [*RUN, "engine.name=flower"])
    run_on(StraightGrid(folder / "nodes", 4), config, RunStore(folder / "runs"))


WORK = {"run": work_run, "bank": work_bank, "training": work_training, "flower": work_flower}


# ---- what came of it


def outcome_run(folder):
    (run,) = RunStore(folder).all()
    records = [*run.rounds(), run.summary()]
    timeless = [{key: value for key, value in each.items() if key != "seconds"} for each in records]
    return timeless, tensors_in(run.checkpoint), sorted(path.name for path in run.path.iterdir())


def outcome_bank(folder):
    name = Noise.fingerprint[:16]
    checked = Bank(folder).verify(name)
    images = Bank(folder).of(Noise()).sample(LABELS, NUMBERS + (np.arange(LABELS.size) % 4 << 32))
    return checked.damaged, checked.checked, images.tobytes(), sorted(path.name for path in (folder / name).iterdir())


def outcome_training(folder):
    state = {name: value for name, value in tensors_in(folder / training.STATE).items() if name != "loss"}
    return state, tensors_in(folder / training.GENERATOR), sorted(path.name for path in folder.iterdir())


def outcome_flower(folder):
    """As of a run, with the nodes' files; how many states a node keeps depends on when the server had saved its own."""
    files = (path for path in (folder / "nodes").rglob("*") if not path.name.startswith("state-"))
    return *outcome_run(folder / "runs"), sorted(str(path.relative_to(folder)) for path in files)


OUTCOME = {"run": outcome_run, "bank": outcome_bank, "training": outcome_training, "flower": outcome_flower}


def tensors_in(path):
    return {name: tensor.reshape(-1).tolist() for name, tensor in read_tensors(path)[1].items()}


# ---- kills


def kill_at(point):
    """Kill this process at the `point`-th moment at which the disk changes: before, between and after."""
    left = point

    def moment():
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    replace, fsync, pwrite = Path.replace, os.fsync, os.pwrite

    def replace_or_die(self, target):
        moment()
        replace(self, target)
        moment()

    def fsync_or_die(descriptor):
        moment()
        fsync(descriptor)

    def pwrite_or_die(descriptor, content, offset):
        half = pwrite(descriptor, content[: len(content) // 2], offset)
        moment()
        return half + pwrite(descriptor, content[half:], offset + half)

    Path.replace, os.fsync, os.pwrite = replace_or_die, fsync_or_die, pwrite_or_die


def start(work, folder, point=0, seconds=0.0, refusable=False):
    """Fork a process that does the work, and is killed at this point or after so many seconds of computing.

    It may be refused where another one works.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        if point:
            kill_at(point)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends a process at once, as SIGKILL does
        WORK[work](folder)
        os._exit(0)
    except BaseException as error:
        if refusable and isinstance(error, InputError) and "another process is" in str(error):
            os._exit(0)
        traceback.print_exc()
        os._exit(1)


def was_killed(pid):
    """Wait for the process; whether it was killed. Any other failure ends the whole."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"a start failed with code {os.waitstatus_to_exitcode(status)}")
    return False


def seconds_of(pid):
    """Wait for the process; how long it computed."""
    _, status, used = os.wait4(pid, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime


def chain(work, folder, count):
    """Kill each start a little later than the one before, until one comes through."""
    kills, point = 0, 1
    while was_killed(start(work, folder, point)):
        kills, point = kills + 1, point + 1 + point // 2
    return kills


def each(work, folder, count):
    """For every moment, a start that is killed there and one that ends the work."""
    kills = 0
    while was_killed(start(work, folder / str(kills), kills + 1)):
        was_killed(start(work, folder / str(kills)))
        kills += 1
    shutil.rmtree(folder / str(kills))
    return kills


def at_random(work, folder, count):
    """`count` kills at random times; whenever the work is done, it begins anew elsewhere."""
    rng, kills, done = random.Random(f"{work} {count}"), 0, 1
    usual = seconds_of(start(work, folder / "0"))
    while kills < count:
        if was_killed(start(work, folder / str(done), seconds=rng.uniform(0.0, usual))):
            kills += 1
        else:
            done += 1
    was_killed(start(work, folder / str(done)))
    return kills


def together(work, folder, count):
    """`count` processes at once on one folder; one may be told that another works there, and none is killed."""
    pids = [start(work, folder, refusable=True) for _ in range(count)]
    return sum(os.waitpid(pid, 0)[1] for pid in pids)


HOW = {"together": together, "chain": chain, "each": each, "random": at_random}


def main(folder, count, works, hows):
    """Kill each of the works in each way; how often."""
    torch.set_num_threads(1)
    checkpoint.SHARE = float("inf")  # after every round
    training.SAVE_SECONDS = -1.0  # after every look
    for work in works:
        with tempfile.TemporaryDirectory() as scratch:
            WORK[work](Path(scratch))
    return {how: {work: HOW[how](work, folder / how / work, count) for work in works} for how in hows}


if __name__ == "__main__":
    folder, count, works, hows = sys.argv[1:]
    print(json.dumps(main(Path(folder), int(count), works.split(","), hows.split(","))))
