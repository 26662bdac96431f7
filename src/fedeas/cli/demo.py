"""``fedeas demo``: compare five policies on scikit-learn's digits, with the same training, over several seeds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from fedeas.calls.running import partition, run_here
from fedeas.cli.display import output, runs_tables
from fedeas.cli.progress import announce
from fedeas.config.run import RunConfig
from fedeas.config.sections import EngineConfig, PartitionConfig, RoundsConfig, TrainConfig
from fedeas.core.arrays import cores
from fedeas.core.foreign_text import listed
from fedeas.planning.beta import select_beta
from fedeas.planning.policies import FedEAS
from fedeas.runs.comparison import Seeds, conclusion, paired_difference
from fedeas.runs.methods import grouped
from fedeas.runs.store import Run, RunStore

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


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each policy.")] = 5,
) -> None:
    """Compare five policies on scikit-learn's digits."""
    from fedeas.views.report import report as write_report

    store, console, configs = RunStore(out / "runs"), output(), list(demo_configs(seeds))
    workers, start = min(cores(), len(configs)), time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, Progress(console=console, transient=True) as bar:
        jobs = [pool.submit(run_here, config, store) for config in configs]
        done = bar.track(as_completed(jobs), total=len(jobs), description="federated runs")
        for number, job in enumerate(done):
            job.result()
            if number == 0:
                announce((time.perf_counter() - start) * (len(jobs) / workers - 1), "left for the other runs")
    finished = [job.result() for job in jobs]
    write_report(finished, out / "report.html", "FedEAS on digits")
    console.print(runs_tables(finished, REFERENCE))
    console.print(conclude(finished), markup=False, highlight=False)
    print(f"report: {out / 'report.html'}")


def demo_configs(seeds: int) -> Iterator[RunConfig]:
    """FedAvg without synthetic images; three policies at FedEAS's budget; Full-Balance as the upper reference."""
    counts = partition(BASE, images=False).counts
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
