"""Parts of a deployment that can be tested without starting one."""

import errno
import inspect
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

import psutil
from flwr.common.config import parse_config_args
from flwr.supernode import start_client_internal
from waiting import wait_until

import fedeas
from deploy.flower import app, internals, node, operator, processes, server
from deploy.flower.connection import toml_of
from deploy.flower.environment import environment
from deploy.flower.internals import executor, sign_off
from deploy.flower.internals.polling import LONGEST_POLL, quicken
from deploy.flower.internals.superlink import RunStatus, SuperLink
from deploy.flower.loopback import Loopback
from deploy.flower.processes import Process
from fedeas.cli import main
from fedeas.core.errors import InputError, RunError
from fedeas.flower import app as flower_app
from fedeas.flower.backoff import Pace


@pytest.fixture
def sleeper(tmp_path):
    """A daemon with a child, which do nothing."""
    process = processes.start(["sh", "-c", "sleep 999 & sleep 999"], tmp_path / "log", os.environ, tmp_path)
    yield process
    processes.kill_group(process)


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stopped.value.code, printed.out + printed.err


def written(folder, process):
    """A deployment's file that names `process` as its SuperLink."""
    state = {"port": 1, "operator_port": 2, "superlink": {"pid": process.pid, "born": process.born}, "nodes": []}
    Loopback(folder).file.write_text(json.dumps(state))
    return Loopback(folder)


def test_the_app_contains_only_its_pyproject():
    with ZipFile(BytesIO(app.Bundle.of().content)) as bundle:
        assert set(bundle.namelist()) == {"pyproject.toml", ".info/CONTENT"}


def test_a_process_ends_with_its_children(sleeper):
    assert sleeper.alive
    processes.end([sleeper])
    assert not sleeper.alive

    def group_has_ended():
        group = subprocess.run(["ps", "-o", "stat=", "--sid", str(sleeper.pid)], capture_output=True, text=True)
        return all(state.startswith("Z") for state in group.stdout.split())

    wait_until(group_has_ended)


def test_a_process_that_ends_just_before_it_is_told_to_is_no_error(sleeper, monkeypatch):
    kill = os.kill

    def kill_too_late(pid, number):
        os.killpg(pid, signal.SIGKILL)
        processes._STARTED[sleeper].wait()
        kill(pid, number)

    monkeypatch.setattr(os, "kill", kill_too_late)
    processes.end([sleeper])
    assert not sleeper.alive


HALF_ENDED = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(999,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_main_thread_has_ended_leaves_no_zombie(tmp_path):
    """As a web server may be for a moment when it ends: it looks like a zombie, and cannot be reaped yet."""
    process = processes.start([sys.executable, "-c", HALF_ENDED], tmp_path / "log", os.environ, tmp_path)
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    processes.kill_group(process)
    assert not psutil.pid_exists(process.pid)


def test_a_child_in_its_own_session_ends_too(tmp_path):
    """As Flower's helpers are."""
    script = "import subprocess; subprocess.run(['sleep', '999'], start_new_session=True)"
    process = processes.start([sys.executable, "-c", script], tmp_path / "log", os.environ, tmp_path)
    [child] = wait_until(psutil.Process(process.pid).children)
    processes.end([process])
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_another_process_with_the_same_pid_is_left_alone(sleeper, tmp_path):
    former = Process(sleeper.pid, "long ago")
    assert former.replaced
    assert not former.alive
    deployment = written(tmp_path, former)
    assert deployment.down() == 0
    assert sleeper.alive
    assert not deployment.file.exists()


def test_a_leftover_file_is_removed(tmp_path, sleeper):
    processes.kill_group(sleeper)
    deployment = written(tmp_path, sleeper)
    assert not deployment.running
    assert deployment.down() == 0
    assert not deployment.file.exists()


def test_a_running_deployment_is_not_started_twice(tmp_path, sleeper):
    with pytest.raises(InputError, match="runs already; first `fedeas flower down"):
        written(tmp_path, sleeper).up(1, {})
    assert sleeper.alive


def test_down_ends_what_another_process_started(tmp_path, sleeper, capsys):
    written(tmp_path, sleeper)
    code, text = call(capsys, "flower", "down", "--folder", tmp_path)
    assert code == 0
    assert "1 processes ended" in text
    assert not sleeper.alive


def test_a_damaged_file_is_refused(tmp_path):
    Loopback(tmp_path).file.write_text('{"port": 1}')
    with pytest.raises(InputError, match=r"damaged .*; end what runs by hand"):
        Loopback(tmp_path).down()


def test_without_a_deployment_the_error_names_the_command_to_start_one(tmp_path, capsys):
    code, text = call(capsys, "flower", "status", "--folder", tmp_path / "none")
    assert code == 2
    assert "start one with `fedeas flower up --folder" in text
    code, text = call(capsys, "flower", "down", "--folder", tmp_path / "none")
    assert code == 0
    assert "nothing to end" in text


def test_without_flower_the_error_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['flwr'] = None; from fedeas.cli import main; main(['flower', 'up'])"
    tried = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert tried.returncode == 2
    assert tried.stderr.strip() == "error: fedeas flower needs flwr: pip install 'fedeas[flower]'"


@pytest.mark.parametrize("setting", ["data-root=/data", "data-root", 'a=["b"]', ""])
def test_a_node_setting_that_flower_would_lose_is_refused(tmp_path, capsys, setting):
    code, text = call(capsys, "flower", "up", "--folder", tmp_path, "--node-config", setting)
    assert code == 2
    assert "write it as 'name=1'" in text


def test_settings_are_read_from_a_file_as_they_were_written(tmp_path):
    values = {"path": '/a b/"c"\\d=é😀', "n": 3, "x": 0.5, "yes": True}
    (tmp_path / "config.toml").write_text(toml_of(values))
    assert parse_config_args([str(tmp_path / "config.toml")]) == values


def test_an_unknown_config_is_refused_before_anything_starts(tmp_path, capsys):
    code, text = call(capsys, "flower", "run", "train.speed=3", "--folder", tmp_path)
    assert code == 2
    assert "speed" in text


def test_keys_are_printed_with_the_commands_that_use_them(tmp_path, capsys):
    code, text = call(capsys, "flower", "keys", tmp_path, "--nodes", 2, "--host", "server.example.org")
    assert code == 0
    made = {path.name for path in tmp_path.iterdir()}
    assert {"node0", "node1", "ca.pem", "server.pem", "operator.key", "connection.toml"} <= made
    assert f"--superlink server.example.org:8000 --root-certificate {tmp_path / 'ca.pem'}" in text
    assert str(tmp_path / "node0") in text


def test_without_node_keys_no_command_names_one(tmp_path, capsys):
    code, text = call(capsys, "flower", "keys", tmp_path)
    assert code == 0
    assert "node0" not in text
    assert "num-partitions=0" not in text


def test_the_environment_is_quiet_and_without_proxies(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    made = environment(tmp_path)
    assert not {name for name in made if name.lower() in ("http_proxy", "https_proxy", "all_proxy")}
    assert made["OMP_NUM_THREADS"] == "1"
    assert made["FLWR_HOME"] == str(tmp_path)
    assert made["PATH"].startswith(str(Path(sys.executable).parent))
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert environment(tmp_path)["OMP_NUM_THREADS"] == "4"


def test_pauses_grow_with_the_wait():
    now = [50.0]
    pace = Pace(0.01, 0.03, clock=lambda: now[0])
    assert pace.next == 0.01
    now[0] += 0.2
    assert pace.next == pytest.approx(0.02)
    now[0] += 100
    assert pace.next == 0.03
    pace.reset()
    assert pace.next == 0.01


def test_sleeps_are_shorter_in_that_one_module_only(monkeypatch):
    monkeypatch.setattr(start_client_internal, "time", time)  # and back after the test
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    assert quicken(0.01) is None
    start_client_internal.time.sleep(3)
    start_client_internal.time.sleep(0.5)
    time.sleep(7)
    assert slept[0] <= LONGEST_POLL
    assert slept[1:] == [0.01, 7]


def test_a_node_of_flower_that_looks_different_is_left_unchanged(monkeypatch):
    monkeypatch.setattr(inspect, "getsource", lambda module: "time.sleep(4)")
    assert "not as expected" in quicken(0.01)
    assert start_client_internal.time is time


def test_internals_are_used_with_the_versions_that_they_were_tested_with(monkeypatch):
    modules = [path.stem for path in Path(internals.__file__).parent.glob("*.py") if path.stem != "__init__"]
    assert [internals.problem(module) for module in modules] == [None] * len(modules)
    assert "no_such_part" in internals.problem("no_such_part")
    with pytest.raises(InputError, match="pip install 'flwr=="):
        internals.need("no_such_part")
    monkeypatch.setattr(internals, "version", lambda name: "1.99.0")
    assert "1.99.0" in internals.problem("executor")


def test_flwr_build_makes_the_same_bundle(tmp_path):
    folder = app.write_app(tmp_path / "fedeas")
    assert app.build(folder) == app.bundle(folder) == app.Bundle.of().content


def test_the_installed_app_is_known_by_its_digest(tmp_path):
    installed = app.Bundle.of()
    assert app.Bundle.of(app.write_app(tmp_path)).digest == installed.digest
    assert installed.name == f"fedeas/fedeas {fedeas.__version__}"
    app.check_same_app(installed, "whatever it calls itself", installed.content)
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write('more = "1"\n')
    with pytest.raises(InputError, match="this node runs fedeas/fedeas"):
        app.check_same_app(installed, installed.name, app.Bundle.of(tmp_path).content)


def test_a_run_cannot_choose_the_code_of_a_node(tmp_path):
    """The client part is imported from the installation, whatever stands in the bundle."""
    bundle = app.Bundle.of(app.write_app(tmp_path))
    (tmp_path / "fedeas").mkdir()
    (tmp_path / "fedeas" / "__init__.py").write_text("raise SystemExit('hostile')")
    assert bundle.load_client() is flower_app.client


# ---- what a command says


@pytest.fixture
def connection(tmp_path):
    """The connection file of a SuperLink that does not answer."""
    path = tmp_path / "connection.toml"
    path.write_text('address = "127.0.0.1:1"\nroot-certificate = "ca.pem"\nkey = "operator.key"\n')
    return path


def test_a_refused_run_names_the_runs_that_have_not_ended(connection, capsys, monkeypatch):
    """One of them may be working on the same run directory."""
    refused = RunStatus(4, "finished:failed", "fedeas ends with exit code 2: another process is working on this run")
    monkeypatch.setattr(operator, "run_app", lambda *given: refused)
    monkeypatch.setattr(SuperLink, "unfinished_runs", lambda self: [3])
    code, said = call(capsys, "flower", "run", "--connection", connection, "rounds.total=1")
    assert code == 2
    assert "another process is working" in said
    assert "run 3" in said
    assert "fedeas flower stop" in said


def test_a_stopped_run_says_how_it_is_resumed(connection, capsys, monkeypatch):
    monkeypatch.setattr(operator, "run_app", lambda *given: RunStatus(7, "finished:stopped", ""))
    code, said = call(capsys, "flower", "run", "--connection", connection, "rounds.total=1")
    assert code == 1
    assert "run 7: finished:stopped" in said
    assert "same command resumes" in said


def test_a_run_whose_log_breaks_off_is_named_in_the_error():
    """The run goes on when the operator's connection is lost."""

    def break_off(run_id, show):
        raise RunError("no SuperLink answers")

    superlink = SimpleNamespace(start_run=lambda app, config: 7, follow=break_off)
    with pytest.raises(RunError, match=r"run 7 .*flower status.*no SuperLink answers"):
        operator.run_app(superlink, None, {}, print)


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ("", "partition-id"),
        ("partition-id = 0\nshare-count = true", "share-count"),
        ("partition-id = ", "node.toml"),
        ('partition-id = 0\ndata = "npz:nowhere.npz"', "nowhere.npz"),
    ],
    ids=["no number", "misspelt", "not TOML", "no data"],
)
def test_a_node_does_not_start_with_settings_that_it_could_not_use(tmp_path, capsys, settings, fact):
    key, config = tmp_path / "node", tmp_path / "node.toml"
    key.touch()
    config.write_text(settings)
    with pytest.raises(SystemExit) as refused:
        node.main(
            ["--superlink", "a:1", "--root-certificate", "ca.pem", "--key", str(key), "--node-config", str(config)]
        )
    said = capsys.readouterr().err
    assert refused.value.code == 2
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert fact in said
    assert not key.with_name("node.secret").exists()


# ---- the executor that forks


def test_a_message_that_cannot_be_fetched_is_left_to_the_node_to_answer(monkeypatch):
    """Flower's node waits forever for the reply of a task that is reported as failed."""
    told = []
    monkeypatch.setattr(executor, "_task_connection", lambda *address: nullcontext())
    monkeypatch.setattr(executor, "pull_task_input", lambda node: 1 / 0)
    monkeypatch.setattr(executor, "push_task_output", lambda *output: told.append(output))
    executor.Executor("a:1", app.Bundle.of(), b"", None, os.getppid())._work("token")
    assert told == []


@pytest.mark.parametrize("node_lives", [True, False])
def test_a_killed_app_is_reported_unless_its_node_has_ended(node_lives):
    node = SimpleNamespace(SendTaskHeartbeat=lambda request: SimpleNamespace(success=True))
    parent = os.getppid() if node_lives else -1
    child = subprocess.Popen(["sh", "-c", "kill -9 $$"])
    reason = executor.Executor("a:1", app.Bundle.of(), b"", None, parent)._watch(child.pid, node)
    assert ("SIGKILL" in reason) == node_lives
    child.returncode = -9  # waited for by the executor


def a_node(tmp_path):
    return node.NodeOptions(
        "127.0.0.1:1", "a:1", tmp_path / "ca.pem", tmp_path / "node", "", None, "fork", None, None, []
    )


class EnoughError(Exception):
    pass


def test_an_executor_is_started_again_when_there_was_no_memory_for_it(tmp_path, monkeypatch):
    """A supervisor that ended would leave a node that accepts messages and never answers."""
    outcomes = iter([OSError(errno.ENOMEM, "Cannot allocate memory"), InputError("not this time"), EnoughError()])

    def start(settings):
        raise next(outcomes)

    monkeypatch.setattr(node, "_start_executor", start)
    monkeypatch.setattr(node.time, "sleep", lambda seconds: None)
    with pytest.raises(EnoughError):
        node._supervise(a_node(tmp_path), SimpleNamespace(wait=lambda: -9))


def test_the_servers_helper_is_started_again_until_the_server_ends(monkeypatch):
    """A SuperLink without it would accept runs and never start them."""
    ending, told = threading.Event(), []
    killed = SimpleNamespace(poll=lambda: -9, returncode=-9)
    alive = SimpleNamespace(poll=lambda: None, wait=lambda: 0, terminate=lambda: told.append("to end"))
    outcomes = iter([killed, OSError(errno.ENOMEM, "Cannot allocate memory"), alive])

    def start(command, **_):
        told.append("to start")
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        if outcome is alive:
            ending.set()
        return outcome

    monkeypatch.setattr(server, "PAUSE", 0)
    monkeypatch.setattr(server.subprocess, "Popen", start)
    server._keep_running(["helper"], ending)
    assert told == ["to start", "to start", "to start", "to end"]


def test_a_node_on_a_full_disk_starts_without_keeping_its_id():
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    file = SimpleNamespace(seek=print, truncate=print, write=print, flush=full)
    handler = sign_off._NodeId(file)
    handler.handle(logging.LogRecord("flwr", logging.INFO, "", 0, "SuperNode ID: %s", (5,), None))


def test_an_executor_that_cannot_be_started_leaves_no_open_files(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    before = psutil.Process().num_fds()
    monkeypatch.setattr(node.subprocess, "Popen", refuse)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        node._start_forking(a_node(tmp_path))
    assert psutil.Process().num_fds() == before
