"""Nodes that train their generator: the same weights as on one machine, and what goes wrong on the way."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

from flower.grids import StraightGrid

from fedeas.config import load_config
from fedeas.core.errors import RunError
from fedeas.federation.run import execute
from fedeas.flower.app import run_on
from fedeas.flower.wire import Parcel, header_of, packed, unpacked
from fedeas.generators.diffusion import presets
from fedeas.generators.diffusion.presets import PRESETS, Network
from fedeas.runs.store import RunStore

CLIENTS = 4
TINY = replace(PRESETS["digits"], network=Network((8, 8), layers=1, attention=(False, False), groups=4), steps=2)
BASE = [f"partition.clients={CLIENTS}", "rounds.total=2", "train.epochs=1", "train.lr=0.05", "engine.threads=1",
        "policy=fedeas(beta=1)", "rounds.participation=1"]  # fmt: skip
GENERATOR = "generator=federated(of=diffusion(precision=fp32), rounds=3, clients=3, steps=2, batch=4)"


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "digits", TINY)


def weights_in(root):
    [file] = root.glob(".generators/*/generator.safetensors")
    return load_file(file)


def run_on_nodes(folder, *more, **about):
    grid = StraightGrid(folder / "nodes", CLIENTS, **about)
    return grid, run_on(grid, load_config(None, [*BASE, GENERATOR, "engine.name=flower", *more]), RunStore(folder))


def test_nodes_train_the_same_weights_and_the_same_run(tmp_path):
    here = execute(load_config(None, [*BASE, GENERATOR, "engine.name=local"]), RunStore(tmp_path / "here"))
    grid, there = run_on_nodes(tmp_path / "there")
    one, other = (weights_in(tmp_path / place) for place in ("here", "there"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert [record["accuracy"] for record in here.rounds()] == [record["accuracy"] for record in there.rounds()]
    assert there.summary()["generator"]["bytes"] == here.summary()["generator"]["bytes"]
    sent = [action for action, _, _ in grid.seen]
    assert sent.index("query.generator") > sent.index("train")  # after the rounds of the stage


def test_only_tensors_of_weights_and_moments_leave_a_node(tmp_path):
    grid, _ = run_on_nodes(tmp_path)
    for action, asked, reply in grid.seen:
        if action == "train" and "preset" in header_of(asked):
            told, arrays = header_of(reply), unpacked(reply)[1]
            assert told.keys() == {"weight", "metrics", "client", "answers"}
            assert {key.split("/")[0] for key in arrays} == {"model", "exp_avg_sq"}


def test_the_stage_goes_on_without_clients_that_are_away_or_send_nonsense(tmp_path):
    def poisoned(reply):
        header, arrays = unpacked(reply)
        if "weight" not in header:
            return reply
        return packed(header, Parcel.of({key: own * torch.nan for key, own in arrays.items()}))

    more = ["engine.min_share=0.3", "rounds.total=1"]
    _, run = run_on_nodes(tmp_path, *more, change={1: poisoned})
    assert run.finished
    assert all(own.isfinite().all() for own in weights_in(tmp_path).values())


def test_a_node_that_adds_noise_refuses(tmp_path):
    noise = {"dp-clip": 1.0, "dp-noise": 1.0}
    with pytest.raises(RunError, match="train a generator without any"):
        run_on_nodes(tmp_path, node_config=noise)


class TestGaussian:
    GENERATOR = "generator=federated(of=gaussian(components=5))"

    def test_nodes_send_their_sums_alone_and_make_the_same_generator(self, tmp_path):
        here = execute(load_config(None, [*BASE, self.GENERATOR, "engine.name=local"]), RunStore(tmp_path / "here"))
        grid, there = run_on_nodes(tmp_path / "there", self.GENERATOR, "engine.share_counts=true")
        one, other = (weights_in(tmp_path / place) for place in ("here", "there"))
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
        assert [record["accuracy"] for record in here.rounds()] == [record["accuracy"] for record in there.rounds()]
        first = next(reply for action, _, reply in grid.seen if action == "train")
        assert unpacked(first)[1].keys() == {"model/class_sums"}

    def test_they_are_not_sent_by_nodes_that_keep_their_counts(self, tmp_path):
        with pytest.raises(RunError, match="federated Gaussian generator needs the clients' label counts"):
            run_on_nodes(tmp_path, self.GENERATOR)
