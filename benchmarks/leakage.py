"""What does a curious server learn about a client's label counts: from totals of plans, and from plain updates?

Two attacks, on clients that do not share their counts. The count oracle asks a node for plans under policies of the
server's choice and reads the sorted counts off the totals; a node that names its policies refuses it. The second
attack asks for nothing: it looks at how a client's update changes the bias of the last layer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from fedeas.algorithms.base import MODEL, model_arrays
from fedeas.config import RunConfig, load_config
from fedeas.core.errors import FedEASError
from fedeas.data.sources import load_dataset
from fedeas.federation.engines.base import Task
from fedeas.federation.parts import new_model
from fedeas.flower.client import Participant
from fedeas.flower.node_settings import NodeSettings
from fedeas.flower.wire import About

CLIENTS = 10
BASE = [f"partition.clients={CLIENTS}", "engine.threads=1", "train.epochs=1"]


def sorted_counts(total: Callable[[int], int], classes: int, size: int) -> tuple[list[int], int]:
    """A client's label counts in increasing order, and how many totals that took.

    `total(L)` is the client's total under a policy that fills every class to the level L, sum_c max(L - n_c, 0).
    Between L and L + 1 it grows by the number of classes with n_c <= L; bisection finds where each class comes in.
    """
    asked: dict[int, int] = {0: 0}

    def at_most(level: int) -> int:
        for each in (level, level + 1):
            if each not in asked:
                asked[each] = total(each)
        return asked[level + 1] - asked[level]

    found = []
    for rank in range(1, classes + 1):
        low, high = (found[-1] if found else 0), size
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if at_most(middle) >= rank else (middle + 1, high)
        found.append(low)
    return found, len(asked) - 1


def bias_correlation(client: Participant) -> float:
    """The correlation between a client's counts and the change of the last layer's bias in its first round."""
    start = model_arrays(new_model(client.config, client.about.shape, len(client.about.classes)))
    client.settle(None, None)
    reply = client.work(Task.TRAIN, 0, start, -1, -1)
    assert reply is not None
    bias = next(name for name in reversed(start) if name.startswith(MODEL) and name.endswith("bias"))
    change = (reply.arrays[bias] - start[bias]).numpy()
    return float(np.corrcoef(change, client.counts)[0, 1])


def attack_by_totals(run: Callable[..., RunConfig], about: About, node: NodeSettings, client: int) -> tuple[bool, int]:
    """Whether the count oracle recovers a client's sorted counts, and how many answers it got."""
    answers = 0

    def total(level: int) -> int:
        nonlocal answers
        policy = f"policy=fedeas(beta={level}, gamma=0, entropy=false, fill=all)"
        asked = Participant(run(policy), client, about, node)
        asked.samples = truth.samples  # each run would split the dataset again
        told = asked.settle(None, None)
        answers += 1
        return told

    truth = Participant(run("policy=no-generation"), client, about, NodeSettings(node.state / "truth"))
    try:
        found, _ = sorted_counts(total, len(about.classes), len(truth.labels))
    except FedEASError:
        return False, answers
    return found == sorted(truth.counts.tolist()), answers


def main() -> None:
    """Run both attacks on all clients of a digits federation."""
    from measure import save

    about = About.of(load_dataset("digits"))

    def run(*more: str) -> RunConfig:
        return load_config(None, [*BASE, *more])

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        agreed = Participant(run(), 0, about, NodeSettings(folder / "agreed")).policy.spec
        nodes = {
            "any policy": NodeSettings(folder / "open"),
            "named policies": NodeSettings(folder / "careful", policies=(agreed,)),
        }
        rows: list[dict[str, object]] = []
        for words, node in nodes.items():
            tried = [attack_by_totals(run, about, node, client) for client in range(CLIENTS)]
            recovered, answers = sum(done for done, _ in tried), median(answers for _, answers in tried)
            rows.append({"attack": "totals of plans", "node": words, "clients recovered": f"{recovered} of {CLIENTS}",
                         "answers (median)": answers})  # fmt: skip
        plain = run("policy=no-generation")
        seen = [bias_correlation(Participant(plain, client, about, NodeSettings(folder / "plain")))
                for client in range(CLIENTS)]  # fmt: skip
        found = {"correlation (median)": median(seen), "lowest": min(seen), "highest": max(seen)}
        rounded = {name: round(value, 2) for name, value in found.items()}
        rows.append({"attack": "bias of one plain update", "node": "any", **rounded})
    save("leakage", f"What a curious server learns about the label counts of {CLIENTS} digits clients", rows)


if __name__ == "__main__":
    main()
