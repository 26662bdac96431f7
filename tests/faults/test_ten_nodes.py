"""Ten real nodes on one machine: a killed and a stopped one change nothing but their own rounds."""

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

from flower.absences import run_with_absences
from flower.gated_runs import Gates, Started, assert_same, gated_deployment
from waiting import LIMIT

from fedeas.runs.store import RunStore

NODES, KILLED, STOPPED = 10, 3, 7
SETTINGS = [f"partition.clients={NODES}", "rounds.participation=1.0", "rounds.total=4", "train.epochs=1",
            "train.lr=0.05", "engine.threads=1", "algorithm=scaffold", "policy=fedeas(beta=2)", "engine.min_share=0.5",
            f"engine.timeout={LIMIT / 2}"]  # fmt: skip


@pytest.mark.soak
def test_ten_nodes_of_which_one_is_killed_and_one_stopped_end_as_one_process_does(tmp_path, tried):
    store, gates = RunStore(tmp_path / "flower"), Gates(tmp_path / "gates")
    gates.close(f"client{KILLED}-2", "server-2", f"client{STOPPED}-3", "server-3")
    with gated_deployment(tmp_path / "deployment", NODES, gates) as loopback:
        started = Started(loopback, store, SETTINGS)
        for client, round, end in ((KILLED, 2, loopback.kill_node), (STOPPED, 3, loopback.stop_node)):
            started.wait_for(gates, f"client{client}-{round}")  # in the middle of its work
            end(client)
            gates.open(f"client{client}-{round}")
            loopback.restart_node(client)
            started.wait_for(gates, f"server-{round}")
            gates.open(f"server-{round}")
        assert started.wait().completed, started.log[-30:]
    run = store.open(started.config)
    assert [record.get("missing") for record in run.rounds()] == [None, [KILLED], [STOPPED], None]
    assert_same(run, run_with_absences(tmp_path / "local", SETTINGS, {1: {KILLED}, 2: {STOPPED}}))
    tried("one of ten real nodes: killed at its work, and another one stopped", 1)
