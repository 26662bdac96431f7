"""The reference engine with clients that are absent in some rounds, to compare real absences with."""

from fedeas.config import load_config
from fedeas.federation.clients import LocalClients
from fedeas.federation.run import execute
from fedeas.federation.worker import LocalEngine
from fedeas.runs.store import RunStore


class Absences(LocalEngine):
    """`away` has the clients that do not answer, by round."""

    away: dict[int, set[int]]

    def map(self, task, broadcast, clients, round):
        there = [client for client in clients if client not in self.away.get(round, ())]
        return super().map(task, broadcast, there, round)


def run_with_absences(folder, overrides, away):
    class WithAbsences(LocalClients):
        def make_engine(self, worker):
            engine = super().make_engine(worker)
            engine.__class__, engine.away = Absences, away
            return engine

    bank = folder / ".bank"
    return execute(load_config(None, overrides), RunStore(folder), make_clients=lambda parts: WithAbsences(parts, bank))
