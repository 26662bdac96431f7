"""What does a round cost outside training on Flower's simulation: our engine against Flower's own FedAvg?

A ResNet-18 of 11 million parameters and ten clients of four small images each, so that nearly all of a round is
messages and averaging. Both sides train the same model on as many images; what the clients report as training is taken
off, shared out over the processors. Our rounds write their records and checkpoints as always.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from measure import save

from fedeas.config import load_config
from fedeas.flower.app import simulate, simulated_machine
from fedeas.models.build import build_model
from fedeas.runs.store import RunStore

CLIENTS, ROUNDS, SHAPE = 10, 8, (1, 8, 8)
Rounds = list[tuple[float, float]]
"""Wall-clock and training seconds."""


def outside(rounds: Rounds) -> float:
    """Seconds of a round beside training: the median over all but the first two, in which processes start."""
    return median(wall - training / (os.cpu_count() or 1) for wall, training in rounds[2:])


def ours(folder: Path) -> Rounds:
    images = np.random.default_rng(0).integers(0, 256, (50, *SHAPE), dtype=np.uint8)
    labels = np.arange(50) % 10
    parts = {"images": images[:40], "labels": labels[:40], "test_images": images[40:], "test_labels": labels[40:]}
    np.savez(folder / "few.npz", **parts)
    settings = [f"partition.clients={CLIENTS}", "partition.scheme=iid", f"rounds.total={ROUNDS}", "train.epochs=1",
                "rounds.participation=1.0", "rounds.gamma_hat=false", "model.name=resnet18", "engine.name=flower",
                f'data.dataset="npz:{folder}/few.npz"', f"rounds.eval_every={ROUNDS}"]  # fmt: skip
    ends = [time.perf_counter()]
    run = simulate(load_config(None, settings), RunStore(folder), lambda record: ends.append(time.perf_counter()))
    walls = np.diff(ends).tolist()
    return list(zip(walls, (record["seconds"]["train"] for record in run.rounds()), strict=True))


server, client = ServerApp(), ClientApp()
measured: Rounds = []


class Timed(FedAvg):
    """Flower's FedAvg, with the time of every round."""

    last = 0.0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """The round ends here."""
        kept = list(replies)
        result = super().aggregate_train(server_round, kept)
        now = time.perf_counter()
        measured.append((now - self.last, sum(float(reply.content["metrics"]["seconds"]) for reply in kept)))
        self.last = now
        return result


@server.main()
def main(grid: Grid, context: Context) -> None:
    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    strategy.last = time.perf_counter()
    model = build_model("resnet18", SHAPE, 10, seed=0)
    strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=ROUNDS)


@client.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    model = build_model("resnet18", SHAPE, 10, seed=0)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    start = time.perf_counter()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    loss = torch.nn.functional.cross_entropy(model(torch.rand(4, *SHAPE)), torch.arange(4))
    loss.backward()
    optimiser.step()
    metrics = MetricRecord({"num-examples": 4, "seconds": time.perf_counter() - start})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


def theirs(folder: Path) -> Rounds:
    with simulated_machine(folder) as resources:
        run_simulation(server, client, num_supernodes=CLIENTS, backend_config=resources)
    return measured


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        own, plain = outside(ours(Path(folder))), outside(theirs(Path(folder)))
    question = f"A round on Flower's simulation outside training: {CLIENTS} clients, 11 million parameters"
    rows: list[dict[str, object]] = [
        {"server": "fedeas", "s a round": round(own, 2), "times": round(plain / own, 2)},
        {"server": "Flower's FedAvg", "s a round": round(plain, 2), "times": 1.0},
    ]
    save("flower-overhead", question, rows)
