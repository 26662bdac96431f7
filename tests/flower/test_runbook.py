"""The runbook of docs/distributed.md, followed word for word on three hosts; and that deploy/ fits the programs."""

import doctest
import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from flower.hosts import namespaces
from waiting import wait_until

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
    before = log.read_text().count("executor ready")
    hosts.run("hospital-b", "systemctl kill -s KILL fedeas-node")
    wait_until(lambda: log.read_text().count("executor ready") > before)


# ---- deploy/ without starting anything


def service_arguments(words):
    """The arguments of the FedEAS program in a service's command: after --, and after python -m MODULE."""
    inner = words[words.index("--") + 1 :]
    assert Path(inner[0]).name == "python"
    return inner[2], inner[3:]


def check_program(module, arguments):
    """The program takes these arguments; return its health address."""
    parser = importlib.import_module(module)._parser()
    return parser.parse_args(arguments).health


@pytest.mark.parametrize("unit", ["fedeas-superlink", "fedeas-node"])
def test_a_unit_starts_its_program_and_asks_for_its_health(unit):
    text = (DEPLOY / "systemd" / f"{unit}.service").read_text().replace("\\\n", " ")
    found = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert (found["Restart"], found["KillMode"]) == ("always", "mixed")
    health = check_program(*service_arguments(shlex.split(found["ExecStart"])))
    assert shlex.split(found["ExecStartPost"])[1:4] == ["flower", "health", health]


def test_every_container_starts_its_program_and_is_asked_for_its_health():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"superlink", "client0", "client1", "client2"}
    for name, service in services.items():
        health = check_program(*service_arguments(shlex.split(service["command"])))
        assert service["healthcheck"]["test"][1:] == ["fedeas", "flower", "health", health]
        assert service["restart"] == "unless-stopped"
        private = [volume for volume in service["volumes"] if volume.endswith(":/srv/fedeas/keys")]
        assert private == [f"./{name}:/srv/fedeas/keys"]  # nobody else's keys


def test_every_step_names_a_host_and_a_command():
    found = steps()
    assert {host for host, _, _ in found} == set(HOSTS)
    assert any("unregister" in command for _, command, _ in found)
