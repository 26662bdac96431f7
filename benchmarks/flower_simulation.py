"""Seconds a round on Flower's simulation, with the same local loop as ours.

Each actor builds the worker once, as a good Flower app would. What the actors take to start is left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

# For the processes that are started, ours and Flower's: one thread each.
os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_DEDUP_LOGS="0", OMP_NUM_THREADS="1")

import torch

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import MODEL, ClientJob
from fedeas.data.client import ClientData
from fedeas.federation.worker import Worker


def seconds_a_round(
    make_worker: Callable[[], Worker], clients: int, participants: int, epochs: int, cores: int, rounds: int
) -> float:
    """With a process for each core."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
    from flwr.simulation import run_simulation

    client_app, server_app, spent = ClientApp(), ServerApp(), list[float]()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        worker, client = _of_this_actor(make_worker), int(context.node_config["partition-id"])
        weights = message.content["arrays"].to_torch_state_dict()
        job = ClientJob(
            client=client,
            round=int(message.content["config"]["server-round"]) - 1,
            seed=0,
            total_rounds=rounds,
            model=worker.model,
            data=_data(make_worker, client),
            broadcast={MODEL + name: tensor for name, tensor in weights.items()},
            state={},
            train=worker.train.model_copy(update={"epochs": epochs}),
        )
        reply, _ = FedAvg().client_update(job)
        arrays = ArrayRecord({name.removeprefix(MODEL): tensor for name, tensor in reply.arrays.items()})
        metrics = MetricRecord({"num-examples": reply.weight})
        return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        initial = ArrayRecord(make_worker().model.state_dict())
        strategy = FlowerFedAvg(fraction_train=participants / clients, fraction_evaluate=0.0)

        for number in (2, rounds):  # in the first two, actors start and clients load their data
            start = time.perf_counter()
            strategy.start(grid, initial, num_rounds=number)
            spent.append((time.perf_counter() - start) / number)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": cores}}
    run_simulation(server_app, client_app, clients, backend_config=resources)
    return spent[-1]


_held: dict[str | int, object] = {}
"""What an actor has built; functions that reach it by value cannot be the keys of a cache."""


def _of_this_actor(make_worker: Callable[[], Worker]) -> Worker:
    if "worker" not in _held:
        _held["worker"] = make_worker()
    return _held["worker"]  # type: ignore[return-value]


def _data(make_worker: Callable[[], Worker], client: int) -> ClientData:
    if client not in _held:
        _held[client] = _of_this_actor(make_worker).load_client(client)
    return _held[client]  # type: ignore[return-value]
