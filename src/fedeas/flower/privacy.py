"""What a node notes of its answers, and differential privacy for its updates, switched on by the owner.

A client's update, the change of the model in a round, is scaled down to a norm of at most C (`clip`), and Gaussian
noise with deviation z C (`noise` times `clip`) is added to each of its numbers before it leaves the node. Two updates
of any two datasets differ by at most 2 C, so that one answer is a Gaussian mechanism with noise multiplier z / 2. The
accountant of opacus composes all answers of this node, over all its runs, to an epsilon.
"""

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedeas.algorithms.base import MODEL, Arrays
from fedeas.algorithms.fedavg import FedAvg
from fedeas.config.hyperparameters import SCAFFOLD
from fedeas.core.errors import extra_for, log
from fedeas.core.locks import locked
from fedeas.core.records import Journal
from fedeas.federation.gaussian_sums import GaussianSums
from fedeas.flower.node_settings import Privacy, TellableError
from fedeas.generators.gaussian import SumNoise

REMEDY = "move it away only together with the data: without it, earlier answers are forgotten"
STATISTICS = ("running_mean", "running_var")  # names of batch norm's statistics

ORDERS = [1 + 10 ** (step / 20) for step in range(-80, 81)]
"""Orders of the divergences among which the accountant looks for the smallest epsilon."""

MORE = "its node adds noise to models, and this algorithm sends more than a model; use fedavg, fedprox or moon"


def check_fits(algorithm: FedAvg, model: nn.Module) -> None:
    """Refuse algorithms that send more than a model, and models with batch norm."""
    if algorithm.needs_setup or isinstance(algorithm, SCAFFOLD):
        raise TellableError(MORE)
    if any(name.endswith(STATISTICS) for name, _ in model.named_buffers()):
        raise TellableError("its node adds noise, which batch norm's statistics do not bear; set model.norm=group")


def protect(arrays: Mapping[str, Tensor], sent: Arrays, privacy: Privacy) -> Arrays:
    """The model after local training with its change clipped and noise added; other arrays are refused.

    After training that has diverged, noise alone is added, as if nothing had changed: a refusal would tell the server
    something about the data, and so would numbers that are not finite.
    Whole numbers, such as counters of steps, are kept: they follow from the number of samples, which is known anyway.
    """
    if not arrays.keys() <= sent.keys() or any(not name.startswith(MODEL) for name in arrays):
        raise TellableError(MORE)
    changes = {name: (to - sent[name]).double() for name, to in arrays.items() if to.is_floating_point()}
    norm = math.sqrt(sum(float(change.square().sum()) for change in changes.values()))
    if not math.isfinite(norm):
        log.warning("the norm of the update is not finite, so that it cannot be clipped; noise alone is sent")
        changes, norm = {name: torch.zeros_like(change) for name, change in changes.items()}, 0.0
    scale = min(1.0, privacy.clip / norm) if norm else 1.0
    random = np.random.default_rng()  # from the system: nobody can draw this noise again
    private = dict(arrays)
    for name, change in changes.items():
        drawn = random.normal(0.0, privacy.noise * privacy.clip, tuple(change.shape))
        noise = torch.from_numpy(np.asarray(drawn)).to(change.device)
        private[name] = (sent[name] + (change * scale + noise)).to(arrays[name].dtype)
    return private


class PrivacyLedger(Journal):
    """The file in a node's state folder with one line for each answer that it gave with noise, and their epsilon.

    An answer leaves the node after `add` has returned: half a line stands for an answer that nobody got.
    """

    def __init__(self, folder: Path, client: int) -> None:
        super().__init__(folder / f"privacy-{client}.jsonl", REMEDY)

    def check(self, privacy: Privacy, rounds: int) -> None:
        """Refuse a run if not even one more answer is within the limit; log what all its rounds would come to."""
        self._checked_epsilon(privacy)
        words = "epsilon is at most %.3g after the %d rounds of this run, delta %g"
        log.info(words, self._epsilon_after(privacy, rounds), rounds, privacy.delta)

    def spend(self, run: str, round: int, privacy: Privacy) -> float:
        """Note an answer before it is given, unless it is beyond the limit; return the epsilon of all so far."""
        with locked(self.path.with_suffix(".lock")):  # another node with this state folder may answer, too
            epsilon = self._checked_epsilon(privacy)
            answer = {"time": _now(), "run": run, "round": round, "clip": privacy.clip, "noise": privacy.noise}
            self.add({**answer, "delta": privacy.delta, "epsilon": epsilon})
        log.info("round %d: epsilon of all answers so far %.3g, delta %g", round + 1, epsilon, privacy.delta)
        return epsilon

    def _checked_epsilon(self, privacy: Privacy) -> float:
        """Epsilon after one more answer; refused beyond the limit."""
        epsilon = self._epsilon_after(privacy, 1)
        if epsilon > privacy.limit:
            would = f"the next answer would make epsilon {epsilon:.3g}, and dp-epsilon is {privacy.limit:g}"
            raise TellableError(f"its node's privacy budget is spent: {would}")
        return epsilon

    def _epsilon_after(self, privacy: Privacy, more: int) -> float:
        """Epsilon after so many more answers with this noise."""
        noises = Counter(float(line["noise"]) for line in self.read())
        noises[privacy.noise] += more
        return epsilon_of(noises, privacy.delta)


class Disclosures(Journal):
    """A node's own record of what it told servers about its label counts: one file for each client, a line an answer.

    The total of a plan is a number about the counts behind it, and totals under many chosen policies give the counts
    away. A node therefore answers once for each run, and notes each answer in a file of its owner.
    """

    def __init__(self, folder: Path, client: int) -> None:
        super().__init__(folder / f"disclosures-{client}.jsonl", "move it away to begin a new one")

    def check(self, run: str, kind: str, asked: Mapping[str, Any]) -> None:
        """Refuse to answer if the node has answered for this run before, and the question is another one now."""
        answered = [line["asked"] for line in self.read() if (line["run"], line["kind"]) == (run, kind)]
        if any(former != json.dumps(asked, sort_keys=True) for former in answered):
            raise TellableError(
                "its node has answered another question for this run before; its owner can remove that line of "
                f"{self.path.name}, or start a run of another name"
            )

    def note(self, run: str, kind: str, asked: Mapping[str, Any], policy: str, told: dict[str, int]) -> None:
        """Note an answer before it is given, unless the same one stands there."""
        known, question = self.read(), json.dumps(asked, sort_keys=True)
        answer = {"run": run, "kind": kind, "asked": question, "policy": policy, "told": told}
        if any(answer.items() <= line.items() for line in known):
            return
        self.add({"time": _now(), **answer})
        policies = {line["policy"] for line in known} | {policy}
        words = "told the server %s under %s; answers so far: %d, under %d policies; see %s"
        log.info(words, answer["told"], policy, len(known) + 1, len(policies), self.path)


def with_noise(algorithm: GaussianSums, privacy: Privacy, ledger: PrivacyLedger, run: str) -> GaussianSums:
    """The algorithm with the noise that the node's owner chose for its sums; noted before they leave the node.

    The ledger is for updates, where sensitivity is 2 C; here it is one unit of noise, which is noted twice as large.
    """
    if not (privacy.sums_clip and privacy.sums_epsilon):
        raise TellableError("its node adds noise, and to sums of images, too; set dp-sums-clip and dp-sums-epsilon")
    noise = SumNoise(privacy.sums_clip, noise_for(privacy.sums_epsilon, privacy.delta))
    ledger.spend(run, 0, replace(privacy, clip=noise.clip, noise=2 * noise.noise))
    return replace(algorithm, noise=noise)


def noise_for(epsilon: float, delta: float) -> float:
    """The deviation of the noise, in units of the sensitivity, with which one answer has at most this epsilon."""
    aim = {"target_epsilon": epsilon, "target_delta": delta, "epsilon_tolerance": epsilon / 1000}
    with _opacus():
        from opacus.accountants.utils import get_noise_multiplier

        try:
            return float(get_noise_multiplier(**aim, sample_rate=1.0, steps=1, alphas=ORDERS))
        except ValueError:
            raise TellableError(f"no noise has an epsilon of {epsilon:g}; raise its node's dp-sums-epsilon") from None


def epsilon_of(answers: Mapping[float, int], delta: float) -> float:
    """The epsilon of so many answers with each noise, by opacus' accountant in terms of Renyi divergences."""
    with _opacus():
        from opacus.accountants import RDPAccountant

        accountant = RDPAccountant()
        accountant.history = [(noise / 2, 1.0, count) for noise, count in answers.items()]  # every answer, not a sample
        return float(accountant.get_epsilon(delta, alphas=ORDERS))


@contextmanager
def _opacus() -> Iterator[None]:
    with extra_for("differential privacy", "privacy"), warnings.catch_warnings():
        # At the ends of the orders epsilon could be smaller, but it is not wrong.
        warnings.simplefilter("ignore", UserWarning)
        yield


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
