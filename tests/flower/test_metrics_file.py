"""What the server of a run tells Prometheus, and that its bytes are those of the messages."""

import re
import stat

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

import torch
from flower.grids import StraightGrid, message_from_nowhere

from fedeas.config import load_config
from fedeas.flower.app import run_on
from fedeas.flower.grid import METRICS, MetricsFile, WatchedGrid, size_of
from fedeas.flower.wire import Parcel, packed
from fedeas.runs.store import RunStore

BASE = ["partition.clients=2", "rounds.total=2", "rounds.participation=1.0", "train.epochs=1", "engine.threads=1",
        "engine.name=flower"]  # fmt: skip
NUMBER = re.compile(r'fedeas_(\w+)\{run="hospital"\} (\S+)')


def read(path):
    return {name: float(value) for name, value in NUMBER.findall(path.read_text())}


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A run, what its file says after each round, and the messages that went through."""
    folder = tmp_path_factory.mktemp("followed")
    straight = StraightGrid(folder / "nodes", 2)
    metered = WatchedGrid(straight)
    file, seen = MetricsFile(folder / "fedeas.prom", "hospital", 2, metered, clock=lambda: 5.0), []

    def progress(record):
        file.write(record)
        seen.append(read(file.path))

    run = run_on(metered, load_config(None, BASE), RunStore(folder / "runs"), progress)
    return run, seen, straight, file.path


def test_the_file_has_the_numbers_of_the_last_round(followed):
    run, seen, _, _ = followed
    for told, record in zip(seen, run.rounds(), strict=True):
        assert told["round"] == record["round"]
        assert told["accuracy"] == record["accuracy"]
        assert told["round_seconds"] == pytest.approx(sum(record["seconds"].values()))
        assert (told["rounds"], told["participants"], told["missing"], told["updated_seconds"]) == (2, 2, 0, 5)


def test_bytes_grow_with_each_round_and_are_those_of_all_messages(followed):
    _, seen, straight, _ = followed
    sizes = [[sum(len(array.data) for record in content.array_records.values() for array in record.values())
              for content in contents] for _, *contents in straight.seen]  # fmt: skip
    sent, received = map(sum, zip(*sizes, strict=True))
    assert 0 < sent <= seen[-1]["sent_bytes_total"] < 1.2 * sent  # headers come on top
    assert 0 < received <= seen[-1]["received_bytes_total"] < 1.2 * received
    assert seen[0]["sent_bytes_total"] < seen[1]["sent_bytes_total"]


def test_tensors_of_all_types_are_counted_with_the_bytes_that_they_have():
    size = 8000
    for dtype in (torch.float32, torch.int64, torch.uint8):
        parcel = Parcel.of({"x": torch.arange(size // dtype.itemsize).to(dtype)})
        assert size <= size_of(message_from_nowhere(packed({}, parcel), 1, "train", 60.0)) < 1.1 * size


def test_every_line_is_a_comment_or_a_number(followed):
    *_, path = followed
    for line in path.read_text().splitlines():
        assert NUMBER.fullmatch(line) or re.fullmatch(r"# (HELP|TYPE) fedeas_\w+ .+", line)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_missing_client_is_counted(tmp_path):
    file = MetricsFile(tmp_path / "fedeas.prom", "hospital", 9, WatchedGrid(None))
    file.write({"round": 3, "clients": [0, 1, 2], "missing": [1], "seconds": {"train": 2.0}})
    told = read(file.path)
    assert (told["participants"], told["missing"]) == (2, 1)
    assert "accuracy" not in told  # the model was not tested after this round


def test_a_file_that_cannot_be_written_does_not_end_a_run(tmp_path, caplog):
    file = MetricsFile(tmp_path / "nowhere" / "fedeas.prom", "hospital", 1, WatchedGrid(None))
    file.write({"round": 1, "clients": [0], "seconds": {}})
    assert "nowhere" in caplog.text


def test_the_servers_environment_names_the_file(tmp_path, monkeypatch):
    monkeypatch.delenv(METRICS, raising=False)
    assert MetricsFile.of("hospital", 1, WatchedGrid(None)) is None
    monkeypatch.setenv(METRICS, str(tmp_path / "fedeas.prom"))
    assert MetricsFile.of("hospital", 1, WatchedGrid(None)).path == tmp_path / "fedeas.prom"
