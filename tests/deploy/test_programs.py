"""Programs that run as one service, and what the commands refuse before they start one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from deploy.flower import __main__ as commands
from deploy.flower.certificates import Certificates
from deploy.flower.one_machine import OneMachine
from deploy.flower.programs import environment, program, run_together
from fedeas import InputError

SERVICE = """
import sys
from deploy.flower.programs import run_together
sys.exit(run_together([["sh", "-c", command] for command in sys.argv[1:]], {}))
"""


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        commands.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return stopped.value.code, printed.out + printed.err


def test_when_one_program_ends_the_others_are_ended(capfd):
    assert run_together([["sleep", "999"], ["sh", "-c", "exit 7"]], os.environ) == 1
    assert "sh ended with code 7" in capfd.readouterr().err


def test_a_service_that_is_told_to_end_ends_its_programs(tmp_path):
    marks = [tmp_path / name for name in ("one", "two")]
    programs = [f"trap 'rm {mark}; exit' TERM; touch {mark}; while :; do sleep 0.05; done" for mark in marks]
    service = subprocess.Popen([sys.executable, "-c", SERVICE, *programs])
    wait_until(lambda: all(mark.exists() for mark in marks))
    service.send_signal(signal.SIGTERM)
    assert service.wait() == 0
    assert not any(mark.exists() for mark in marks)


def test_the_environment_is_quiet(monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    made = environment(FLWR_HOME="here")
    assert (made["FLWR_TELEMETRY_ENABLED"], made["FLWR_HOME"]) == ("0", "here")
    assert made["PATH"].startswith(str(Path(sys.executable).parent))


def test_a_program_that_is_missing_is_named_with_its_remedy():
    with pytest.raises(InputError, match="pip install 'fedeas"):
        program("flower-nothing")


def test_a_server_without_certificates_says_how_to_make_them(tmp_path, capsys):
    code, said = call(capsys, "server", "--keys", tmp_path)
    assert code == 2
    assert "python -m deploy.flower keys" in said


def test_a_deployment_without_nodes_is_refused(tmp_path):
    with pytest.raises(InputError, match="at least one"), OneMachine(tmp_path, 0, {}):
        pass


@pytest.mark.parametrize("setting", ["data-root=/data", "data-root", 'a=["b"]', ""])
def test_a_node_setting_that_flower_would_lose_is_refused(tmp_path, capsys, setting):
    code, said = call(capsys, "up", "--folder", tmp_path, "--setting", setting)
    assert code == 2
    assert "write it as 'name=1'" in said


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
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")
    key, certificate, config = tmp_path / "node", tmp_path / "ca.pem", tmp_path / "node.toml"
    key.touch()
    certificate.touch()
    config.write_text(settings)
    own = ["--superlink", "a:1", "--root-certificate", certificate, "--key", key, "--settings", config]
    code, said = call(capsys, "node", *own)
    assert code == 2
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert fact in said


def test_a_server_that_cannot_start_is_reported_with_its_log_and_leaves_nothing(tmp_path):
    Certificates(tmp_path / "keys").make()
    (tmp_path / "keys" / "server.key").write_text("nonsense")
    broken = OneMachine(tmp_path, 1, {})
    with pytest.raises(InputError, match="server ended; the end of"), broken:
        pass
    assert broken.server.poll() is not None
