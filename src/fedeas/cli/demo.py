"""``fedeas demo``: compare five policies on scikit-learn's digits, with the same training, over several seeds."""

import time
from collections.abc import Iterator
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
from fedeas.planning.beta import select_beta
from fedeas.planning.policies import FedEAS
from fedeas.runs.store import RunStore

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
