"""The clients of a run as its server sees them when they are Flower nodes: it knows what they reveal, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
from flwr.serverapp import Grid

from fedeas.config.run import OWN
from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.log import log
from fedeas.core.provenance import Answer
from fedeas.federation.clients import ReadyClients, budget_record, check_pool_size
from fedeas.federation.generator_rounds import DiffusionRounds
from fedeas.federation.generator_stage import GeneratorStage, OnStage
from fedeas.federation.parts import Parts
from fedeas.flower.engine import FlowerEngine
from fedeas.flower.grid import MessageWindow
from fedeas.flower.revealed_counts import Numbers, shares
from fedeas.flower.wire import About, Header
from fedeas.generators.registry import parse_generator
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import parse_policy
from fedeas.planning.policies.base import Needs
from fedeas.runs.store import Record, Run, trained

OWN_PARTS = ("data", "generator")
"""What clients may have of their own."""


class FlowerClients:
    """The nodes of Flower's grid as clients; rounds, algorithms and records are the same as on one machine.

    `members` tells which node is which client. `window` limits the messages under way; None for no limit.
    """

    def __init__(self, parts: Parts, grid: Grid, members: Mapping[int, int], window: MessageWindow | None) -> None:
        self.parts, self.grid, self.members, self.window = parts, grid, members, window
        clients = parts.config.partition.clients
        if members and (unbound := set(range(clients)) - set(members)):
            missing = f"the run has {clients} clients, and no node is registered for client {min(unbound)}"
            raise InputError(f"{missing}; add one with `python -m deploy.flower register`, or lower partition.clients")
        self.policy = parse_policy(parts.config.policy)

    def start(self, run: Run, done: Sequence[Record], on_stage: OnStage | None = None) -> ReadyClients | None:
        """Wait for the clients, send each its part of the plan, and let them train their generator if they do that."""
        config = self.parts.config
        # What nodes have of their own is unknown, so that another run cannot know that it is the same.
        stage = GeneratorStage.of(self.parts, run.path if config.partition.scheme == OWN else run.path.parent)
        about = asdict(About.of(self.parts.data.dataset))
        header = {"config": config.model_dump(mode="json"), "about": about}
        last = {client: record["round"] - 1 for record in done for client in trained(record)}
        engine = FlowerEngine(
            self.grid, config.partition.clients, config.engine, header, config.fingerprint, self.parts.device,
            accepted=last, kept=dict(last), members=self.members, scratch=run.path, window=self.window,
        )  # fmt: skip
        engine.meet(anew=not run.checkpoint.exists())
        told = [engine.introductions[client] for client in range(engine.num_clients)]
        own = {part: [client for client, each in enumerate(told) if each.get(f"own_{part}")] for part in OWN_PARTS}
        for part, clients in own.items():
            if clients:
                log.warning("not known to the run: the own %s of clients %s", part, clients)
        private = {client: each["privacy"] for client, each in enumerate(told) if "privacy" in each}
        if private:
            log.info("clients that clip their updates and add noise: %s", private)
        sizes = np.array([each["size"] for each in told])
        if self.policy.needs is Needs.COUNTS:
            generated, budget = self._settle_by_counts(engine, run, own["generator"])
        else:
            plans: list[Header] = [{} for _ in told]
            if self.policy.needs is Needs.NUMBERS:
                revealed = [Numbers(each["total"], each["filled"]) for each in told]
                plans = [{"share": asdict(share)} for share in shares(self.policy, revealed)]
            generated = np.array(engine.settle(plans))
            total, real = int(generated.sum()), int(sizes.sum())
            # Without the clients' counts, the imbalance that the budget removes is unknown.
            budget = {"total": total, "imbalance_removed": None, "synthetic_share": total / (total + real)}
        if own["generator"]:
            budget["seen"] = Answer.UNKNOWN  # of what these were made from
        if stage is None or not generated.any():
            return ReadyClients(engine, sizes, generated, budget)
        recipe = asdict(stage.algorithm.preset) if isinstance(stage.algorithm, DiffusionRounds) else {}
        weights = stage.train(lambda: engine.for_generator(recipe), sizes, on_stage)
        if weights is None:
            return None
        engine.give_generator(weights, sorted(set(np.flatnonzero(generated).tolist()) - set(own["generator"])))
        return ReadyClients(engine, sizes, generated, budget, stage=stage)

    def _settle_by_counts(self, engine: FlowerEngine, run: Run, own: list[int]) -> tuple[IntArray, Record]:
        """Compute the plan from the label counts of all clients, and send each its row.

        `own` are the clients with their own generator. Return how many images each client generates, and the budget for
        the run's summary.
        """
        classes = self.parts.data.dataset.classes
        rows = [engine.introductions[client]["counts"] for client in range(engine.num_clients)]
        for client, row in enumerate(rows):
            if len(row) != len(classes):
                known = f"counts of {len(row)} classes, not {len(classes)}"
                raise InputError(f"client {client} sent {known}; correct its data")
        counts = LabelCounts(rows, classes=classes)
        allocation = self.policy.allocate(counts)
        from_runs_generator = allocation.n.copy()
        from_runs_generator[own] = 0
        parse_generator(self.parts.config.generator).check_plan(from_runs_generator)
        check_pool_size(self.parts.config, counts, from_runs_generator)
        run.save_allocation(counts, allocation)
        generated = np.array(engine.settle([{"row": row.tolist()} for row in allocation.n]))
        return generated, budget_record(counts, allocation)
