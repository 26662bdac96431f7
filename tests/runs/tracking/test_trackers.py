"""Trackers, each with its real library writing to disk."""

import sys
from importlib import import_module
from unittest.mock import Mock

import numpy as np
import pytest

from fedeas import FedEASError
from fedeas.config import RunConfig
from fedeas.runs.store import RunStore
from fedeas.runs.tracking.base import Follower, parse_tracker

GRID = np.arange(4 * 6 * 1, dtype=np.uint8).reshape(4, 6, 1)


def record(number, accuracy=0.25):
    return {"round": number, "accuracy": accuracy, "class_accuracy": [0.5, None], "seconds": {"train": 2.0}}


def follow(run, text, rounds):
    with Follower.of(run, [parse_tracker(text)]) as follower:
        for number in rounds:
            follower(record(number, number / 10))
        follower.show("samples", GRID)


@pytest.fixture
def run(tmp_path):
    return RunStore(tmp_path / "runs").open(RunConfig(label="tracked", seed=7))


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_gets_scalars_settings_and_samples_and_no_round_twice(run, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    follow(run, f"tensorboard:{tmp_path / 'board'}", [1, 2, 3])
    follow(run, f"tensorboard:{tmp_path / 'board'}", [3, 4])  # resumed after round 2
    events = EventAccumulator(str(tmp_path / "board" / run.path.name)).Reload()
    found = [(event.step, event.value) for event in events.Scalars("accuracy")]
    assert found == [(number, pytest.approx(number / 10)) for number in (1, 2, 3, 4)]
    assert [event.value for event in events.Scalars("class_accuracy/0")] == [0.5] * 4
    assert "| seed | 7 |" in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert events.Images("samples")[0].width == 6


def test_tensorboard_writes_beside_the_run_by_default(run):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    follow(run, "tensorboard", [1])
    assert list((run.path / "tensorboard").glob("events*"))


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_metrics_settings_and_samples_in_one_run(run, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    for rounds in ([1, 2], [3]):
        follow(run, f"mlflow:{tmp_path / 'ml'}", rounds)
    client = MlflowClient((tmp_path / "ml").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("fedeas").experiment_id])
    history = client.get_metric_history(found.info.run_id, "accuracy")
    assert sorted((each.step, each.value) for each in history) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert found.data.params["seed"] == "7"
    assert found.data.metrics["class_accuracy/0"] == 0.5
    assert [each.path for each in client.list_artifacts(found.info.run_id)] == ["samples.png"]


@pytest.mark.parametrize(
    "place", ["databricks", "databricks-uc", "databricks://mine", "https://host:5000", "sqlite:///runs.db"]
)
def test_an_address_that_mlflow_knows_is_passed_on_and_any_other_place_is_a_folder(place, tmp_path, monkeypatch):
    for library in ("mlflow", "mlflow.entities", "mlflow.tracking"):
        monkeypatch.setitem(sys.modules, library, Mock())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delitem(sys.modules, "fedeas.runs.tracking.to_mlflow", raising=False)
    address = import_module("fedeas.runs.tracking.to_mlflow")._address
    del sys.modules["fedeas.runs.tracking.to_mlflow"]  # other tests import it with the real library
    monkeypatch.chdir(tmp_path)
    assert address(place) == place
    assert address("databricks-runs") == (tmp_path / "databricks-runs").as_uri()


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_writes_an_offline_run(run, tmp_path):
    pytest.importorskip("wandb", reason="wandb is not installed")
    follow(run, f"wandb:{tmp_path / 'wb'}", [1, 2])
    (folder,) = (tmp_path / "wb" / "wandb").glob("offline-run-*")
    (journal,) = folder.glob("*.wandb")
    content = journal.read_bytes()
    assert all(name in content for name in (b"accuracy", b"train.lr", b"samples"))
    assert list(folder.glob("files/media/images/*.png"))


class Notes:
    """A tracker that keeps what it is given."""

    def __init__(self):
        self.seen = []

    def start(self, run, settings, first_round):
        self.seen.append(("start", first_round))

    def log(self, numbers, round):
        self.seen.append(("log", round))

    def show(self, name, image):
        self.seen.append(("show", name))

    def close(self):
        self.seen.append(("close",))


def test_a_run_that_does_nothing_opens_no_tracker(run):
    notes = Notes()
    with Follower.of(run, [lambda: notes]) as follower:
        follower.show("samples", GRID)
    assert notes.seen == []


def test_a_run_that_breaks_off_closes_its_trackers(run):
    notes = Notes()
    with pytest.raises(RuntimeError), Follower.of(run, [lambda: notes]) as follower:
        follower(record(5))
        raise RuntimeError
    assert notes.seen == [("start", 5), ("log", 5), ("close",)]


def test_if_a_tracker_cannot_start_those_before_it_are_closed(run):
    class Broken(Notes):
        def start(self, run, settings, first_round):
            raise RuntimeError

    first, second = Notes(), Broken()
    with pytest.raises(RuntimeError), Follower.of(run, [lambda: first, lambda: second]) as follower:
        follower(record(1))
    assert first.seen == [("start", 1), ("close",)]
    assert second.seen == []


@pytest.mark.parametrize("broken", ["log", "show", "close"])
def test_a_tracker_that_fails_is_dropped_with_one_warning_and_the_others_get_everything(run, broken, caplog):
    def fail(*_):
        failing.seen.append((broken,))
        raise ConnectionError("the server is away")

    failing, sound = Notes(), Notes()
    setattr(failing, broken, fail)
    with Follower.of(run, [lambda: failing, lambda: sound]) as follower:
        follower(record(1))
        follower(record(2))
        follower.show("samples", GRID)
    assert sound.seen == [("start", 1), ("log", 1), ("log", 2), ("show", "samples"), ("close",)]
    assert failing.seen.count((broken,)) == 1
    assert failing.seen[-1] == ("close",)
    (warning,) = caplog.messages
    assert "Notes" in warning and "the server is away" in warning


def test_a_dropped_tracker_is_closed_and_no_second_failure_is_shown(run, caplog):
    class Unreachable(Notes):
        def log(self, numbers, round):
            raise ConnectionError

        def close(self):
            super().close()
            raise ConnectionError

    notes = Unreachable()
    with Follower.of(run, [lambda: notes]) as follower:
        follower(record(1))
        follower(record(2))
    assert notes.seen == [("start", 1), ("close",)]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("text", ["paper", "", ":board", "Tensorboard:x"])
def test_an_unknown_tracker_is_refused_in_one_line(text):
    with pytest.raises(FedEASError) as caught:
        parse_tracker(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("library", ["mlflow.entities", "wandb", "torch.utils.tensorboard"])
def test_a_tracker_that_is_not_installed_says_what_to_install(library, monkeypatch):
    name = {"mlflow.entities": "mlflow", "wandb": "wandb", "torch.utils.tensorboard": "tensorboard"}[library]
    monkeypatch.delitem(sys.modules, f"fedeas.runs.tracking.to_{name}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(FedEASError, match=f"fedeas\\[{name}\\]"):
        parse_tracker(name)
