"""What a node refuses to a server, and a server to a node."""

import dataclasses
import importlib.util
import json
import logging
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

import torch
from flower.grids import StraightGrid
from flwr.app import Error, Message
from safetensors.torch import load_file

from fedeas.config import checked_config, load_config
from fedeas.core.errors import InputError, RunError
from fedeas.data.sources import load_dataset
from fedeas.flower.app import run_on
from fedeas.flower.client import Participant
from fedeas.flower.node_settings import NodeSettings, TellableError, read_node_config
from fedeas.flower.revealed_counts import Share
from fedeas.flower.wire import About
from fedeas.runs.store import RunStore

LEAKAGE = Path(__file__).parents[2] / "benchmarks" / "leakage.py"
CLIENTS = 3
BASE = [f"partition.clients={CLIENTS}", "rounds.total=1", "rounds.participation=1.0", "train.epochs=1",
        "engine.threads=1", "engine.timeout=0.3", "engine.name=flower"]  # fmt: skip


def config(*more):
    return load_config(None, [*BASE, *more])


@pytest.fixture(scope="module")
def about():
    return About.of(load_dataset("digits"))


# ---- a client number belongs to a key


def with_a_stranger(tmp_path, claims):
    """One node more than there are clients; it claims to be client 0. Node ids by client, as the keys tell them."""
    grid = StraightGrid(tmp_path / "nodes", CLIENTS + 1)
    plain = grid.delivered

    def delivered(message):
        whose = next(each for each in range(CLIENTS + 1) if grid.node(each) == message.metadata.dst_node_id)
        grid.node_config = {"num-partitions": CLIENTS} | ({"partition-id": 0} if whose in claims else {})
        return plain(message)

    grid.delivered = delivered
    return grid, {client: grid.node(client) for client in range(CLIENTS)}


def test_a_node_whose_key_is_not_listed_is_never_asked(tmp_path, caplog):
    grid, members = with_a_stranger(tmp_path, {CLIENTS})
    run = run_on(grid, config(), RunStore(tmp_path / "runs"), members=members)
    assert run.finished
    assert CLIENTS not in {who for _, who in grid.log}
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [f"node {grid.node(CLIENTS)}" in record.getMessage() for record in told] == [True]


def test_a_listed_node_cannot_take_another_ones_number(tmp_path, caplog):
    grid, members = with_a_stranger(tmp_path, {1})
    with pytest.raises(RunError, match=r"client 1 \(node .*claims to be client 0, which has another key.*\[1\]"):
        run_on(grid, config("engine.timeout=600"), RunStore(tmp_path / "runs"), members=members)
    assert any("claims to be client 0" in record.getMessage() for record in caplog.records
               if record.levelno == logging.ERROR)  # fmt: skip


def test_a_list_without_all_clients_ends_the_run_before_it_starts(tmp_path):
    grid, members = with_a_stranger(tmp_path, set())
    del members[1]
    with pytest.raises(InputError, match="no node is registered for client 1"):
        run_on(grid, config(), RunStore(tmp_path / "runs"), members=members)
    assert not grid.log


# ---- replayed messages


class ReplayingGrid(StraightGrid):
    """Delivers every reply twice, and all former replies again."""

    def __post_init__(self):
        super().__post_init__()
        self.former = []

    def pull_messages(self, ids):
        fresh = super().pull_messages(ids)
        replayed = [*self.former, *fresh, *fresh]
        self.former += fresh
        return replayed


def test_replayed_replies_change_nothing(tmp_path):
    settings = config("rounds.total=2")
    plain = run_on(StraightGrid(tmp_path / "nodes", CLIENTS), settings, RunStore(tmp_path / "plain"))
    replayed = run_on(ReplayingGrid(tmp_path / "nodes2", CLIENTS), settings, RunStore(tmp_path / "replayed"))
    one, other = load_file(plain.checkpoint), load_file(replayed.checkpoint)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert all("missing" not in record for record in replayed.rounds())


# ---- what a node agreed to


def test_a_node_answers_only_for_policies_that_its_owner_named(tmp_path, about):
    node = NodeSettings(tmp_path, policies=("fedeas(beta=2.0)",))
    assert Participant(config("policy=fedeas(beta=2)"), 0, about, read_node(node)).settle(None, None) >= 0
    with pytest.raises(TellableError, match=r"agreed to fedeas\(beta=2.*, and not to fedeas\(beta=3"):
        Participant(config("policy=fedeas(beta=3)"), 0, about, read_node(node))


def read_node(node):
    """The settings as they are read from a node's config."""
    given = {"partition-id": 0, "state-dir": str(node.state), "policies": "; ".join(node.policies)}
    return read_node_config(given)[1]


def test_a_node_with_its_own_data_must_name_policies(tmp_path, about):
    with pytest.raises(TellableError, match="names no policies"):
        Participant(config(), 0, about, NodeSettings(tmp_path, data="npz:own.npz"))


def test_a_node_answers_one_question_for_each_run(tmp_path, about):
    run = config("policy=uniform(budget=fedeas(beta=2))")
    first = Participant(run, 0, about, NodeSettings(tmp_path))
    told, share = first.introduce(), Share(300, 30, 0)
    total = first.settle(share, None)
    again = Participant(run, 0, about, NodeSettings(tmp_path))
    again.begin_anew()  # a server may ask for that as often as it likes
    assert again.introduce() == told
    assert again.settle(share, None) == total
    for other in (Share(301, 30, 0), Share(300, 10, 0), None):
        with pytest.raises(TellableError, match="answered another question"):
            again.settle(other, None)
    lines = [json.loads(line) for line in first.disclosures.path.read_text().splitlines()]
    assert [line["told"] for line in lines] == [{"total": told["total"], "filled": told["filled"]}, {"total": total}]


def test_every_answer_about_a_plan_is_noted(tmp_path, about):
    for beta in (1, 2, 3):
        Participant(config(f"policy=fedeas(beta={beta})"), 0, about, NodeSettings(tmp_path)).settle(None, None)
    lines = (tmp_path / "disclosures-0.jsonl").read_text().splitlines()
    assert len({json.loads(line)["policy"] for line in lines}) == len(lines) == 3


def load(spec):
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_policy_of_the_servers_choice_recovers_counts_unless_policies_are_named(tmp_path, about):
    """The attack of benchmarks/leakage.py, on one client."""
    spec = importlib.util.spec_from_file_location("leakage", LEAKAGE)
    sorted_counts = load(spec).sorted_counts

    def total(level, node):
        policy = f"policy=fedeas(beta={level}, gamma=0, entropy=false, fill=all)"
        asked = Participant(config(policy), 0, about, node)
        asked.samples = client.samples
        return asked.settle(None, None)

    open_node = NodeSettings(tmp_path / "open")
    client = Participant(config(), 0, about, open_node)
    found, _ = sorted_counts(lambda level: total(level, open_node), 10, len(client.labels))
    assert found == sorted(client.counts.tolist())
    careful = dataclasses.replace(open_node, state=tmp_path / "careful", policies=(client.policy.spec,))
    with pytest.raises(TellableError, match="agreed to"):
        sorted_counts(lambda level: total(level, careful), 10, len(client.labels))


# ---- a node's config


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "no client number"),
        ({"partition-id": "0"}, "no client number"),
        ({"partition-id": True}, "no client number"),
        ({"partition-id": 0, "num-partitions": "3"}, "num-partitions in its node config must be a whole number"),
        ({"partition-id": 0, "share-count": False}, "unknown share-count"),
        ({"partition-id": 0, "share-counts": "false"}, "share-counts in its node config must be true or false"),
        ({"partition-id": 0, "policies": "fedeas(alpha=2)"}, "policies in its node config"),
    ],
)
def test_a_node_config_that_does_not_fit_is_refused(given, reason):
    with pytest.raises(TellableError, match=reason):
        read_node_config(given)


def test_a_misspelt_setting_ends_the_run_before_its_first_round(tmp_path):
    grid = StraightGrid(tmp_path, CLIENTS, node_config={"share-count": False})
    with pytest.raises(RunError, match="unknown share-count"):
        run_on(grid, config(), RunStore(tmp_path / "runs"))


def test_a_config_of_another_version_is_told_in_one_line(tmp_path, monkeypatch):
    grid = StraightGrid(tmp_path, CLIENTS)
    plain = type(config()).model_dump

    def dump(self, **options):
        return {**plain(self, **options), "of_the_future": 1}

    monkeypatch.setattr(type(config()), "model_dump", dump)
    with pytest.raises(RunError, match=r"not one for fedeas .*; install the server's version") as told:
        run_on(grid, config(), RunStore(tmp_path / "runs"))
    assert "\n" not in str(told.value)


# ---- errors say nothing about labels


def test_an_error_about_a_class_stays_in_the_nodes_log(tmp_path, caplog, monkeypatch):
    def lacking(self, *address):
        raise InputError("class 8 has no images")

    monkeypatch.setattr(Participant, "_generate", lacking)
    grid = StraightGrid(tmp_path, CLIENTS)
    with pytest.raises(RunError, match=r"client \d: it could not do its part") as told:
        run_on(grid, config("policy=fedeas(beta=2)"), RunStore(tmp_path / "runs"))
    assert "class 8" not in str(told.value)
    assert "class 8 has no images" in caplog.text


def test_an_unforeseen_error_is_not_told_either(tmp_path, monkeypatch):
    def counting(self):
        raise ValueError(f"counts {np.arange(3)}")

    monkeypatch.setattr(Participant, "introduce", counting)
    with pytest.raises(RunError) as told:
        run_on(StraightGrid(tmp_path, CLIENTS), config(), RunStore(tmp_path / "runs"))
    assert "counts" not in str(told.value)


# ---- who took part


def test_a_node_of_another_version_ends_the_run_at_once(tmp_path):
    """As such a node answers."""
    error = Error(2, "<class 'ImportError'>:<'this node runs fedeas 0.0 only'>")
    grid = StraightGrid(tmp_path, CLIENTS)
    plain = grid.delivered

    def delivered(message):
        name = plain(message)
        grid.replies[name] = Message(error, reply_to=message)
        return name

    grid.delivered = delivered
    with pytest.raises(RunError, match=r"^node \d+: this node runs fedeas 0.0 only \("):
        run_on(grid, config("engine.timeout=600"), RunStore(tmp_path / "runs"))


def test_the_settings_of_a_run_travel_as_they_were_read():
    read = load_config(None, [*BASE, "policy=uniform(budget=fedeas(beta=2))", "train.lr=0.07"])
    sent = checked_config(json.loads(read.model_dump_json()))
    assert sent == read
    assert sent.fingerprint == read.fingerprint
