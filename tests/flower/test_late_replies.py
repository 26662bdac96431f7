"""The server accepts one reply to each message that it sent, and no other reply."""

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

import torch
from flower.absences import run_with_absences
from flower.grids import StraightGrid
from flwr.app import Message
from safetensors.torch import load_file

from fedeas.config import load_config
from fedeas.flower.app import run_on
from fedeas.flower.engine import NotReadyError
from fedeas.flower.wire import Parcel, packed, unpacked
from fedeas.runs.store import RunStore

CLIENTS = 3
BASE = [f"partition.clients={CLIENTS}", "rounds.total=3", "rounds.participation=1.0", "train.steps=1", "train.lr=0.1",
        "algorithm=scaffold", "engine.threads=1", "engine.timeout=0.5"]  # fmt: skip


def run(grid, folder, *more, after=None):
    return run_on(grid, load_config(None, [*BASE, *more, "engine.name=flower"]), RunStore(folder), after)


def weights(finished):
    return {name: tensor for name, tensor in load_file(finished.checkpoint).items() if name.startswith("server/")}


def assert_same(one, other):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def missing(finished):
    return [record.get("missing", []) for record in finished.rounds()]


def refused(caplog):
    """The lines of the log about client 1, or about no client."""
    return [each.getMessage() for each in caplog.records if each.getMessage().startswith(("client 1", "refused"))]


@pytest.fixture(scope="module")
def without_client_1(tmp_path_factory):
    """The same run on one machine, in which client 1 is absent in these rounds, counted from 0."""
    return lambda *away: run_with_absences(tmp_path_factory.mktemp("expected"), BASE, {round: {1} for round in away})


def replies(grid, action, client):
    """All replies of a client so far."""
    contents = [reply for kind, _, reply in grid.seen if kind == action]
    return [content for content in contents if unpacked(content)[0]["client"] == client]


def from_another_run(tmp_path, *more):
    """The reply of client 1 in the second round of another run."""
    grid = StraightGrid(tmp_path / "other-nodes", CLIENTS)
    run(grid, tmp_path / "other", *more)
    return replies(grid, "train", client=1)[1]


def as_an_older_client(content):
    """A reply that does not name its message."""
    header, arrays = unpacked(content)
    return packed({name: value for name, value in header.items() if name != "answers"}, Parcel.of(arrays))


STALE = {
    "late": (lambda path, grid, own: replies(grid, "train", client=1)[-1], "train of client 1 in round 1 "),
    "another client's": (lambda path, grid, own: replies(grid, "train", client=0)[-1], "train of client 0 in round 2 "),
    "to another task": (lambda path, grid, own: replies(grid, "query.settle", client=1)[-1], "query.settle of client"),
    "of another run": (lambda path, grid, own: from_another_run(path, "seed=1"), "train of client 1 in round 2 "),
    "of an earlier start": (lambda path, grid, own: from_another_run(path), "train of client 1 in round 2 "),
    "of an older client": (lambda path, grid, own: as_an_older_client(own), "install the server's version of fedeas"),
}


@pytest.mark.parametrize("kind", STALE)
def test_a_reply_to_another_message_is_refused_in_one_line_and_its_client_is_missing(
    tmp_path, caplog, kind, without_client_1
):
    taken_for_it, reason = STALE[kind]
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)

    def after(record):  # in the second round, another reply comes in the place of client 1's
        grid.change = {1: lambda own: taken_for_it(tmp_path, grid, own)} if record["round"] == 1 else {}

    finished = run(grid, tmp_path / "runs", after=after)
    assert missing(finished) == [[], [1], []]
    assert_same(finished, without_client_1(1))
    (line,) = refused(caplog)
    assert reason in line
    assert "\n" not in line


class BehindGrid(StraightGrid):
    """The node of client 1 replies to each message with its reply to the message before, as long as it is `behind`."""

    behind = True
    held = None

    def delivered(self, message):
        name = super().delivered(message)
        if message.metadata.dst_node_id == self.node(1) and message.metadata.message_type == "train" and self.behind:
            former, self.held = self.held, self.replies.pop(name).content
            if former is not None:
                self.replies[name] = Message(former, reply_to=message)
        return name


def test_a_node_that_is_a_message_behind_is_missing_until_it_has_caught_up(tmp_path, caplog, without_client_1):
    grid = BehindGrid(tmp_path / "nodes", CLIENTS)

    def after(record):
        grid.behind = record["round"] < 2

    finished = run(grid, tmp_path / "runs", after=after)
    assert missing(finished) == [[1], [1], []]
    assert_same(finished, without_client_1(0, 1))
    nothing, late = refused(caplog)
    assert "no answer within" in nothing
    assert "train of client 1 in round 1 " in late


class RepeatingGrid(StraightGrid):
    """Delivers each reply of a round twice, and those of the former rounds again before them."""

    def __post_init__(self):
        super().__post_init__()
        self.former = []

    def pull_messages(self, ids):
        fresh = super().pull_messages(ids)
        delivered = [*self.former, *fresh, *fresh]
        self.former += fresh
        return delivered


def test_a_reply_is_accepted_once_and_each_repeat_is_refused_in_one_line(tmp_path, caplog, without_client_1):
    grid = RepeatingGrid(tmp_path / "nodes", CLIENTS)
    finished = run(grid, tmp_path / "runs")
    assert missing(finished) == [[], [], []]
    assert_same(finished, without_client_1())
    assert [record["clients"] for record in finished.rounds()] == [[0, 1, 2]] * 3
    lines, exchanges = refused(caplog), 5  # hello, settle, three rounds
    assert len(lines) == CLIENTS * sum(1 + former for former in range(exchanges))
    assert all(line.startswith("refused a reply to message") for line in lines)


def test_a_run_does_not_begin_with_an_older_client_and_says_what_to_install(tmp_path):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    plain = grid.delivered

    def delivered(message):
        name = plain(message)
        grid.replies[name] = Message(as_an_older_client(grid.replies[name].content), reply_to=message)
        return name

    grid.delivered = delivered
    with pytest.raises(NotReadyError, match="install the server's version of fedeas on its node"):
        run(grid, tmp_path / "runs", "engine.timeout=600")
