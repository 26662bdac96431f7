"""Which target suits a federation with a long tail: equal shares, or the class shares that its clients have together?

    python benchmarks/long_tail.py [RUNS]

Digits whose training part has ten times as many images of the first class as of the last, with class sizes that fall
evenly on a logarithmic scale. The test part stays balanced. It is measured twice: each class counts the same, and each
class counts by its share of the training part, as for users who meet the classes as often as the clients do.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

import numpy as np
from measure import save

import fedeas
from fedeas.data.sources import Dataset, load_dataset
from fedeas.runs.accuracy_curves import RoundRange
from fedeas.runs.comparison import paired_difference, signed
from fedeas.runs.store import Run

SEEDS, RATIO, CLIENTS, ROUNDS, BETA = 10, 10, 20, 60, 2
BUDGET = f"budget=fedeas(beta={BETA})"
UNIFORM, GLOBAL = "equal shares", "the clients' shares"
ARMS = {
    ("no images", ""): "no-generation",
    ("fedeas", UNIFORM): f"fedeas(beta={BETA})",
    ("greedy", UNIFORM): f"greedy({BUDGET})",
    ("greedy", GLOBAL): f"greedy({BUDGET}, target=global)",
    ("kl", UNIFORM): f"kl({BUDGET})",
    ("kl", GLOBAL): f"kl({BUDGET}, target=global)",
}
"""Policies by name and target; all but the first make the same number of images."""

BALANCED, AS_TRAINED = "every class counts the same, %", "classes count by their shares, %"
Measures = dict[str, dict[int, float]]
"""Accuracy in percent, by measure and seed."""


def write_long_tail(usual: Dataset, path: Path) -> np.ndarray:
    """Write the dataset with fewer images of later classes; returns the class shares of the training part."""
    sizes = np.bincount(usual.labels)
    kept = np.round(sizes * RATIO ** -np.linspace(0, 1, sizes.size)).astype(int)
    rows = np.sort(np.concatenate([np.flatnonzero(usual.labels == each)[:count] for each, count in enumerate(kept)]))
    np.savez(
        path, images=usual.images[rows], labels=usual.labels[rows],
        test_images=usual.test_images, test_labels=usual.test_labels,
    )  # fmt: skip
    return kept / kept.sum()


def train(data: Path, policy: str, seed: int, runs: Path) -> Run:
    """Train one run as profile digits does."""
    return fedeas.run(
        policy=policy, seed=seed, runs=runs, generator="diffusion(weights=digits)",
        data__dataset=f"npz:{data}", data__protocol="clean",
        partition__scheme="dirichlet", partition__clients=CLIENTS, partition__alpha=0.1, model__name="small-cnn",
        train__lr=0.05, train__epochs=5, rounds__total=ROUNDS, rounds__participation=0.5,
        engine__device="cpu", engine__threads=1, engine__processes=1,
    )  # fmt: skip


def accuracies(run: Run, shares: np.ndarray) -> dict[str, float]:
    """Both accuracies, over the last tenth of the rounds, in percent."""
    window = RoundRange.of(ROUNDS)
    by_class = np.mean([each["class_accuracy"] for each in run.rounds()[window.first - 1 :]], axis=0)
    return {BALANCED: 100 * float(by_class.mean()), AS_TRAINED: 100 * float(by_class @ shares)}


def row(name: str, target: str, own: Measures, reference: Measures | None) -> dict[str, object]:
    """An arm's accuracies; the target of the clients' shares also with its difference to equal ones."""
    cells: dict[str, object] = {"policy": name, "target": target}
    for measure, values in own.items():
        cells[measure] = f"{mean(values.values()):.2f}"
        if reference is not None:
            found = paired_difference(values, reference[measure])
            assert found is not None
            cells[f"minus equal shares: {measure}"] = f"{signed(found.mean, 2)} ({found.range_text(2)})"
    return cells


def measured(runs: Path) -> Mapping[tuple[str, str], Measures]:
    """Both accuracies of every arm and seed."""
    data = runs / "long-tail.npz"
    shares = write_long_tail(load_dataset("digits"), data)
    found: dict[tuple[str, str], Measures] = {arm: {BALANCED: {}, AS_TRAINED: {}} for arm in ARMS}
    for seed in range(SEEDS):
        for arm, policy in ARMS.items():
            for measure, value in accuracies(train(data, policy, seed, runs), shares).items():
                found[arm][measure][seed] = value
        print(f"seed {seed} of {SEEDS}", flush=True)
    return found


def main() -> None:
    """Train all arms and keep their accuracies."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(sys.argv[1] if sys.argv[1:] else folder)
        runs.mkdir(exist_ok=True)
        found = measured(runs)
    rows = [
        row(name, target, own, found[name, UNIFORM] if target == GLOBAL else None)
        for (name, target), own in found.items()
    ]
    question = f"Digits with a long tail: the target of a policy ({SEEDS} seeds, differences with 95 % intervals)"
    save("long-tail", question, rows)


if __name__ == "__main__":
    main()
