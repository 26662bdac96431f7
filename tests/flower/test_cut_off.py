"""Faults of three hosts with real nodes: a run that is disturbed ends with the same weights as one process."""

import shlex
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

from flower.deployments import need_nginx
from flower.gated_runs import assert_same
from flower.hosts import namespaces
from waiting import LIMIT, wait_until

from fedeas.config import load_config
from fedeas.core.errors import RunError
from fedeas.federation.run import execute, identified
from fedeas.runs.store import RunStore

SERVER, HOSPITALS = "server", ("hospital-a", "hospital-b")
ROUNDS = 10
SETTINGS = ["partition.clients=2", "rounds.participation=1.0", f"rounds.total={ROUNDS}", "train.epochs=1",
            "train.lr=0.05", "engine.threads=1", "algorithm=scaffold", "policy=fedeas(beta=2)",
            f"engine.timeout={LIMIT / 2}"]  # fmt: skip
DEPLOY = "python -m deploy.flower"
RUN = f"fedeas flower run {shlex.join(SETTINGS)}"
CUT = 12.0
"""Seconds that a hospital is cut off. A round waits for it much longer."""


def check_run(hosts, host, command):
    """Run a command on a host and check that it succeeds."""
    code, said = hosts.run(host, command)
    assert code == 0, f"{host}$ {command}\n{said}"


def start_federation(hosts):
    """As docs/distributed.md says, but with the clients' parts of the run's dataset instead of their own data."""
    check_run(hosts, SERVER, f"{DEPLOY} keys keys --host server.example.org && mkdir -p runs metrics flower")
    (hosts.home(SERVER) / "flower" / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:8001"\n'
        'root-certificates = "/srv/fedeas/keys/ca.pem"\n'
    )
    check_run(hosts, SERVER, "systemctl start fedeas-superlink")
    for client, hospital in enumerate(HOSPITALS):
        check_run(hosts, SERVER, f"scp keys/ca.pem {hospital}:/srv/fedeas/keys/ca.pem")
        check_run(hosts, hospital, "ssh-keygen -q -t ecdsa -b 384 -N '' -f keys/node")
        check_run(hosts, hospital, f"scp keys/node.pub {SERVER}:/srv/fedeas/keys/new.pub")
        check_run(hosts, SERVER, f"{DEPLOY} register keys/new.pub --client {client}")
        (hosts.home(hospital) / "node.env").write_text("SUPERLINK=server.example.org:8000\n")
        (hosts.home(hospital) / "node.toml").write_text(
            f'partition-id = {client}\nnum-partitions = {len(HOSPITALS)}\nstate-dir = "/srv/fedeas/state"\n'
        )
        check_run(hosts, hospital, "systemctl start fedeas-node")
    check_run(hosts, SERVER, f"{DEPLOY} status --wait 300")


class Progress:
    """The rounds that the server has recorded."""

    def __init__(self, hosts):
        self.run = RunStore(hosts.home(SERVER) / "runs").at(identified(load_config(None, SETTINGS)))

    def count(self):
        return len(self.run.rounds())

    def wait_for(self, count, command):
        """Wait until `count` rounds are recorded; the command must not have ended."""

        def reached():
            assert not command.done(), command.result()
            return self.count() >= count

        wait_until(reached)


def cut_off(hosts, hospital, progress):
    """Cut a hospital off for some seconds; return the number of rounds recorded when it is back."""
    before = progress.count()
    with hosts.cut_off(hospital):
        assert hosts.run(hospital, "curl -sk --max-time 2 https://server.example.org:8000")[0]  # no answer
        time.sleep(CUT)
        after = progress.count()
    assert after <= before + 1  # its reply may have been on the server already
    return after


@pytest.mark.slow
def test_a_run_with_a_cut_off_node_and_a_killed_superlink_ends_as_one_process_does(tmp_path):
    need_nginx()
    if not namespaces.possible():
        pytest.skip("hosts that are network namespaces need root")
    with ThreadPoolExecutor(1) as pool, namespaces.connected(tmp_path, (SERVER, *HOSPITALS)) as hosts:
        start_federation(hosts)
        progress = Progress(hosts)
        first = pool.submit(hosts.run, SERVER, RUN)
        progress.wait_for(1, first)
        after = cut_off(hosts, HOSPITALS[1], progress)
        progress.wait_for(after + 1, first)
        check_run(hosts, SERVER, "systemctl kill -s KILL fedeas-superlink")
        code, said = first.result(LIMIT)
        assert code == RunError.exit_code, said
        assert after < progress.count() < ROUNDS
        check_run(hosts, SERVER, f"{DEPLOY} status --wait 300")
        check_run(hosts, SERVER, RUN)
    records = progress.run.rounds()
    assert [record["round"] for record in records] == list(range(1, ROUNDS + 1))
    assert not any(record.get("missing") for record in records)
    assert_same(progress.run, execute(load_config(None, SETTINGS), RunStore(tmp_path / "local")))
