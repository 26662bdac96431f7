"""Clients with their own data and private updates, on real nodes with TLS and keys."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)
pytest.importorskip("opacus", reason="needs an accountant: pip install 'fedeas[privacy]'", exc_type=ImportError)

from waiting import LIMIT

from fedeas.config import load_config
from fedeas.data.sources import load_dataset
from fedeas.flower.privacy import epsilon_of
from fedeas.runs.store import RunStore

NODES, ROUNDS, NOISE = 2, 2, 20.0


@pytest.mark.slow  # tests/flower/test_privacy.py and test_own_sites.py have no processes of their own
def test_real_nodes_bring_their_own_data_and_add_noise(tmp_path):
    from flower.deployments import deployed

    digits = load_dataset("digits")
    np.savez(tmp_path / "test.npz", test_images=digits.test_images, test_labels=digits.test_labels)
    np.savez(tmp_path / "mine.npz", images=digits.images[:200], labels=digits.labels[:200])
    node = {"data": f"npz:{tmp_path}/mine.npz", "policies": "no-generation", "dp-clip": 1e-3, "dp-noise": NOISE}
    overrides = [f"data.dataset=npz:{tmp_path}/test.npz", "partition.scheme=own", f"partition.clients={NODES}",
                 f"rounds.total={ROUNDS}", "rounds.participation=1.0", "train.steps=2", "engine.threads=1",
                 f"engine.timeout={LIMIT / 2}"]  # fmt: skip
    with deployed(tmp_path / "deployment", NODES, node) as deployment:
        given = {"settings": load_config(None, overrides).model_dump_json(), "runs": str(tmp_path / "runs")}
        log = []
        assert deployment.run(None, given, log.append).completed, log[-30:]
        notes = sorted(deployment.folder.rglob("privacy-*.jsonl"))
        assert [len(path.read_text().splitlines()) for path in notes] == [ROUNDS] * NODES
    (run,) = RunStore(tmp_path / "runs").all()
    epsilons = [record["epsilon"] for record in run.rounds()]
    assert epsilons == pytest.approx([epsilon_of({NOISE: answers}, 1e-5) for answers in (1, 2)])
    assert not any("missing" in record for record in run.rounds())
