"""The runbook of docs/distributed.md, followed word for word on three hosts; and that deploy/ fits the programs."""

import doctest
import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from flower.deployments import need_nginx
from flower.hosts import namespaces
from waiting import wait_until

from deploy.flower.__main__ import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HOSTS = ("server", "hospital-a", "hospital-b")
PROMPT = re.compile(rf"({'|'.join(HOSTS)})\$ (.*)")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None, reason="needs Flower: pip install 'fedeas[flower]'"
)


def steps():
    """The host, the command and the expected output of each step in the runbook."""
    page = (ROOT / "docs" / "distributed.md").read_text()
    found = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            if start := PROMPT.fullmatch(line):
                found.append((start[1], [start[2]], []))
            elif line.startswith("> "):
                found[-1][1].append(line.removeprefix("> "))
            else:
                found[-1][2].append(line)
    return [(host, "\n".join(command), "".join(f"{line}\n" for line in expected)) for host, command, expected in found]


def put_data(hosts):
    """Each hospital has half of the digits' training images."""
    from fedeas.data.sources import load_dataset

    digits = load_dataset("digits")
    for half, name in enumerate(HOSTS[1:]):
        (hosts.home(name) / "data").mkdir()
        np.savez(hosts.home(name) / "data" / "mine.npz", images=digits.images[half::2], labels=digits.labels[half::2])


@pytest.mark.slow
def test_the_runbook_can_be_followed_word_for_word(tmp_path):
    need_nginx()
    if not namespaces.possible():
        pytest.skip("hosts that are network namespaces need root")
    with namespaces.connected(tmp_path, HOSTS) as hosts:
        put_data(hosts)
        for host, command, expected in steps():
            code, said = hosts.run(host, command)
            about = f"{host}$ {command}\n{said}\nexpected:\n{expected}"
            assert code == 0, about
            assert doctest.OutputChecker().check_output(expected, said, doctest.ELLIPSIS), about
        check_a_kill(hosts)


def check_a_kill(hosts):
    """What no operator types: a service that is killed is started again."""
    log = hosts.folder / "hospital-b" / "srv" / "logs" / "fedeas-node"
    before = log.read_text().count("SuperNode ID")
    hosts.run("hospital-b", "systemctl kill -s KILL fedeas-node")
    wait_until(lambda: log.read_text().count("SuperNode ID") > before)


# ---- deploy/ without starting anything


def check_program(words):
    """The arguments after -- are a command of the deployment."""
    inner = words[words.index("--") + 1 :]
    assert Path(inner[0]).name == "python"
    assert inner[1:3] == ["-m", "deploy.flower"]
    name, arguments = inner[3], inner[4:]
    typer.main.get_command(app).commands[name].make_context(name, arguments)


@pytest.mark.parametrize("unit", ["fedeas-superlink", "fedeas-node"])
def test_a_unit_starts_its_program(unit):
    text = (DEPLOY / "systemd" / f"{unit}.service").read_text().replace("\\\n", " ")
    found = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert (found["Restart"], found["KillMode"]) == ("always", "mixed")
    check_program(shlex.split(found["ExecStart"]))


def test_every_container_starts_its_program_with_its_own_keys():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"superlink", "client0", "client1"}
    for name, service in services.items():
        check_program(shlex.split(service["command"]))
        assert service["restart"] == "unless-stopped"
        private = [volume for volume in service["volumes"] if volume.endswith(":/srv/fedeas/keys")]
        assert private == [f"./{name}:/srv/fedeas/keys"]  # nobody else's keys


def test_every_step_names_a_host_and_a_command():
    found = steps()
    assert {host for host, _, _ in found} == set(HOSTS)
    assert any("unregister" in command for _, command, _ in found)
