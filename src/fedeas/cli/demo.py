"""The demo: compare five policies on scikit-learn's digits, with the same training, over several seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from fedeas.config.run import RunConfig
from fedeas.config.sections import EngineConfig, PartitionConfig, RoundsConfig, TrainConfig
from fedeas.core.arrays import cores
from fedeas.core.foreign_text import listed
from fedeas.data.sources import load_dataset
from fedeas.fast import backend_for
from fedeas.federation.run import execute
from fedeas.federation.split import split_data
from fedeas.planning.beta import select_beta
from fedeas.planning.policies import FedEAS
from fedeas.runs.comparison import Seeds, conclusion, paired_difference
from fedeas.runs.methods import grouped
from fedeas.runs.store import Run, RunStore, read_run

REFERENCE = "fedeas"

# Every client takes the same number of steps, whatever it generates: policies differ in their images, not in work.
# The learning rate falls to zero, so that accuracy is stable in the last rounds.
BASE = RunConfig(
    generator="diffusion",
    partition=PartitionConfig(clients=20, alpha=0.1, min_size=10),
    train=TrainConfig(lr=0.3, batch_size=32, steps=5, schedule="cosine"),
    rounds=RoundsConfig(total=40, participation=0.5, threshold=0.9),
    engine=EngineConfig(threads=1),
)


def run_demo(
    store: RunStore, seeds: int, console: Console, on_first: Callable[[float], None] = lambda left: None
) -> list[Run]:
    """Run every policy with every seed, one run on each core at a time, and return the runs in order.

    After the first run, `on_first` gets the seconds that the others will take.
    """
    configs = list(demo_configs(seeds))
    workers, start = min(cores(), len(configs)), time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, Progress(console=console, transient=True) as bar:
        jobs = [pool.submit(_execute, config, str(store.root)) for config in configs]
        done = bar.track(as_completed(jobs), total=len(jobs), description="federated runs")
        for number, job in enumerate(done):
            job.result()
            if number == 0:
                on_first((time.perf_counter() - start) * (len(jobs) / workers - 1))
    return [read_run(job.result()) for job in jobs]


def demo_configs(seeds: int) -> Iterator[RunConfig]:
    """FedAvg without synthetic images; three policies at FedEAS's budget; Full-Balance as the upper reference."""
    counts = split_data(BASE, load_dataset("digits")).counts
    fedeas = FedEAS(select_beta(counts).roundest).spec  # the paper's two conditions, on these counts
    policies = {
        "fedavg": "no-generation",
        "uniform": f"uniform(budget={fedeas})",
        "missing-only": f"missing-only(budget={fedeas})",
        REFERENCE: fedeas,
        "full-balance": "full-balance",
    }
    for label, policy in policies.items():
        for seed in range(seeds):
            yield BASE.model_copy(update={"label": label, "policy": policy, "seed": seed})


def conclude(runs: Sequence[Run]) -> str:
    """What the runs show, in sentences that follow from paired differences to FedEAS."""
    groups = grouped(runs, lambda run: run.config)  # each policy of the demo has its own label, which names it
    methods = {label: Seeds({run.config.seed: run.summary() for run in group}) for label, group in groups.items()}
    rounds: dict[str, Mapping[int, float]] = {}
    for label, seeds in methods.items():
        reached = {seed: each["rounds_to_threshold"] for seed, each in seeds.summaries.items()}
        if None not in reached.values():  # a mean over the seeds that reached the threshold would be biased
            rounds[label] = reached

    def concluded(values: Mapping[str, Mapping[int, float]], *words: str) -> str:
        reference = values.get(REFERENCE, {})
        apart = {label: paired_difference(own, reference) for label, own in values.items() if label != REFERENCE}
        return conclusion(REFERENCE, {label: each for label, each in apart.items() if each is not None}, *words)

    accuracy = concluded({label: seeds.percents() for label, seeds in methods.items()})
    speed = concluded(rounds, "needs more rounds than", "needs fewer rounds than")
    late = [label for label in methods if label not in rounds]
    missed = f" Not every seed of {listed(late)} gets there." if late else ""
    return (
        f"Accuracy in {methods[REFERENCE].window}: {accuracy}\n"
        f"Rounds to an accuracy of {BASE.rounds.threshold:.0%}: {f'{speed}{missed}'.strip()}"
    )


def _execute(config: RunConfig, root: str) -> Path:
    return execute(config, RunStore(root), backend_for=backend_for).path
