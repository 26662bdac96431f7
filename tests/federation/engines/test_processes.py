"""Worker processes compute what the reference engine computes, to the last bit, and leave nothing behind."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from federation.engines import six_clients
from federation.engines.six_clients import SHAPE, SIZES, assert_same, normaliser, worker
from federation.engines.unruly import Faulty, Mortal
from waiting import LIMIT

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import Fleet
from fedeas.config import EngineConfig, TrainConfig, load_config
from fedeas.core.devices import torch_threads
from fedeas.core.errors import RunError
from fedeas.federation.checkpoint import load_checkpoint
from fedeas.federation.engines import processes as module
from fedeas.federation.engines.base import Task
from fedeas.federation.engines.processes import ProcessesEngine, plain_engine
from fedeas.federation.run import execute
from fedeas.federation.worker import LocalEngine
from fedeas.runs.store import RunStore

RUN = ["train.lr=0.05", "train.batch_size=32", "train.steps=3", "rounds.total=3", "partition.clients=6"]
METHODS = [
    pytest.param("fedavg", "no-generation", marks=pytest.mark.slow),
    pytest.param("fedprox(mu=0.5)", "fedeas(beta=3)", marks=pytest.mark.slow),
    pytest.param("scaffold", "uniform(budget=fedeas(beta=3))", marks=pytest.mark.slow),
    pytest.param("moon", "missing-only(budget=60)", marks=pytest.mark.slow),
    ("fedgen(ensemble_epochs=2)", "full-balance"),
    pytest.param("fedmix(lam=0.2, mash=4)", "by-size(budget=60)", marks=pytest.mark.slow),
]


def trained(engine, rounds=2):
    return six_clients.trained(engine, rounds, participants=5)


def run_of(folder, *overrides, pause=None):
    config = load_config(None, [*RUN, *overrides])
    return execute(config, RunStore(folder / "runs"), bank=folder / "bank", pause=pause)


def outcome(run):
    """Everything computed: the tensors of server and clients, and the records without their times."""
    _, server, clients = load_checkpoint(run.checkpoint, run.config.fingerprint)
    tensors = server | {f"{client}/{key}": each for client, state in clients.items() for key, each in state.items()}
    left_out = ("seconds", "images")
    return tensors, [{key: each for key, each in record.items() if key not in left_out} for record in run.rounds()]


def assert_same_runs(one, other):
    assert outcome(one)[1] == outcome(other)[1]
    assert_same(outcome(one)[0], outcome(other)[0])


@pytest.fixture
def engine_of():
    """Makes engines, and ends their processes after the test."""
    engines = []

    def make(*arguments, **settings):
        engines.append(ProcessesEngine(*arguments, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def one_thread():
    with torch_threads(1):
        yield


@pytest.mark.parametrize(("algorithm", "policy"), METHODS)
def test_runs_in_processes_equal_the_reference_bit_for_bit_and_print_nothing(tmp_path, capfd, algorithm, policy):
    method = f"algorithm={algorithm}", f"policy={policy}", "engine.threads=1"
    assert_same_runs(
        run_of(tmp_path / "here", *method, "engine.name=local"),
        run_of(tmp_path / "there", *method, "engine.processes=2"),
    )
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def eager(monkeypatch):
    """Processes pay as soon as the first times are known."""
    monkeypatch.setattr(module, "SHORT_ROUND", 0)
    monkeypatch.setattr(module, "START_SECONDS", 0)


@pytest.mark.slow
def test_with_several_threads_processes_equal_the_reference_too(tmp_path, one_thread, eager, caplog):
    caplog.set_level("INFO")
    several = "engine.threads=2", "rounds.total=2"
    here = run_of(tmp_path / "here", *several, "engine.name=local")
    assert_same_runs(here, run_of(tmp_path / "none", *several, "engine.processes=1"))
    assert "2 clients at once" not in caplog.text
    assert_same_runs(here, run_of(tmp_path / "there", *several))
    assert "2 clients at once" in caplog.text


DROPPING = "python:federation.engines.dropping:Dropping"


@pytest.mark.parametrize(
    ("algorithm", "model"),
    [("scaffold", DROPPING), pytest.param("moon", "auto", marks=pytest.mark.slow)],
)
def test_a_run_may_switch_between_processes_and_none_in_the_middle(tmp_path, algorithm, model):
    method = f"algorithm={algorithm}", f"model.name={model}", "policy=fedeas(beta=3)", "engine.threads=1"
    whole = run_of(tmp_path / "whole", *method, "engine.name=local")
    for processes in (1, 2, 1):
        run = run_of(tmp_path / "changed", *method, f"engine.processes={processes}", pause=lambda record: True)
    assert_same_runs(whole, run)


@pytest.mark.parametrize(
    ("moment", "client", "times"), [("before", 5, 1), pytest.param("after", 0, 2, marks=pytest.mark.slow)]
)
def test_the_job_of_a_killed_process_is_done_again(tmp_path, engine_of, one_thread, moment, client, times, caplog):
    expected = trained(LocalEngine(worker()))
    engine = engine_of(worker(Mortal(tmp_path, moment, times, client)), 2)
    assert_same(expected, trained(engine))
    assert len(list(tmp_path.iterdir())) == caplog.text.count("trained again") == times


@pytest.mark.slow
def test_processes_killed_between_rounds_are_replaced(engine_of, one_thread):
    expected = trained(LocalEngine(worker()))
    engine = engine_of(worker(), 2)
    trained(engine, rounds=1)
    before = [child.popen for child in engine.team]
    for process in before:
        process.kill()
        process.wait(LIMIT)
    assert_same(expected, trained(engine))
    assert len(engine.team) == 2
    assert not {child.popen for child in engine.team} & set(before)


@pytest.mark.slow
def test_if_processes_keep_dying_the_run_continues_without_them(tmp_path, engine_of, one_thread, monkeypatch, caplog):
    monkeypatch.setattr(module, "MOST_DEATHS", 1)
    expected = trained(LocalEngine(worker()))
    engine = engine_of(worker(Mortal(tmp_path, "before", 99, 5)), 2)
    assert_same(expected, trained(engine))
    assert len(list(tmp_path.iterdir())) <= module.MOST_DEATHS * 2 * len(SIZES)
    assert engine.team == []
    assert "one after the other" in caplog.text


def test_if_processes_cannot_start_the_run_continues_without_them(monkeypatch, engine_of, one_thread):
    expected = trained(LocalEngine(worker()))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert_same(expected, trained(engine_of(worker(), 2)))


def test_an_error_equals_that_of_the_reference(engine_of, one_thread):
    errors, settings = [], {"train": TrainConfig(lr=1e30, batch_size=8, epochs=2), "norm": "none"}
    for engine in (LocalEngine(worker(**settings)), engine_of(worker(**settings), 2)):
        with pytest.raises(RunError) as error:
            trained(engine)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_an_unexpected_error_keeps_its_type_or_its_message(engine_of, one_thread):
    here, there = LocalEngine(worker(Faulty())), engine_of(worker(Faulty()), 2)
    with pytest.raises(KeyError) as expected:
        here.map(Task.TRAIN, first_broadcast(), [Faulty.TRAVELS], 0)
    with pytest.raises(KeyError) as found:
        there.map(Task.TRAIN, first_broadcast(), [Faulty.TRAVELS], 0)
    assert found.value.args == expected.value.args
    assert "unruly.py" in found.value.__notes__[0]
    with pytest.raises(RunError, match=r"client 1, round 1: LocalError\('not this'\)"):
        there.map(Task.TRAIN, first_broadcast(), [1], 0)


def first_broadcast():
    return FedAvg().init(worker().model, Fleet(np.array(SIZES), 3))


def test_replies_come_in_the_order_of_clients_with_all_their_metrics(engine_of, one_thread):
    engines = LocalEngine(worker()), engine_of(worker(), 2)
    replies = [engine.map(Task.TRAIN, first_broadcast(), [5, 0, 3, 2], 0) for engine in engines]
    for one, other in zip(*replies, strict=True):
        assert (one.client, one.weight) == (other.client, other.weight)
        assert_same(one.arrays, other.arrays)
        counted = "loss", "steps", "samples"
        assert one.metrics.keys() == other.metrics.keys()
        assert [one.metrics[name] for name in counted] == [other.metrics[name] for name in counted]
    assert [reply.client for reply in replies[1]] == [0, 2, 3, 5]


def test_clients_start_in_this_process_and_move_to_processes_once_these_pay(engine_of, one_thread, eager):
    expected = trained(LocalEngine(worker()))
    engine = engine_of(worker(), 2, given=False)
    assert_same(expected, trained(engine))
    assert len(engine.seconds) == 2
    assert len(engine.team) == 2


def test_no_processes_start_if_they_do_not_pay(monkeypatch, engine_of, one_thread):
    monkeypatch.setattr(module, "START_SECONDS", float("inf"))
    engine = engine_of(worker(), 2, given=False)
    trained(engine)
    assert engine.team == []
    assert len(engine.seconds) == 10


@pytest.mark.parametrize(
    ("cores", "participants", "settings", "processes", "threads"),
    [
        (16, 10, {}, 10, 1),
        (16, 5, {}, 5, 3),
        (16, 1, {}, 1, 16),
        (1, 10, {}, 1, 1),
        (4, 10, {"processes": 1}, 1, 1),
        (4, 10, {"processes": 3}, 3, 1),
        (1, 10, {"processes": 3}, 3, 1),
        (8, 2, {"processes": 3}, 2, 4),
        (4, 10, {"name": "local"}, 1, 1),
        (8, 4, {"name": "local", "processes": 4}, 1, 2),
    ],
)
def test_cores_are_divided_among_the_clients_of_a_round(cores, participants, settings, processes, threads):
    with torch_threads(cores):
        engine = engine_for(EngineConfig(**settings), participants)
    assert getattr(engine, "processes", 1) == processes
    assert engine.threads == threads


def engine_for(chosen, participants):
    own = worker()
    return plain_engine(own, SHAPE, normaliser(own), max(SIZES), chosen, participants)


def _engine_in_a_pool(processes):
    with torch_threads(2):
        return type(engine_for(EngineConfig(processes=processes), 5)).__name__


def test_a_run_in_a_pool_process_starts_no_processes_by_default():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(_engine_in_a_pool, (0, 2))) == ["LocalEngine", "ProcessesEngine"]


WHOLE_RUN = """
    import os, signal
    from fedeas.config import load_config
    from fedeas.federation.run import execute
    from fedeas.runs.store import RunStore

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with SIGINT ignored

    def after_a_round(record):
        if {ending!r} == "error":
            raise SystemExit("stop")
        if {ending!r} != "end":
            os.kill(os.getpid(), signal.{ending})

    overrides = ["train.epochs=1", "rounds.total=2", "engine.processes=2", "engine.threads=1"]
    execute(load_config(None, overrides), RunStore("runs"), after_a_round)
"""

IN_THE_MIDDLE = """
    import os, signal, threading, time
    from pathlib import Path
    from federation.engines.six_clients import trained, worker
    from federation.engines.unruly import Endless
    from fedeas.federation.engines.processes import ProcessesEngine

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with SIGINT ignored

    def wait_and_end():
        while not Path("begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.{ending})

    threading.Thread(target=wait_and_end).start()
    trained(ProcessesEngine(worker(Endless(Path("begun").resolve())), 2))
"""


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        pytest.param(WHOLE_RUN, "end", marks=pytest.mark.slow),
        pytest.param(WHOLE_RUN, "error", marks=pytest.mark.slow),
        (WHOLE_RUN, "SIGKILL"),
        pytest.param(WHOLE_RUN, "SIGINT", marks=pytest.mark.slow),
        pytest.param(WHOLE_RUN, "SIGTERM", marks=pytest.mark.slow),
        pytest.param(IN_THE_MIDDLE, "SIGINT", marks=pytest.mark.slow),
        pytest.param(IN_THE_MIDDLE, "SIGTERM", marks=pytest.mark.slow),
        pytest.param(IN_THE_MIDDLE, "SIGKILL", marks=pytest.mark.slow),
    ],
)
def test_processes_end_with_the_run_and_print_nothing(tmp_path, script, ending):
    """The script is not guarded, and its pipes are closed only when the last process that holds them has ended."""
    (tmp_path / "script.py").write_text(textwrap.dedent(script).format(ending=ending))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = process.communicate(timeout=LIMIT)
    codes = {"end": 0, "error": 1} | {name: -getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGKILL")}
    assert process.returncode == codes[ending]
    assert out == ""
    assert err.count("Traceback") == (1 if ending == "SIGINT" else 0)  # that of the script itself


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")
def test_no_descriptor_stays_open(one_thread):
    def opened():
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    engine = ProcessesEngine(worker(), 2)
    engine.map(Task.TRAIN, first_broadcast(), [0], 0)
    assert opened() > before
    engine.close()
    del engine
    assert opened() == before


class Dying:
    """A worker process that ends without an answer."""

    def __init__(self, client):
        self.client, self.pipe = client, object()
        self.popen = type("Ended", (), {"returncode": -signal.SIGKILL, "kill": lambda: None})

    def take(self):
        return None

    def end(self):
        pass


def test_processes_that_keep_dying_together_leave_all_clients_to_the_serial_engine(monkeypatch):
    engine = ProcessesEngine(worker(), 2)
    engine.team, engine.deaths = [Dying(0), Dying(1)], 2 * module.MOST_DEATHS - 1
    monkeypatch.setattr(module, "wait", lambda pipes: pipes)  # both at once
    answers = {}
    engine._take_answers(deque(), answers)
    assert (engine.processes, engine.team, answers) == (1, [], {})
