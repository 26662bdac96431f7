"""The Flower engine equals the local one, does not reveal counts, and continues without clients that fail."""

import dataclasses
import json
import logging
import math
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

from flower.absences import run_with_absences
from flower.grids import StraightGrid
from flwr.app import ConfigRecord, Message, RecordDict

from fedeas.config import RunConfig, load_config
from fedeas.core.errors import InputError, RunError, StoppedError
from fedeas.core.provenance import Seen
from fedeas.data.sources import load_dataset
from fedeas.federation.run import execute, identified
from fedeas.federation.split import split_data
from fedeas.flower import app as flower_app
from fedeas.flower import client as flower_client
from fedeas.flower.app import run_on
from fedeas.flower.client import Participant
from fedeas.flower.engine import NotReadyError, check_metrics, checked_count
from fedeas.flower.grid import MessageWindow, WatchedGrid, set_at_the_end
from fedeas.flower.node_settings import NodeSettings
from fedeas.flower.wire import About, Parcel, ReplyStore, packed, unpacked
from fedeas.models.build import build_model
from fedeas.runs.store import RunStore

ROOT = Path(__file__).parents[2]
CLIENTS = 4
BASE = [f"partition.clients={CLIENTS}", "rounds.total=3", "rounds.participation=0.75", "train.epochs=1",
        "train.lr=0.05", "engine.threads=1"]  # fmt: skip
BRIEF = "engine.timeout=0.3"
"""For runs that wait for a client that never answers."""
LOCAL_POLICY = "policy=fedeas(beta=2)"


def config(*more):
    return load_config(None, [*BASE, *more])


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The same run on the reference engine; one that several tests ask for is trained once."""
    store = RunStore(tmp_path_factory.mktemp("local"))
    return lambda *more: execute(config(*more), store)


def on_flower(tmp_path, *more):
    """A run, and the grid that has seen its messages."""
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    return run_on(grid, config(*more, "engine.name=flower"), RunStore(tmp_path / "flower")), grid


def server_arrays(run):
    return {name: tensor for name, tensor in load_file(run.checkpoint).items() if name.startswith("server/")}


def assert_same(one, other):
    one, other = server_arrays(one), server_arrays(other)
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


class CountingGrid(StraightGrid):
    """Notes how many messages were under way at once."""

    most = 0

    def push_messages(self, messages):
        numbers = super().push_messages(messages)
        self.most = max(self.most, len(self.replies))
        return numbers


class FixedWindow(MessageWindow):
    """Does not follow the replies."""

    def note_replies(self, count):
        pass


@pytest.mark.parametrize(("window", "most"), [(FixedWindow(1), 1), (FixedWindow(3), 3), (None, CLIENTS)])
def test_a_window_limits_messages_under_way_and_changes_nothing_else(window, most, tmp_path, local):
    grid = CountingGrid(tmp_path / "nodes", CLIENTS)
    asked = config("engine.name=flower", LOCAL_POLICY)
    run = run_on(grid, asked, RunStore(tmp_path / "flower"), window=window)
    assert grid.most == most
    assert_same(run, local(LOCAL_POLICY))


class DatedGrid(StraightGrid):
    """Notes when the last replies were fetched, and when each message was made after that."""

    fetched = 0.0

    def __post_init__(self):
        super().__post_init__()
        self.made_after_the_last_replies = []

    def push_messages(self, messages):
        self.made_after_the_last_replies += [message.metadata.created_at >= self.fetched for message in messages]
        return super().push_messages(messages)

    def pull_messages(self, ids):
        self.fetched = time.time()
        return super().pull_messages(ids)


def test_a_message_that_waits_for_its_turn_does_not_expire_meanwhile(tmp_path):
    grid = DatedGrid(tmp_path / "nodes", CLIENTS)
    asked = config("engine.name=flower", "rounds.total=1", "train.steps=1")
    run_on(grid, asked, RunStore(tmp_path / "flower"), window=FixedWindow(1))
    assert all(grid.made_after_the_last_replies)


class SlowGrid(StraightGrid):
    """Takes a third of the timeout for each message."""

    def push_messages(self, messages):
        time.sleep(0.1)
        return super().push_messages(messages)


def test_a_client_that_is_asked_late_has_as_much_time_as_the_others(tmp_path):
    grid = SlowGrid(tmp_path / "nodes", CLIENTS)
    asked = config("engine.name=flower", BRIEF, "rounds.total=1")
    run = run_on(grid, asked, RunStore(tmp_path / "flower"), window=FixedWindow(1))
    assert "missing" not in run.rounds()[0]


def window_after(looks, least=4):
    """A window, and its clock's time, after looks of (seconds since the last one, replies)."""
    now = 0.0
    window = MessageWindow(least, clock=lambda: now)
    for seconds, replies in looks:
        now += seconds
        window.note_replies(replies)
    return window.size


def test_a_window_grows_while_all_messages_are_answered_at_once():
    sizes = [4]
    for _ in range(5):
        sizes.append(window_after([(0.1, size) for size in sizes]))
    assert all(after >= 2 * before for before, after in pairwise(sizes))


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 9)), max_size=20))
def test_a_window_stays_small_for_slow_clients(looks):
    assert 4 <= window_after(looks) <= max(4, 2 * sum(replies for _, replies in looks))
    assert window_after([*looks, (1.0, 1)]) == 4


def test_clients_of_one_process_load_and_split_the_dataset_once(tmp_path, monkeypatch, local):
    loaded = []
    monkeypatch.setattr(flower_client, "load_dataset", lambda *asked: loaded.append(asked) or load_dataset(*asked))
    flower_client._shared_split.cache_clear()
    run, _ = on_flower(tmp_path, LOCAL_POLICY)
    assert len(loaded) == 1
    assert_same(run, local(LOCAL_POLICY))


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.tuples(
            st.lists(st.integers(0, 3), max_size=3),
            st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]),
        ),
        max_size=4,
    )
)
def test_tensors_of_every_type_and_shape_are_unpacked_as_they_were(kinds):
    arrays = {name: (torch.rand(shape) * 9 - 3).to(dtype) for name, (shape, dtype) in kinds.items()}
    header, found = unpacked(packed({"a": [1, 0.1]}, Parcel.of(arrays)))
    assert header == {"a": [1, 0.1]}
    assert list(found) == list(arrays)
    for name, tensor in arrays.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found[name], tensor)


def test_nan_and_infinity_are_sent_unchanged():
    values = torch.tensor([float("nan"), float("-inf"), -0.0])
    _, found = unpacked(packed({}, Parcel.of({"x": values.t()})))
    assert torch.equal(found["x"].view(torch.int32), values.view(torch.int32))


@pytest.mark.parametrize(
    "settings",
    [
        ["algorithm=fedavg", LOCAL_POLICY],
        ["algorithm=scaffold", LOCAL_POLICY],
        ["algorithm=moon", "policy=uniform(budget=fedeas(beta=2))"],
        ["algorithm=fedprox", "policy=missing-only(budget=fedeas(beta=2))"],
        ["algorithm=fedmix(mash=4)", "policy=full-balance", "partition.alpha=5", "engine.share_counts=true"],
        ["algorithm=fedgen(ensemble_epochs=2)", "policy=greedy(budget=50)", "engine.share_counts=true"],
        ["data.protocol=paper", "partition.scheme=paper", "partition.alpha=0.5", LOCAL_POLICY],
        ["generator=shared(of=gaussian, each=60)", "policy=greedy(budget=50)", "engine.share_counts=true"],
    ],
    ids=lambda settings: settings[0].partition("=")[2] + " " + settings[1].partition("=")[2],
)
def test_the_same_run_on_flower_is_the_same_bit_for_bit(tmp_path, local, settings):
    here, (flower, _) = local(*settings), on_flower(tmp_path, *settings)
    assert_same(here, flower)
    for key in ("accuracy", "gamma_hat", "total", "generated", "synthetic_share", "fingerprint"):
        assert here.summary()[key] == flower.summary()[key], key
    for key in ("clients", "steps", "samples"):
        assert [record[key] for record in here.rounds()] == [record[key] for record in flower.rounds()], key


def numbers_in(content):
    """Everything in a message that a number could be read from, but the text that repeats what was asked."""
    header, arrays = unpacked(content)
    header = {key: value for key, value in header.items() if key not in ("config", "about", "metrics", "answers")}
    return header, arrays


@pytest.mark.parametrize("policy", ["fedeas(beta=2)", "uniform(budget=fedeas(beta=2))"])
def test_no_label_count_leaves_a_client(tmp_path, policy):
    run, grid = on_flower(tmp_path, "algorithm=scaffold", f"policy={policy}")
    model = {name.removeprefix("server/") for name in load_file(run.checkpoint)}
    allowed = {
        "hello": {"client", "size", "own_data", "own_generator"},
        "settle": {"client", "total"},
        "train": {"client", "weight"},
    }
    if policy.startswith("uniform"):
        allowed["hello"] |= {"total", "filled"}
    for action, sent, reply in grid.seen:
        header, arrays = numbers_in(reply)
        assert unpacked(reply)[0]["answers"] == unpacked(sent)[0]["asked"]
        assert set(header) <= allowed[action.removeprefix("query.")], action
        assert set(arrays) <= model, action  # weights and control variates, which the server holds too
        assert set(unpacked(reply)[0].get("metrics", {})) <= {
            "loss", "steps", "samples", "train_seconds", "generate_seconds", "prepare_seconds"}  # fmt: skip
    headers = [numbers_in(reply)[0] for _, _, reply in grid.seen]
    assert {header["filled"] for header in headers if "filled" in header} <= {10}  # all classes of the run
    assert not run.has_allocation
    assert run.summary()["imbalance_removed"] is None


@pytest.mark.parametrize("setting", ["policy=greedy(budget=9)", "algorithm=fedgen", "algorithm=fedmix"])
def test_policies_that_need_counts_are_refused_unless_sharing_is_allowed(tmp_path, setting):
    grid = StraightGrid(tmp_path, CLIENTS)
    with pytest.raises(RunError, match=r"needs the clients' label counts; set engine.share_counts=true"):
        run_on(grid, config(setting, "engine.name=flower"), RunStore(tmp_path / "runs"))


def test_a_node_may_refuse_to_share_its_counts(tmp_path):
    grid = StraightGrid(tmp_path, CLIENTS, node_config={"share-counts": False})
    settings = ["policy=greedy(budget=9)", "engine.name=flower", "engine.share_counts=true"]
    with pytest.raises(RunError, match=r"client \d \(node \d+\): its node does not share label counts"):
        run_on(grid, config(*settings), RunStore(tmp_path / "runs"))


FOREIGN_CODE = [
    *(f"{part}=python:os:getcwd" for part in ("generator", "policy", "algorithm", "model.name", "data.dataset")),
    "generator=shared(of=python:os:getcwd)",
    "generator=agreeing(of=shared(of=python:os:getcwd))",
]


@pytest.mark.parametrize("named", FOREIGN_CODE)
def test_a_node_does_not_run_code_of_the_servers_choice(tmp_path, named):
    grid = StraightGrid(tmp_path, CLIENTS)
    settings = [LOCAL_POLICY, named, "engine.name=flower"]
    with pytest.raises(InputError, match="would run code of the server's choice"):
        run_on(grid, config(*settings), RunStore(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
    header = config(*settings).model_dump(mode="json")
    about = About.of(load_dataset("digits"))
    with pytest.raises(InputError, match="would run code of the server's choice"):  # whatever a server sends
        Participant(RunConfig.model_validate(header), 0, about, NodeSettings(tmp_path / "state"))


def test_code_of_ones_own_runs_in_a_simulation_and_not_on_a_node(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    own = ["policy=python:examples.own_policy:RaiseRare(share=0.5)", "algorithm=python:examples.own_loss:FedLC",
           "generator=shared(of=python:examples.custom_generator:stripes)", "engine.share_counts=true"]  # fmt: skip
    given = config(*own, "engine.name=flower"), 0, About.of(load_dataset("digits")), NodeSettings(tmp_path / "state")
    with flower_app.simulated_machine(tmp_path):
        assert Participant(*given).introduce()["client"] == 0
    with pytest.raises(InputError, match="would run code of the server's choice"):
        Participant(*given)


def test_a_nodes_own_generator_is_used(tmp_path, local):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, node_config={"generator": "gaussian(components=3)"})
    own = run_on(grid, config(LOCAL_POLICY, "engine.name=flower"), RunStore(tmp_path / "own"))
    assert_same(own, local(LOCAL_POLICY, "generator=gaussian(components=3)"))
    assert own.summary()["seen"] == "unknown"  # nobody told the server what it was made from


def test_a_pool_that_is_too_small_is_refused_without_telling_the_server_what_it_does_not_know(tmp_path, caplog):
    pool = "generator=shared(of=gaussian, each=1)"
    with pytest.raises(InputError, match="the pool has 1"):
        on_flower(tmp_path / "shared", pool, "policy=greedy(budget=50)", "engine.share_counts=true")
    with pytest.raises(RunError, match="its node's log has the reason") as told:
        on_flower(tmp_path / "private", pool, "policy=fedeas(beta=4)")
    assert "each" not in str(told.value)
    assert "the pool has 1" in caplog.text


def test_nodes_with_a_generator_of_their_own_need_no_pool(tmp_path, local):
    settings = ["policy=greedy(budget=50)", "engine.share_counts=true"]
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, node_config={"generator": "gaussian"})
    chosen = config(*settings, "generator=shared(of=gaussian, each=1)", "engine.name=flower")
    assert_same(run_on(grid, chosen, RunStore(tmp_path / "own")), local(*settings, "generator=gaussian"))


def test_nodes_with_a_generator_of_their_own_do_not_count_for_the_size_of_a_pool(tmp_path):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, node_config={"generator": "gaussian"})
    settings = ["policy=pool(distinct=50)", "generator=shared(of=gaussian, each=1)", "engine.share_counts=true"]
    run = run_on(grid, config(*settings, "engine.name=flower"), RunStore(tmp_path / "own"))
    assert run.finished
    assert run.allocation()[1].n.max() > 1


def test_a_nodes_own_data_are_used_with_the_federations_classes(tmp_path, local):
    """Each node has its part as a file of its own, in which some classes do not occur."""
    data = split_data(config(LOCAL_POLICY), load_dataset("digits"))
    names = data.dataset.classes
    for client, part in enumerate(data.partition.indices):
        held = np.unique(data.labels[part])
        np.savez(
            tmp_path / f"{client}.npz",
            images=data.images[part],
            labels=np.searchsorted(held, data.labels[part]),
            classes=np.array([names[label] for label in held]),
        )
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    plain = grid.delivered

    def delivered(message):
        grid.node_config |= {"data": f"npz:{tmp_path}/{whose(grid, message)}.npz", "policies": "fedeas(beta=2)"}
        return plain(message)

    grid.delivered = delivered
    settings = [LOCAL_POLICY, "generator=diffusion(steps=2)"]
    own = run_on(grid, config(*settings, "engine.name=flower"), RunStore(tmp_path / "own"))
    assert_same(own, local(*settings))


def whose(grid, message):
    return next(each for each in range(CLIENTS) if grid.node(each) == message.metadata.dst_node_id)


FAULTS = ["off", "silent", "nan", "shape", "weight", "absent", "impostor", "garbage", "infinite", "header", "refused"]


def broken(kind):
    def change(content):
        header, arrays = unpacked(content)
        arrays = {name: tensor.clone() for name, tensor in arrays.items()}
        name = next(iter(arrays))
        if kind == "nan":
            arrays[name].view(-1)[0] = float("nan")
        elif kind == "shape":
            arrays[name] = arrays[name][..., :-1]
        elif kind == "weight":
            header["weight"] *= 1000
        elif kind == "impostor":
            header["client"] = 0
        elif kind == "garbage":
            return RecordDict({"fedeas": ConfigRecord({"json": "{}", "index": '[["x", "load", [1]]]'})})
        elif kind == "infinite":
            header["weight"] = float("inf")
        elif kind == "header":
            whole = packed(header, Parcel.of(arrays))
            array = whole.array_records["tensors"]["packed"]
            array.data = array.data.replace(b"{", b"(", 1).replace(b"}", b" ", 1)  # a bracket that is never closed
            return whole
        elif kind == "refused":
            return packed({"refused": "the disk is full", "client": 1, "answers": header["answers"]})
        else:
            del arrays[name]
        return packed(header, Parcel.of(arrays))

    return change


@pytest.fixture(scope="module", params=["fedavg", "scaffold"])
def with_an_absence(request, tmp_path_factory):
    """Settings, and their run on the reference engine in which client 1 is away in the second round."""
    settings = [LOCAL_POLICY, f"algorithm={request.param}", "train.steps=2", "seed=1", BRIEF]
    return settings, run_with_absences(tmp_path_factory.mktemp("expected"), [*BASE, *settings], {1: {1}})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_round_continues_without_a_client_that_fails(tmp_path, caplog, fault, with_an_absence):
    grid, (settings, expected) = StraightGrid(tmp_path / "nodes", CLIENTS), with_an_absence

    def after(record):  # client 1 fails in the second round and is back in the third
        fails = {1} if record["round"] == 1 else set()
        grid.off, grid.silent = (fails if fault == kind else set() for kind in ("off", "silent"))
        grid.change = {1: broken(fault)} if fails and fault not in ("off", "silent") else {}

    with caplog.at_level(logging.WARNING, "fedeas"):
        run = run_on(grid, config(*settings, "engine.name=flower"), RunStore(tmp_path / "flower"), after)
    asked = [1 in record["clients"] for record in run.rounds()]
    assert asked == [True, True, True], "the schedule of this seed"
    assert [record.get("missing") for record in run.rounds()] == [None, [1], None]
    assert "client 1" in caplog.text
    assert_same(run, expected)


ODD = [{"loss": "high"}, {"loss": None}, {"loss": float("nan")}, {"loss": [1.0]}, {"steps": float("inf")},
       {"steps": 10**400}, {"steps": 1e308}, {"epsilon": "1"}, {"own": {}}, [1.0], None, "fine"]  # fmt: skip


@pytest.mark.parametrize("metrics", ODD, ids=lambda metrics: str(metrics)[:20])
def test_clients_with_odd_metrics_are_missing_from_their_round(tmp_path, metrics):
    def change(content):
        header, arrays = unpacked(content)
        return packed({**header, "metrics": metrics}, Parcel.of(arrays))

    grid = StraightGrid(tmp_path / "nodes", CLIENTS, change={1: change, 2: change})
    settings = ["rounds.total=1", "rounds.participation=1.0", "train.steps=1", "engine.name=flower"]
    run = run_on(grid, load_config(None, [*BASE, *settings]), RunStore(tmp_path / "flower"))
    (record,) = run.rounds()
    assert record["missing"] == [1, 2]
    assert math.isfinite(record["train_loss"])


@given(st.dictionaries(st.text(max_size=5), st.integers(-(2**70), 2**70) | st.floats(-1e99, 1e99) | st.booleans()))
def test_metrics_may_be_any_numbers_by_name(metrics):
    check_metrics(metrics)


@pytest.mark.parametrize(
    "trouble", [RunError("/runs: no space is left"), InputError("/runs: read-only"), torch.OutOfMemoryError("all used")]
)
def test_trouble_of_the_server_ends_the_run_and_is_not_blamed_on_a_client(tmp_path, monkeypatch, caplog, trouble):
    def fail(store, arrays):
        raise trouble

    monkeypatch.setattr(ReplyStore, "keep", fail)
    with pytest.raises(type(trouble)) as ended:
        on_flower(tmp_path, LOCAL_POLICY)
    assert ended.value is trouble
    assert not [record for record in caplog.records if record.getMessage().startswith("client ")]


def test_a_late_server_accepts_replies_that_came_in_time(tmp_path):
    grid, settings = StraightGrid(tmp_path / "nodes", CLIENTS), [LOCAL_POLICY, "engine.timeout=1e-9"]
    run = run_on(grid, config(*settings, "engine.name=flower"), RunStore(tmp_path / "flower"))
    assert [record.get("missing") for record in run.rounds()] == [None, None, None]


def test_too_few_answers_end_the_run_with_a_reason(tmp_path):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, silent={0, 1, 2, 3})
    with pytest.raises(
        RunError, match=r"round 1: 0 of 3 .* answered, and 50% must \(client \d: no answer within 0.3 s\)"
    ):
        run_on(grid, config(BRIEF, "engine.name=flower"), RunStore(tmp_path / "runs"))


def test_an_incomplete_federation_does_not_start(tmp_path):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, off={2})
    with pytest.raises(RunError, match=r"clients \[2\] did not come within 0.3 s"):
        run_on(grid, config(BRIEF, "engine.name=flower"), RunStore(tmp_path / "runs"))


class MovingGrid(StraightGrid):
    """Client 1 returns as another node when it has `moved`; its former node may count as connected, and is silent."""

    moved = former_is_listed = False

    def node(self, client):
        return 424_242 if client == 1 and self.moved else StraightGrid.node(client)

    def get_node_ids(self):
        return [*super().get_node_ids(), *([StraightGrid.node(1)] if self.former_is_listed else [])]

    def delivered(self, message):
        if self.moved and message.metadata.dst_node_id == StraightGrid.node(1):
            return message.metadata.message_id
        return super().delivered(message)


@pytest.mark.parametrize(
    ("former_is_listed", "missing"), [(False, [None, None, None]), (True, [None, [1], None])], ids=["gone", "listed"]
)
def test_a_client_that_returns_as_another_node_takes_part_again(tmp_path, former_is_listed, missing):
    grid = MovingGrid(tmp_path / "nodes", CLIENTS)

    def after(record):
        grid.moved, grid.former_is_listed = True, former_is_listed and record["round"] == 1

    settings = ["rounds.participation=1.0", "train.steps=1", BRIEF, "engine.name=flower"]
    run = run_on(grid, config(*settings), RunStore(tmp_path / "runs"), after)
    assert [record.get("missing") for record in run.rounds()] == missing


CLAIMS = {9: r"client 9 \(node {}\): partition-id 9 .* 0 to 3", 0: r"client 0, and so does node {}"}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_node_with_a_wrong_client_id_is_not_accepted(tmp_path, claim):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    plain = grid.delivered

    def delivered(message):  # the node of client 2 says that it is another one
        grid.node_config = {"partition-id": claim} if whose(grid, message) == 2 else {}
        return plain(message)

    grid.delivered = delivered
    with pytest.raises(RunError, match=CLAIMS[claim].format(grid.node(2)) + r".*not ready: \[2\]"):
        run_on(grid, config("engine.timeout=600", "engine.name=flower"), RunStore(tmp_path / "runs"))


@pytest.mark.parametrize("value", [-1, "3", None, 2.5, True, math.nan])
def test_a_count_is_a_whole_number_from_0_on(value):
    with pytest.raises(ValueError, match="no count"):
        checked_count(value)


@pytest.mark.parametrize(
    ("action", "sent", "why"),
    [
        ("query.hello", {"size": -5}, "no count"),
        ("query.hello", {"counts": [1.5] * 10}, "no count"),
        ("query.hello", {"counts": 7}, "cannot be read"),
        ("query.hello", {"counts": [5, 5]}, "counts of 2 classes, not 10"),
        ("query.settle", {"total": -5}, "no count"),
    ],
)
def test_a_client_that_sends_an_unusable_count_is_named_before_the_first_round(tmp_path, action, sent, why):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    plain = grid.delivered

    def delivered(message):
        number = plain(message)
        if whose(grid, message) == 2 and message.metadata.message_type == action:
            content = packed({**unpacked(grid.replies[number].content)[0], **sent})
            grid.replies[number] = Message(content, reply_to=message)
        return number

    grid.delivered = delivered
    wanted = config(BRIEF, "engine.name=flower", "engine.share_counts=true", "policy=greedy(budget=20)")
    with pytest.raises((NotReadyError, InputError), match=rf"(client 2|node \d+):? .*{why}"):
        run_on(grid, wanted, RunStore(tmp_path / "runs"))
    assert "train" not in {action for action, _ in grid.log}


def test_a_node_that_expects_another_number_of_clients_is_refused(tmp_path):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, node_config={"num-partitions": 7})
    with pytest.raises(RunError, match=f"num-partitions 7 .* {CLIENTS} clients"):
        run_on(grid, config("engine.name=flower"), RunStore(tmp_path / "runs"))


@pytest.mark.parametrize("node_config", [{"share-counts": "no"}, {"device": "abacus"}, {"num-partitions": 7}])
def test_a_refusal_is_one_line_in_the_nodes_log_too(tmp_path, caplog, node_config):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, node_config=node_config)
    with pytest.raises(RunError):
        run_on(grid, config("engine.name=flower"), RunStore(tmp_path / "runs"))
    told = [each.getMessage() for each in caplog.records if "refused query.hello" in each.getMessage()]
    assert len(told) == CLIENTS
    assert all(next(iter(node_config)) in line and "\n" not in line for line in told)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("share", [float("inf"), 1e-9], ids=["checkpoints after every round", "after the first alone"])
@pytest.mark.parametrize("algorithm", ["scaffold", pytest.param("moon", marks=pytest.mark.slow)])
def test_a_killed_server_resumes_from_its_checkpoint(tmp_path, local, monkeypatch, share, algorithm):
    """Clients may be ahead of the checkpoint; they return to it with the server."""
    monkeypatch.setattr("fedeas.federation.checkpoint.SHARE", share)
    settings = [LOCAL_POLICY, f"algorithm={algorithm}", "rounds.total=4"]
    grid, store = StraightGrid(tmp_path / "nodes", CLIENTS), RunStore(tmp_path / "flower")

    def kill(record):
        if record["round"] == 3:
            raise Killed

    with pytest.raises(Killed):
        run_on(grid, config(*settings, "engine.name=flower"), store, kill)
    run = run_on(grid, config(*settings, "engine.name=flower"), store)
    assert_same(run, local(*settings))
    assert [record["round"] for record in run.rounds()] == [1, 2, 3, 4]


class StoppedGrid(StraightGrid):
    """Sets `stopped` when this message comes, which client 0 never answers."""

    def __init__(self, folder, action, stopped):
        super().__init__(folder, CLIENTS)
        self.action, self.stopped = action, stopped

    def delivered(self, message):
        name = super().delivered(message)
        if message.metadata.message_type == self.action and whose(self, message) == 0:
            self.replies.pop(name, None)
            self.stopped.set()
        return name


@pytest.mark.parametrize("action", ["query.hello", "query.settle", "train"])
def test_a_stopped_server_does_not_wait_for_clients_and_its_run_can_be_resumed(tmp_path, local, action):
    stopped, store = threading.Event(), RunStore(tmp_path / "runs")
    grid = WatchedGrid(StoppedGrid(tmp_path / "nodes", action, stopped), stopped)
    settings = [LOCAL_POLICY, "rounds.participation=1.0"]
    with pytest.raises(StoppedError):
        run_on(grid, config(*settings, "engine.name=flower"), store)
    whole = StraightGrid(tmp_path / "nodes", CLIENTS)
    assert_same(run_on(whole, config(*settings, "engine.name=flower"), store), local(*settings))


def test_ctrl_c_stops_the_server_and_is_then_handled_as_before():
    stopped, before = threading.Event(), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), set_at_the_end(stopped):
            signal.raise_signal(signal.SIGINT)
        assert stopped.is_set()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_new_run_does_not_use_the_states_of_an_earlier_one(tmp_path):
    settings = [LOCAL_POLICY, "algorithm=scaffold", "engine.name=flower"]
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    first, second = (run_on(grid, config(*settings), RunStore(tmp_path / name)) for name in ("one", "two"))
    assert_same(first, second)


def test_images_are_generated_once_and_then_read(tmp_path, monkeypatch):
    made, generate = [], Participant._generate
    monkeypatch.setattr(
        Participant, "_generate", lambda self, *address: made.append(self.client) or generate(self, *address)
    )
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    forget_between_messages(grid, monkeypatch)
    run_on(grid, config(LOCAL_POLICY, "engine.name=flower"), RunStore(tmp_path / "runs"))
    assert sorted(made) == sorted(set(made))
    assert len(made) >= 3


def forget_between_messages(grid, monkeypatch):
    """As if every message started a new process."""
    plain = grid.delivered
    monkeypatch.setattr("fedeas.flower.app._known", known := {})
    grid.delivered = lambda message: known.clear() or plain(message)


def test_a_new_process_for_every_message_does_not_change_the_result(tmp_path, local, monkeypatch):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    forget_between_messages(grid, monkeypatch)
    settings = ["algorithm=scaffold", LOCAL_POLICY]
    run = run_on(grid, config(*settings, "engine.name=flower"), RunStore(tmp_path / "flower"))
    assert_same(run, local(*settings))


def test_a_process_keeps_the_clients_of_one_run(tmp_path):
    about = dataclasses.asdict(About.of(load_dataset("digits")))

    def participant(run, client):
        header = {"config": run.model_dump(mode="json"), "about": about}
        return flower_app._participant(header, SimpleNamespace(node_config={"partition-id": client}))

    one, other = config(), config("seed=1")
    first = [participant(one, client) for client in range(CLIENTS)]
    assert all(participant(one, client) is first[client] for client in range(CLIENTS))
    second = participant(other, 0)
    assert list(flower_app._known.values()) == [second]
    assert second.fingerprint == other.fingerprint


def test_states_that_are_no_longer_needed_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("fedeas.federation.checkpoint.SHARE", float("inf"))
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    settings = [LOCAL_POLICY, "algorithm=scaffold", "rounds.participation=1.0", "rounds.total=6", "engine.name=flower"]
    run_on(grid, config(*settings), RunStore(tmp_path / "runs"))
    for client in range(CLIENTS):
        kept = sorted(path.name for path in (tmp_path / "nodes" / f"node{client}").rglob("state-*"))
        assert kept == ["state-4.safetensors", "state-5.safetensors"]


def test_data_that_do_not_fit_are_named_in_the_nodes_log_and_not_to_the_server(tmp_path, caplog):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", images=rng.integers(0, 255, (9, 1, 8, 8), dtype=np.uint8), labels=np.arange(9) % 3,
             classes=np.array(["0", "1", "dog"]))  # fmt: skip
    own = {"data": f"npz:{tmp_path}/own.npz", "policies": "no-generation"}
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, node_config=own)
    with pytest.raises(RunError, match=r"client \d .*could not do its part; its node's log") as told:
        run_on(grid, config("engine.name=flower"), RunStore(tmp_path / "runs"))
    assert "dog" not in str(told.value)
    assert "class dog is not one of the run's classes" in caplog.text


def test_without_nodes_the_error_says_what_to_use(tmp_path):
    with pytest.raises(InputError, match="use `fedeas run`"):
        execute(config("engine.name=flower"), RunStore(tmp_path))


def test_headers_and_settings_are_sent_as_json(tmp_path):
    """Nothing is pickled: reading a message runs no code."""
    _, grid = on_flower(tmp_path, LOCAL_POLICY)
    for _, sent, reply in grid.seen:
        for content in (sent, reply):
            assert set(content) <= {"fedeas", "tensors"}
            assert all(isinstance(json.loads(content["fedeas"][key]), dict | list) for key in ("json", "index"))


def test_a_node_with_other_data_under_the_runs_name_is_refused(tmp_path):
    known = identified(config(LOCAL_POLICY))
    about, node = About.of(load_dataset("digits")), NodeSettings(tmp_path / "state")
    assert Participant(known, 0, about, node).introduce()["size"] > 0
    for part in ("data", "partition"):
        content = known.content.model_copy(update={part: "0" * 64})
        other = known.model_copy(update={"content": content})
        with pytest.raises(InputError, match=f"its {part} differs"):
            Participant(other, 0, about, NodeSettings(tmp_path / part)).introduce()


def test_a_clean_run_on_flower_refuses_initial_weights_that_saw_its_test_images(tmp_path):
    path = tmp_path / "dirty.safetensors"
    seen = Seen("digits", ("train", "test")).record
    save_file(
        build_model("small-cnn", (1, 8, 8), 10, seed=0).state_dict(), path, {"fedeas": json.dumps({"seen": seen})}
    )
    with pytest.raises(InputError, match="which a clean run on digits tests on"):
        run_on(
            StraightGrid(tmp_path, CLIENTS),
            config(f"model.weights={path}", "engine.name=flower"),
            RunStore(tmp_path / "r"),
        )
    assert not (tmp_path / "r").exists()
