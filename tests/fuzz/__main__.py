"""``make fuzz``: many inputs over every reader and command; what is taken badly joins the corpus.

PYTHONPATH=tests python -m fuzz --inputs 10000 --seed 0 --tried tests/fuzz/tried.json
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from fuzz.making import CORPUS, make
from fuzz.targets import TARGETS, arguments_of
from fuzz.watching import fault
from tried import keep_tried

KEPT_BYTES = 20_000  # of an input; larger ones are only named
SLOW = ("plan", "plan-csv", "plan-parquet", "upload-csv", "upload-parquet", "partition", "command")
SHELLS = 20  # inputs that go to a process of their own


def fuzz(inputs: int, seed: int, keep: bool = True, tried: Counter[str] | None = None) -> list[str]:
    """Faults of this many inputs, each with the target and the number that make it again; counts them in `tried`."""
    found = []
    for number in range(inputs):
        random = Random(f"{seed}/{number}")
        target = random.choices(list(TARGETS), [1 if name in SLOW else 6 for name in TARGETS])[0]
        content = make(target, random)
        if tried is not None:
            tried[target] += 1
        with tempfile.TemporaryDirectory(prefix="fedeas-fuzz-") as folder:
            wrong = fault(target, content, Path(folder))
        if wrong:
            found.append(f"{target}, input {number} of seed {seed}: {wrong}")
            if keep and len(content) <= KEPT_BYTES:
                _keep(target, content)
    return found


def in_processes(inputs: int, seed: int) -> list[str]:
    """Faults of commands as a user runs them."""
    found = []
    for number in range(inputs):
        random = Random(f"{seed}/process/{number}")
        arguments = arguments_of(make("plan", random))
        command = [sys.executable, "-m", "fedeas", "plan", "counts.csv", *arguments]
        with tempfile.TemporaryDirectory(prefix="fedeas-fuzz-") as folder:
            (Path(folder) / "counts.csv").write_text("client,x,y\na,90,1\nb,1,50\n")
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        if ended.returncode not in (0, 2, 3) or "Traceback" in ended.stderr:
            found.append(f"{arguments}: code {ended.returncode}, {ended.stderr[-300:]}")
    return found


def _keep(target: str, content: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha256(content).hexdigest()[:12]).write_bytes(content)


def main() -> int:
    """Run it, say what was found, and fail if anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tried", help="JSON file for what was tried.")
    options = parser.parse_args()
    tried: Counter[str] = Counter({"a command in a process of its own": SHELLS})
    found = fuzz(options.inputs, options.seed, tried=tried) + in_processes(SHELLS, options.seed)
    if options.tried:
        keep_tried(options.tried, tried, seed=options.seed, faults=found)
    print("\n".join(found))
    by_target = dict(Counter(each.partition(",")[0] for each in found))
    print(f"{options.inputs + SHELLS:,} inputs, {len(found)} faults {by_target or ''}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
