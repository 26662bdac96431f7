"""Rewrite golden_runs.json with ``python tests/golden.py``, after a change that is meant to change runs.

The ResNet run also has ``rounds on aarch64``: ARM rounds it apart from x86. Record them on such a machine.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from fedeas.config import load_config
from fedeas.federation.run import execute
from fedeas.runs.store import RunStore

BASE = ["train.lr=0.05", "train.epochs=2", "rounds.total=2", "partition.clients=6", "engine.threads=1"]
RUNS = {
    "fedavg": [],
    "fedeas": ["policy=fedeas(beta=4)", "generator=diffusion"],
    "paper": ["data.protocol=paper", "partition.scheme=paper", "policy=uniform(budget=fedeas(beta=4))"],
    "equal steps": ["train.steps=4", "policy=full-balance"],
    "fedprox": ["algorithm=fedprox"],
    "scaffold": ["algorithm=scaffold", "seed=3"],
    "moon": ["algorithm=moon"],
    "fedgen": ["algorithm=fedgen"],
    "fedmix": ["algorithm=fedmix", "train.augment=flip"],
    "resnet": ["model.name=resnet18", "model.stem=imagenet", "train.lr=0.01", "rounds.participation=0.2"],
}
KEPT = ("clients", "steps", "train_loss", "test_loss", "accuracy")


def recorded(overrides: list[str]) -> dict[str, object]:
    with TemporaryDirectory() as folder:
        run = execute(load_config(None, overrides), RunStore(folder))
        rounds = [{key: record[key] for key in KEPT} for record in run.rounds()]
    return {"overrides": overrides, "fingerprint": run.config.fingerprint, "rounds": rounds}


if __name__ == "__main__":
    golden = {name: recorded([*BASE, *overrides]) for name, overrides in RUNS.items()}
    Path(__file__).with_name("golden_runs.json").write_text(json.dumps(golden, indent=1) + "\n")
