"""Flower's own mods on the client's messages."""

import math

import pytest
import torch

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

import flwr.clientapp.mod as mods
from flower.grids import StraightGrid
from flwr.clientapp import ClientApp

from fedeas.config import load_config
from fedeas.flower.app import hello, run_on, settle, work
from fedeas.flower.wire import unpacked
from fedeas.runs.store import RunStore

CLIENTS = 2
SETTINGS = [f"partition.clients={CLIENTS}", "rounds.total=1", "rounds.participation=1.0", "train.epochs=1",
            "train.lr=0.1", "engine.threads=1", "engine.timeout=0.3", "engine.name=flower"]  # fmt: skip


def run_with(tmp_path, *chosen, model="model.norm=none"):
    """A run whose clients answer through these mods; what each was sent, and what it replied."""
    app = ClientApp()
    for name, function in (("hello", hello), ("settle", settle), ("setup", work)):
        app.query(name)(function)
    app.train(mods=list(chosen))(work)
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, app=app)
    run = run_on(grid, load_config(None, [*SETTINGS, model]), RunStore(tmp_path / "runs"))
    return run, [(unpacked(sent)[1], unpacked(reply)[1]) for kind, sent, reply in grid.seen if kind == "train"]


def norm_of_change(sent, reply):
    changes = [(reply[name] - sent[name]).double().square().sum() for name in sent if sent[name].is_floating_point()]
    return float(torch.stack(changes).sum().sqrt())


def types(arrays):
    return {name: tensor.dtype for name, tensor in arrays.items()}


@pytest.mark.parametrize("model", ["model.norm=none", "model.norm=batch"], ids=["weights alone", "with counters"])
def test_local_dp_mod_clips_updates(tmp_path, model):
    plain, free = run_with(tmp_path / "plain", model=model)
    clip = 0.5 * min(norm_of_change(*each) for each in free)
    run, seen = run_with(tmp_path / "clipped", mods.LocalDpMod(clip, 0.0, 1.0, 1e-5), model=model)
    assert run.finished
    assert [norm_of_change(*each) for each in seen] == pytest.approx([clip] * CLIENTS, rel=1e-4)
    assert plain.rounds()[0]["steps"] == run.rounds()[0]["steps"]
    assert [types(reply) for _, reply in free] == [types(reply) for _, reply in seen]


def test_local_dp_mod_adds_noise(tmp_path):
    spread = 0.25 * math.sqrt(2 * math.log(1.25 / 1e-5))
    _, seen = run_with(tmp_path, mods.LocalDpMod(1e-6, 0.25, 1.0, 1e-5))
    for sent, reply in seen:
        noise = torch.cat([(reply[name] - sent[name]).flatten() for name in sent])
        assert float(noise.std()) == pytest.approx(spread, rel=0.1)


def test_mods_that_measure_messages_find_arrays(tmp_path):
    run, _ = run_with(tmp_path, mods.arrays_size_mod, mods.message_size_mod)
    assert run.finished


def test_flower_has_no_secure_aggregation_for_its_message_api():
    """docs/privacy.md says so; when this fails, it can be had."""
    assert not [name for name in dir(mods) if "secagg" in name.lower()]
