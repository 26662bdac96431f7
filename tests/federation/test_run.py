"""Whole runs on digits: laws that hold for all policies, and resuming after a kill at any moment."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedeas import FedEAS, InputError
from fedeas.config import RunConfig, load_config
from fedeas.core.errors import RunError
from fedeas.data.dataset import Dataset
from fedeas.data.sources import load_dataset
from fedeas.federation import run as running
from fedeas.federation.checkpoint import Saver, load_checkpoint, save_checkpoint
from fedeas.federation.engines.base import Engine
from fedeas.federation.run import environment, execute, identified
from fedeas.federation.split import split_data
from fedeas.runs.store import Run, RunStore

BASE = [
    "train.lr=0.05",
    "train.batch_size=32",
    "train.epochs=1",
    "rounds.total=3",
    "partition.clients=6",
    "engine.threads=1",
]


def config(*overrides: str) -> RunConfig:
    return load_config(None, [*BASE, *overrides])


def weights(run):
    return load_checkpoint(run.checkpoint, run.config.fingerprint).server


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def computed(records):
    """Without the time that it took."""
    return [{key: value for key, value in record.items() if key not in ("seconds", "images")} for record in records]


def test_a_run_leaves_a_complete_directory(tmp_path):
    seen = []
    run = execute(config("policy=fedeas(beta=3)", "rounds.eval_every=2"), RunStore(tmp_path), on_round=seen.append)
    names = {path.name for path in run.path.iterdir()} - {".lock"}
    begun, done = {"config.json", "env.json", "allocation.npz", "generator.json", "images.jsonl"}, {"summary.json"}
    assert names == begun | {"rounds.jsonl", "checkpoint.safetensors"} | done
    assert [record["round"] for record in run.rounds()] == [1, 2, 3]
    assert ["accuracy" in record for record in run.rounds()] == [False, True, True]
    assert [record["round"] for record in seen] == [1, 2, 3]
    summary = run.summary()
    counts, plan = run.allocation()
    assert np.array_equal(plan.n, FedEAS(3).allocate(counts).n)
    assert summary["total"] == plan.total > 0
    taken = {client for record in run.rounds() for client in record["clients"]}
    assert summary["generated"] == sum(int(plan.per_client[client]) for client in taken)
    assert 0 < summary["accuracy"] <= summary["peak"] <= 1
    assert summary["protocol"] == "clean"


def test_a_finished_run_is_not_run_again(tmp_path):
    first = execute(config(), RunStore(tmp_path))
    stamp = first.checkpoint.stat().st_mtime_ns
    again = execute(config(), RunStore(tmp_path))
    assert again.summary() == first.summary()
    assert again.checkpoint.stat().st_mtime_ns == stamp


def test_equal_configs_give_equal_weights_and_seeds_differ(tmp_path):
    runs = [execute(config(f"seed={seed}"), RunStore(tmp_path / name)) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    assert same(weights(runs[0]), weights(runs[1]))
    assert computed(runs[0].rounds()) == computed(runs[1].rounds())
    assert not same(weights(runs[0]), weights(runs[2]))


def test_on_iid_counts_fedeas_equals_fedavg_bit_for_bit(tmp_path):
    balanced = np.repeat(np.arange(4), 30)
    images = np.random.default_rng(0).integers(0, 256, (120, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "even.npz", images=images, labels=balanced, test_images=images[:40], test_labels=balanced[:40])
    common = (f"data.dataset=npz:{tmp_path / 'even.npz'}", "partition.scheme=iid", "partition.clients=5")
    fedavg = execute(config(*common), RunStore(tmp_path))
    fedeas = execute(config(*common, "policy=fedeas(beta=12)"), RunStore(tmp_path))
    assert fedeas.summary()["total"] == 0
    assert same(weights(fedavg), weights(fedeas))


def test_all_policies_train_the_same_clients_in_the_same_round(tmp_path):
    policies = ("no-generation", "fedeas(beta=3)", "uniform(budget=fedeas(beta=3))", "missing-only(budget=60)")
    common = "algorithm=fedprox", "train.steps=2"
    runs = [execute(config(f"policy={policy}", *common), RunStore(tmp_path)) for policy in policies]
    clients = [[record["clients"] for record in run.rounds()] for run in runs]
    assert clients.count(clients[0]) == len(policies)
    assert not same(weights(runs[0]), weights(runs[1]))


def test_a_half_recorded_last_round_is_done_again(tmp_path, monkeypatch):
    """A kill between the line of a round and its checkpoint, and one in the middle of a line."""
    monkeypatch.setattr("fedeas.federation.checkpoint.SHARE", float("inf"))  # after every round
    states, begun = [], RunStore(tmp_path / "whole").at(identified(config("rounds.total=4")))
    whole = execute(config("rounds.total=4"), RunStore(tmp_path / "whole"), lambda _: states.append(weights(begun)))
    for cut in ('{"round": 3, "clie', json.dumps({**whole.rounds()[2], "run": whole.fingerprint}) + "\n"):
        store = RunStore(tmp_path / f"broken-{len(cut)}")
        broken = store.open(identified(config("rounds.total=4")))
        for record in whole.rounds()[:2]:
            broken.append_round(record)
        with (broken.path / "rounds.jsonl").open("a") as file:
            file.write(cut)
        save_checkpoint(broken.checkpoint, broken.config.fingerprint, 2, states[1], {})
        ahead = []
        resumed = execute(config("rounds.total=4"), store, on_start=ahead.append)
        assert [forecast.rounds for forecast in ahead] == [2]
        assert same(weights(resumed), weights(whole))
        assert computed(resumed.rounds()) == computed(whole.rounds())


KILLED = ["rounds.total=12", "policy=fedeas(beta=3)", "algorithm=fedprox(mu=0.1)", "train.epochs=3"]
SCRIPT = """
import random, signal, sys
from fedeas.config import load_config
from fedeas.federation.run import execute
from fedeas.federation.engines.base import Engine
from fedeas.runs.store import Run, RunStore

def after(record):
    if record["round"] == int(sys.argv[2]):  # soon after it the kernel ends this process, whatever it does then
        signal.setitimer(signal.ITIMER_PROF, random.Random(sys.argv[2]).uniform(0.001, 0.05))

execute(load_config(None, sys.argv[3:]), RunStore(sys.argv[1]), after)
"""


@pytest.mark.slow  # tests/faults kills runs, too
def test_a_run_killed_many_times_ends_with_the_same_weights(tmp_path):
    whole = execute(config(*KILLED), RunStore(tmp_path / "whole"))
    store = RunStore(tmp_path / "killed")
    for rounds in (1, 4, 9):
        command = [sys.executable, "-c", SCRIPT, str(store.root), str(rounds), *BASE, *KILLED]
        killed = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert killed.returncode == -signal.SIGPROF
    resumed = execute(config(*KILLED), store)
    assert same(weights(resumed), weights(whole))
    assert computed(resumed.rounds()) == computed(whole.rounds())
    assert resumed.summary()["generated"] == whole.summary()["generated"] > 0


STATEFUL = [
    "fedavg",
    "fedprox(mu=0.1)",
    "scaffold",
    "scaffold(option=I)",
    "moon(mu=1)",
    "fedmix",
    "fedgen(ensemble_epochs=3)",
]


class InterruptedRunError(Exception):
    pass


@pytest.mark.parametrize("algorithm", STATEFUL)
@pytest.mark.parametrize("policy", [pytest.param("no-generation", marks=pytest.mark.slow), "fedeas(beta=3)"])
def test_state_of_server_and_clients_resumes_bit_for_bit(tmp_path, algorithm, policy):
    short = "rounds.participation=0.5", "train.steps=3"
    this = config(f"algorithm={algorithm}", f"policy={policy}", *short)
    whole = execute(this, RunStore(tmp_path / "whole"))

    def interrupt(record):
        if record["round"] == 2:
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        execute(this, RunStore(tmp_path / "broken"), interrupt)
    resumed = execute(this, RunStore(tmp_path / "broken"))
    assert computed(resumed.rounds()) == computed(whole.rounds())
    for one, other in zip(_checkpoint(resumed), _checkpoint(whole), strict=True):
        assert same(one, other)


def _checkpoint(run):
    """The server's tensors, then those of each client that has a state."""
    _, server, clients = load_checkpoint(run.checkpoint, run.config.fingerprint)
    return [server, *(clients[client] for client in sorted(clients))]


ALGORITHMS = ["fedprox(mu=0.1)", "scaffold", "moon", "fedgen(ensemble_epochs=5)", "fedmix(mash=5)"]
OTHER_POLICIES = ["no-generation", "uniform(budget=fedeas(beta=2.7))"]
POLICIES = [  # with the rounds that the model needs to learn
    ("fedeas(beta=2.7)", 3),
    *(pytest.param(policy, 5, marks=pytest.mark.slow) for policy in OTHER_POLICIES),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """For runs that several tests look at: the first trains them, and the others find them finished."""
    return RunStore(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("policy", "rounds"), POLICIES)
def test_every_algorithm_composes_with_every_policy(store, algorithm, policy, rounds):
    """The model learns, and no algorithm equals FedAvg."""
    lasting = f"rounds.total={rounds}", "train.epochs=2"
    common = (f"policy={policy}", *lasting, "partition.clients=10", "partition.min_size=20")
    plain = execute(config(*common), store)
    other = execute(config(*common, f"algorithm={algorithm}"), store)
    assert not torch.equal(weights(other)["model/head.weight"], weights(plain)["model/head.weight"])
    assert [record["clients"] for record in other.rounds()] == [record["clients"] for record in plain.rounds()]
    assert 0.3 < other.summary()["peak"] <= 1
    assert abs(other.summary()["peak"] - plain.summary()["peak"]) < 0.4


def test_a_checkpoint_of_another_config_is_refused(tmp_path):
    store = RunStore(tmp_path)
    mine, other = store.open(identified(config())), config("seed=9")
    save_checkpoint(mine.checkpoint, other.fingerprint, 1, {"model/x": torch.zeros(1)}, {})
    with pytest.raises(InputError, match=r"checkpoint\.safetensors: belongs to another run"):
        execute(config(), store)
    mine.checkpoint.write_bytes(b"nothing")
    with pytest.raises(InputError, match="remove this file to start the run again"):
        execute(config(), store)


def test_client_states_survive_a_checkpoint(tmp_path):
    server = {"model/w": torch.randn(3), "model/steps": torch.tensor(7)}
    clients = {3: {"control/w": torch.randn(3)}, 11: {"control/w": torch.randn(3), "previous/w": torch.ones(2)}}
    save_checkpoint(tmp_path / "c.safetensors", "print", 5, server, clients)
    rounds, again, states = load_checkpoint(tmp_path / "c.safetensors", "print")
    assert rounds == 5
    assert same(again, server)
    assert states.keys() == clients.keys()
    assert all(same(states[client], clients[client]) for client in clients)


def test_a_loss_that_is_not_finite_keeps_the_recorded_rounds(tmp_path):
    with pytest.raises(RunError, match=r"client \d+, round \d: the loss is"):
        execute(config("train.lr=1e20"), RunStore(tmp_path))
    (run,) = RunStore(tmp_path).all()
    assert not run.finished
    assert (run.path / "config.json").exists()


def test_a_checkpoint_that_cannot_be_written_keeps_the_recorded_rounds(tmp_path, monkeypatch):
    """The checkpoint's place is taken by a folder, so that it cannot be written after the first round."""
    monkeypatch.setattr("fedeas.federation.checkpoint.SHARE", float("inf"))  # after every round
    run = RunStore(tmp_path).open(identified(config()))
    seen = []

    def block(record):
        seen.append(record)
        run.checkpoint.unlink()
        run.checkpoint.mkdir()

    with pytest.raises(RunError, match="cannot be written"):
        execute(config(), RunStore(tmp_path), block)
    assert len(seen) == 1
    assert len(run.rounds()) == 2


def test_the_paper_protocol_pools_the_clients_test_parts():
    digits = load_dataset("digits")
    paper = ["data.protocol=paper", "partition.scheme=paper", "partition.clients=8", "partition.alpha=0.5"]
    split = split_data(load_config(None, paper), digits)
    held = sum(part.size for part in split.partition.indices)
    assert held + len(split.test_labels) == 1797
    assert 0.2 < len(split.test_labels) / 1797 < 0.25
    pooled = np.concatenate(split.partition.test_indices)
    assert np.array_equal(split.test_images, split.images[pooled])
    assert not set(pooled) & set(np.concatenate(split.partition.indices).tolist())


def test_the_clean_protocol_keeps_the_official_test_part_at_the_server():
    digits = load_dataset("digits")
    split = split_data(config(), digits)
    assert split.test_images is digits.test_images
    assert split.counts.total == len(digits.labels)


def test_classes_that_no_client_holds_still_count():
    labels = np.array([0, 1] * 20)
    images = np.zeros((40, 1, 4, 4), dtype=np.uint8)
    data = Dataset("made", images, labels, images[:4], labels[:4], ("a", "b", "c"))
    assert split_data(config("partition.clients=4"), data).counts.num_classes == 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.dataset=cifar10", "data.root=nowhere"), "nowhere"),
        (("data.dataset=magic",), "magic"),
        (("partition.clients=5000",), "clients must be between 1 and"),
        (("engine.device=cuda:9",), "engine.device 'cuda:9' cannot be used"),
        (("model.weights=none.safetensors",), "none.safetensors: no such file"),
        (("algorithm=fedsgd",), "unknown algorithm 'fedsgd'"),
        (("generator=magic", "policy=full-balance"), "unknown generator 'magic'"),
    ],
)
def test_invalid_configs_are_refused_before_the_run_starts(tmp_path, overrides, message):
    with pytest.raises(Exception) as caught:
        execute(config(*overrides), RunStore(tmp_path))
    assert getattr(caught.value, "exit_code", None) == 2
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


CALLABLE = """
import numpy as np
from pathlib import Path

def noisy(labels, index):
    with Path({log!r}).open("a") as file:
        file.writelines(f"{{label}} {{place}}\\n" for label, place in zip(labels.tolist(), index.tolist()))
    return np.stack([np.random.default_rng((l, i)).integers(0, {top}, (1, 8, 8), dtype=np.uint8)
                     for l, i in zip(labels.tolist(), index.tolist())])
"""


def own_generator(folder, top=256):
    folder.mkdir(exist_ok=True)
    (folder / "my_images.py").write_text(CALLABLE.format(log=str(folder / "made.txt"), top=top))


def test_runs_at_one_budget_make_no_image_twice(tmp_path, monkeypatch):
    own_generator(tmp_path / "code")
    monkeypatch.chdir(tmp_path / "code")
    monkeypatch.delitem(sys.modules, "my_images", raising=False)
    store, plans = RunStore(tmp_path / "runs"), []
    for policy in ("fedeas(beta=3)", "uniform(budget=fedeas(beta=3))", "full-balance", "fedeas(beta=2)"):
        for seed in (0, 1):
            asked = f"policy={policy}", f"seed={seed}", "generator=python:my_images:noisy", "train.steps=1"
            run = execute(config(*asked), store)
            seen = {client for record in run.rounds() for client in record["clients"]}
            plan = run.allocation()[1].n.copy()
            plan[[client for client in range(len(plan)) if client not in seen]] = 0
            plans.append(plan)
    made = [tuple(map(int, line.split())) for line in (tmp_path / "code" / "made.txt").read_text().splitlines()]
    # Image j of a pair is the same for every policy, so the largest plan is all there is.
    wanted = np.max(plans, axis=0)
    kept = {(label, (client << 32) + j) for (client, label), n in np.ndenumerate(wanted) for j in range(n)}
    assert set(made) == kept
    # The law check of a callable draws its first addresses again, in every run that finds any of them missing.
    assert len(made) <= len(kept) + 8 * 9
    assert (tmp_path / "runs" / ".bank").is_dir()


def test_a_run_does_not_resume_with_another_generator(tmp_path):
    """Even if the config is the same: another device or precision makes other images."""
    chosen = config("policy=fedeas(beta=3)")
    begun = execute(chosen, RunStore(tmp_path), pause=lambda record: True)
    about = json.loads((begun.path / "generator.json").read_text())
    begun.write_json("generator.json", {**about, "fingerprint": "0" * 64})
    with pytest.raises(InputError, match="started with another generator than gaussian"):
        execute(chosen, RunStore(tmp_path))


def test_a_damaged_bank_gives_the_same_run(tmp_path):
    chosen = config("policy=fedeas(beta=3)")
    first = execute(chosen, RunStore(tmp_path / "one"), bank=tmp_path / "bank")
    files = sorted((tmp_path / "bank").rglob("*.images"))
    for path in files:
        content = bytearray(path.read_bytes())
        content[5] ^= 255
        path.write_bytes(content)
    second = execute(chosen, RunStore(tmp_path / "two"), bank=tmp_path / "bank")
    assert files
    assert same(weights(first), weights(second))


def test_saving_takes_no_more_than_its_share_of_the_time(tmp_path, monkeypatch):
    clock, saved = [0.0], []
    monkeypatch.setattr("fedeas.federation.checkpoint.time.perf_counter", lambda: clock[0])

    def save(path, fingerprint, rounds, server, clients):
        clock[0] += 1.0
        saved.append(rounds)

    monkeypatch.setattr("fedeas.federation.checkpoint.save_checkpoint", save)
    keep = Saver(Run(tmp_path, RunConfig()).checkpoint, "print", total=300)
    for rounds in range(1, 301):
        clock[0] += 2.0
        keep(rounds, {}, Engine(), at_once=False)
    assert saved[0] == 1
    assert saved[-1] == 300  # the last is always kept
    assert len(saved[:-1]) <= 0.02 * clock[0] + 1
    assert len(saved) > 5


def repository(folder):
    """A git repository with one commit; returns its hash."""
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    ("package", "has_history", "named", "expected"),
    [
        ("src/fedeas", True, "named", "own"),
        ("src/fedeas", False, "named", "named"),
        ("src/fedeas", False, "", None),
        (".venv/lib/site-packages/fedeas", True, "", None),
        ("vendored/src/fedeas", True, "", None),
    ],
    ids=["checkout", "copy with a name", "copy", "installed in another project", "copy in another project"],
)
def test_the_recorded_commit_is_that_of_this_project(tmp_path, monkeypatch, package, has_history, named, expected):
    own = repository(tmp_path) if has_history else None
    module = tmp_path / package / "federation" / "run.py"
    module.parent.mkdir(parents=True)
    (tmp_path / package).parents[1].joinpath("pyproject.toml").write_text('[project]\nname = "fedeas"')
    monkeypatch.setattr(running, "__file__", str(module))
    monkeypatch.setenv("FEDEAS_COMMIT", named)
    assert environment(torch.device("cpu"))["commit"] == (own if expected == "own" else expected)
