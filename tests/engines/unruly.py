"""Algorithms that make trouble in worker processes, which import them from here."""

import os
import signal
from pathlib import Path

from fedeas.algorithms import FedAvg


class Mortal(FedAvg):
    """Kills its worker process at some moment of a client's job, so many times in all."""

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
    """An error that cannot be pickled and read again."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


class Faulty(FedAvg):
    """Raises an error at every client."""

    def __init__(self, travels: bool):
        self.__dict__.update(travels=travels)

    def client_update(self, job):
        raise KeyError(f"client {job.client}") if self.travels else LocalError("not", "this")


class Endless(FedAvg):
    """Says that it has begun, and never ends."""

    def __init__(self, begun: Path):
        self.__dict__.update(begun=begun)

    def client_update(self, job):
        self.begun.touch()
        while True:
            pass
