"""Algorithms that fail in worker processes, which import them from here."""

import os
import random
import signal
import uuid
from pathlib import Path

from fedeas.algorithms import FedAvg


class Mortal(FedAvg):
    """Kills its worker process at a given moment of a client's job, a limited number of times."""

    def __init__(self, folder: Path, moment: str, times: int, client: int):
        self.__dict__.update(folder=folder, moment=moment, times=times, client=client, home=os.getpid())

    def client_update(self, job):
        self._die(job, "before")
        done = super().client_update(job)
        self._die(job, "after")
        return done

    def _die(self, job, moment):
        deaths = len(list(self.folder.iterdir()))
        if (moment, job.client) == (self.moment, self.client) and os.getpid() != self.home and deaths < self.times:
            (self.folder / str(deaths)).touch()
            os.kill(os.getpid(), signal.SIGKILL)


class LocalError(ValueError):
    """An error that cannot be unpickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


class Faulty(FedAvg):
    """Raises an error at every client; that of one of them can be unpickled."""

    TRAVELS = 0

    def client_update(self, job):
        raise KeyError(f"client {job.client}") if job.client == self.TRAVELS else LocalError("not", "this")


class Endless(FedAvg):
    """Reports that it has started, and never ends."""

    def __init__(self, begun: Path):
        self.__dict__.update(begun=begun)

    def client_update(self, job):
        self.begun.touch()
        while True:
            pass


class Doomed(FedAvg):
    """Ends its worker process after a random part of a second of work, so many times in all.

    The kernel does it, by a timer: in the middle of whatever the process does then. The timer counts processor time, so
    that a busy machine does not keep the process from its work.
    """

    LONGEST = 0.1

    def __init__(self, folder: Path, times: int, seed: int):
        self.__dict__.update(folder=folder, times=times, seed=seed)

    def __setstate__(self, state):
        """In a new worker process."""
        self.__dict__.update(state)
        lives = len(list(self.folder.iterdir()))
        if lives < self.times:
            (self.folder / uuid.uuid4().hex).touch()
            signal.setitimer(signal.ITIMER_PROF, random.Random(f"{self.seed} {lives}").uniform(0.001, self.LONGEST))
