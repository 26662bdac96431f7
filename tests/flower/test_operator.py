"""What `fedeas flower` says of runs on a SuperLink; Flower's command is a script that answers as it does."""

import json
import subprocess
import sys

import pytest

from fedeas.core.errors import RunError
from fedeas.flower import operator
from fedeas.flower.operator import Operator

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

FLWR = """\
#!{python}
import json, sys
action, given = sys.argv[1], {given!r}
if action == "log":
    print(given["log"])
elif action == "run":
    print(json.dumps({{"success": True, "run-id": "7"}}))
elif "--run-id" in sys.argv and given["status"] is None:
    print(json.dumps({{"success": False, "error-message": "Error: unavailable"}}))
elif action == "list":
    runs = [{{"run-id": "7", "status": given["status"], "status-details": given["details"]}},
            {{"run-id": "3", "status": "running", "status-details": ""}}]
    print(json.dumps({{"success": True, "runs": runs[:1] if "--run-id" in sys.argv else runs}}))
"""


@pytest.fixture
def flower(run, tmp_path, monkeypatch):
    """Start a run at a SuperLink that tells this of it."""
    (tmp_path / "clients.toml").write_text("0 = 100\n")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setattr(operator, "_flwr", lambda: str(tmp_path / "flwr"))

    def start(status, details="", log="round 1 of 1"):
        given = {"status": status, "details": details, "log": log}
        (tmp_path / "flwr").write_text(FLWR.format(python=sys.executable, given=given))
        (tmp_path / "flwr").chmod(0o755)
        return run("flower", "run", "rounds.total=1")

    return start


def test_the_log_of_a_completed_run_is_shown(flower):
    code, shown, _ = flower("finished:completed")
    assert code == 0
    assert shown.splitlines() == ["round 1 of 1", "run 7: finished:completed"]


def test_a_refused_run_names_the_runs_that_have_not_ended(flower):
    """One of them may be working on the same run directory."""
    reason = "another process is working on this run"
    code, shown, said = flower("finished:failed", f"fedeas ends with exit code 2: {reason}", f"error: {reason}")
    assert code == 2
    assert said.splitlines() == [f"error: {reason}"]
    assert "flwr stop 3" in shown
    assert reason not in shown


def test_a_stopped_run_says_how_it_is_resumed(flower):
    code, shown, _ = flower("finished:stopped")
    assert code == 1
    assert "run 7: finished:stopped" in shown
    assert "same command resumes" in shown


def test_a_run_whose_superlink_is_gone_is_named_in_the_error(flower):
    code, _, said = flower(None)
    assert code == RunError.exit_code
    assert "run 7 has started; `flwr list` shows" in said


def test_without_a_list_of_clients_no_run_starts(run, tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    code, _, said = run("flower", "run", "rounds.total=1")
    assert code == 2
    assert "python -m deploy.flower register" in said


@pytest.mark.parametrize("text", ["nonsense", "a = 1", "0 = 'b'", "0 = [1]"])
def test_a_list_of_clients_that_cannot_be_used_is_one_line(tmp_path, text):
    (tmp_path / "clients.toml").write_text(text)
    with pytest.raises(Exception, match="no list of clients") as told:
        Operator(home=tmp_path).members()
    assert "\n" not in str(told.value)


def test_an_unknown_config_is_refused_before_anything_starts(run):
    code, _, said = run("flower", "run", "train.speed=3")
    assert code == 2
    assert "speed" in said


def test_without_flower_the_error_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['flwr'] = None; from fedeas.cli import main; main(['flower', 'run'])"
    tried = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert tried.returncode == 2
    assert tried.stderr.strip() == "error: fedeas flower needs flwr: pip install 'fedeas[flower]'"


def test_the_help_says_where_servers_and_nodes_come_from(run):
    _, shown, _ = run("flower", "run", "--help")
    assert "deploy/ in the source release" in " ".join(shown.split())


def test_the_settings_of_a_node_are_read_as_a_run_reads_them(run, tmp_path):
    settings = tmp_path / "node.toml"
    settings.write_text(f"partition-id = 3\nstate-dir = {json.dumps(str(tmp_path))}\n")
    code, shown, _ = run("flower", "check-node", settings)
    assert (code, shown) == (0, f"{settings}: client 3\n")
