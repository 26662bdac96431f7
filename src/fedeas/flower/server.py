"""The server of a run whose clients are Flower nodes: it knows its test set and what the clients reveal."""

from __future__ import annotations

import logging
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from fedeas.algorithms.base import Arrays, Fleet
from fedeas.config import RunConfig
from fedeas.federation.engines.base import Engine
from fedeas.federation.identity import unknown_content
from fedeas.federation.run import Federation, trained
from fedeas.flower.client import About, refuse_foreign_code
from fedeas.flower.engine import FlowerEngine
from fedeas.flower.revealed_counts import Needs, Numbers, needs, shares
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import parse_policy
from fedeas.runs.store import Record, Run

log = logging.getLogger("fedeas")


class DistributedFederation(Federation):
    """The same rounds, algorithms and records as on one machine, over Flower's grid."""

    def __init__(self, config: RunConfig, grid: Grid) -> None:
        refuse_foreign_code(config)
        super().__init__(config)
        self.policy = parse_policy(config.policy)
        about = asdict(About.of(self.data.dataset))
        header = {"config": self.config.model_dump(mode="json"), "about": about}
        self.engine = FlowerEngine(grid, self.config.partition.clients, config.engine, header, self.device)
        self.totals: dict[int, int] = {}

    @cached_property
    def counts(self) -> LabelCounts:
        """Label counts of the clients, if they shared them."""
        rows = [self.engine.introductions[client]["counts"] for client in range(self.config.partition.clients)]
        return LabelCounts(np.array(rows), classes=self.data.dataset.classes)

    def prepare(self) -> None:
        """Note content whose training data are unknown; the plan and the images are made later, with the clients."""
        self.unknown = unknown_content(self.config)

    def _engine(self, run: Run) -> Engine:
        """Wait for the clients and send each its part of the plan."""
        self.engine.meet(anew=not run.checkpoint.exists())
        own = [client for client, told in sorted(self.engine.introductions.items()) if told.get("own_data")]
        if own:
            log.warning("not known to the run: the own data of clients %s", own)
        shared = needs(self.policy) is Needs.COUNTS
        if shared:
            run.save_allocation(self.counts, self.allocation)
        answers = self.engine.ask("query.settle", self._shares(self.allocation if shared else None))
        self.totals = {client: int(answer["total"]) for client, answer in answers.items()}
        return self.engine

    def _shares(self, allocation: Allocation | None) -> dict[int, dict[str, Any]]:
        """What the server tells each client about the plan."""
        clients = range(self.config.partition.clients)
        if allocation is not None:
            return {client: {"row": allocation.n[client].tolist()} for client in clients}
        if needs(self.policy) is Needs.NOTHING:
            return {client: {} for client in clients}
        told = self.engine.introductions
        revealed = [Numbers(int(told[client]["total"]), int(told[client]["absent"])) for client in clients]
        return {client: {"share": asdict(share)} for client, share in enumerate(shares(self.policy, revealed))}

    def _starting_point(self, run: Run, engine: Engine) -> tuple[int, Arrays]:
        start, server = super()._starting_point(run, engine)
        for record in run.rounds():  # rounds before the checkpoint
            self.engine.accepted.update(dict.fromkeys(trained(record), record["round"] - 1))
        self.engine.client_states()
        return start, server

    def _fleet(self) -> Fleet:
        told = self.engine.introductions
        sizes = np.array([told[client]["size"] for client in range(len(told))])
        return Fleet(sizes, self.data.dataset.num_classes, self.config.seed)

    def _generated(self, newcomers: set[int]) -> int:
        return sum(self.totals[client] for client in newcomers)

    def _budget(self) -> Record:
        """The budget; without the clients' counts, the imbalance removed is unknown."""
        if needs(self.policy) is Needs.COUNTS:
            return super()._budget()
        total, real = sum(self.totals.values()), int(self._fleet().sizes.sum())
        return {"total": total, "imbalance_removed": None, "synthetic_share": total / (total + real)}
