"""The results that are kept, and finished runs without training."""

from pathlib import Path

import pytest

from fedeas.planning.policies import parse_policy
from fedeas.runs.store import RunStore
from reproduction.findings import all_findings
from reproduction.published import example_counts
from reproduction.results import Results


@pytest.fixture(scope="session")
def kept():
    """The runs in the folder ``results``."""
    return Results([Path(__file__).parents[2] / "reproduction" / "results"])


@pytest.fixture(scope="session")
def packed(kept):
    """What they show beyond the paper."""
    return all_findings(kept)


@pytest.fixture
def finished(tmp_path):
    """A function that makes a finished run with this summary in `tmp_path`."""

    def make(config, **summary):
        run = RunStore(tmp_path).open(config)
        total = parse_policy(config.policy).allocate(example_counts()).total
        usual = {"accuracy": 0.5, "window": [181, 200], "final": 0.55, "peak": 0.6, "steps": 1200, "samples": None}
        usual |= {"total": total, "generated": total, "rounds_to_threshold": None, "gamma_hat": None, "images": None}
        seconds = {"generate": 0.0, "train": 60.0, "total": 60.0, **summary.pop("seconds", {})}
        run.write_json("summary.json", {**usual, "imbalance_removed": 0.0, **summary, "seconds": seconds})
        return run

    return make
