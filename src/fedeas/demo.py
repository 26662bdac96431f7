"""The demo: on scikit-learn's digits, the same number of synthetic images is worth more where labels are scarce."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from rich.console import Console
from rich.progress import Progress

from fedeas.arrays import cores
from fedeas.config import EngineConfig, PartitionConfig, RoundsConfig, RunConfig, TrainConfig
from fedeas.data.sources import load_dataset
from fedeas.policies import FedEAS
from fedeas.run import execute
from fedeas.selection import select_beta
from fedeas.split import split_data
from fedeas.store import Run, RunStore, read_run

BASE = RunConfig(
    generator="diffusion",
    partition=PartitionConfig(clients=20, alpha=0.1, min_size=10),
    train=TrainConfig(lr=0.05, batch_size=64, epochs=5),
    rounds=RoundsConfig(total=15, participation=0.5),
    engine=EngineConfig(threads=1),
)


def run_demo(store: RunStore, seeds: int, console: Console) -> list[Run]:
    """Run every policy with every seed, as many at a time as there are cores, and give the runs back in order."""
    configs = list(demo_configs(seeds))
    workers = min(cores(), len(configs))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, Progress(console=console, transient=True) as bar:
        jobs = [pool.submit(_execute, config, str(store.root)) for config in configs]
        for job in bar.track(as_completed(jobs), total=len(jobs), description="federated runs"):
            job.result()
    return [read_run(store.root / config.directory) for config in configs]


def demo_configs(seeds: int) -> Iterator[RunConfig]:
    """FedAvg without synthetic images; three policies at FedEAS's budget; Full-Balance as the upper reference."""
    counts = split_data(BASE, load_dataset("digits")).counts
    fedeas = FedEAS(select_beta(counts).roundest).spec  # the paper's two conditions, on these counts
    policies = {
        "fedavg": "no-generation",
        "uniform": f"uniform(budget={fedeas})",
        "missing-only": f"missing-only(budget={fedeas})",
        "fedeas": fedeas,
        "full-balance": "full-balance",
    }
    for label, policy in policies.items():
        for seed in range(seeds):
            yield BASE.model_copy(update={"label": label, "policy": policy, "seed": seed})


def _execute(config: RunConfig, root: str) -> None:
    execute(config, RunStore(root))
