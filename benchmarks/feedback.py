"""Does feedback help? Digits, one budget in three stages, by gain alone and by gain times 1 - recall.

Recall is measured on held-out images at the server. Both arms have the same clients, rounds, images and seeds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from measure import save

from fedeas.federation.stages import execute_in_stages
from fedeas.runs.comparison import paired_difference, signed
from fedeas.runs.store import RunStore
from reproduction.methods import Method
from reproduction.profiles import HEADLINE
from reproduction.published import setting
from reproduction.studies import study

SEEDS, STAGES, HELD_OUT, BETA = 10, 3, 100, 1.4


def main() -> None:
    """Run both arms and keep their accuracies."""
    method = Method("Feedback", policy=f"fedeas(beta={BETA})")
    config = study("digits", "clean").config(setting(HEADLINE), method)
    apart = config.data.model_copy(update={"held_out": HELD_OUT})
    engine = config.engine.model_copy(update={"device": "cpu", "threads": 1, "processes": 1})
    found: dict[bool, dict[int, float]] = {True: {}, False: {}}
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(sys.argv[1] if sys.argv[1:] else Path(folder))
        for seed in range(SEEDS):
            for feedback, accuracies in found.items():
                given = config.model_copy(update={"seed": seed, "data": apart, "engine": engine})
                last = execute_in_stages(given, store, STAGES, feedback=feedback)[-1]
                accuracies[seed] = 100 * last.summary()["accuracy"]
                print(seed, feedback, accuracies[seed], flush=True)
    difference = paired_difference(found[True], found[False])
    assert difference is not None
    row: dict[str, object] = {
        "seeds": SEEDS,
        "stages": STAGES,
        "by gain alone, %": round(sum(found[False].values()) / SEEDS, 2),
        "with feedback, %": round(sum(found[True].values()) / SEEDS, 2),
        "difference, points (95 % interval)": f"{signed(difference.mean, 2)} ({difference.range_text(2)})",
        "verdict": str(difference.verdict),
    }
    save("feedback", "Digits, one budget in stages: accuracy with feedback from held-out images and without", [row])


if __name__ == "__main__":
    main()
