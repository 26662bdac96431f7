"""What every benchmark shares: timing, peak memory of a fresh process, and the name of the machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

Case = TypeVar("Case")

RESULTS = Path(__file__).parent / "results"


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The best of some repeats: noise only ever adds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def medians(measurements: Mapping[Case, Callable[[], float]], times: int = 3) -> dict[Case, float]:
    """The median of each measurement, all taken in turn: a shared machine may be half as fast a minute later."""
    turns = [{case: measure() for case, measure in measurements.items()} for _ in range(times)]
    return {case: float(np.median([turn[case] for turn in turns])) for case in measurements}


def in_fresh_process(script: str, *arguments: object) -> dict[str, float]:
    """Run a script of its own, so that its peak memory is its own; it prints one line of JSON."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parent)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def peak_resident_bytes() -> int:
    """Most memory that this process has had; unlike ru_maxrss it does not count what its parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def machine() -> dict[str, str]:
    """Where the numbers were measured."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        name = models[0] if models else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        **_gpu(),
        "processor": f"{name}, {cores} cores",
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _gpu() -> dict[str, str]:
    """The GPU, for benchmarks that have already loaded torch and can see one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}


def save(name: str, question: str, rows: list[dict[str, object]], where: dict[str, str] | None = None) -> None:
    """Keep a result as JSON, from which docs/performance.md is rendered; `where` it was measured, if not here."""
    RESULTS.mkdir(exist_ok=True)
    document = {"question": question, "script": Path(sys.argv[0]).name, "machine": where or machine(), "rows": rows}
    if document["script"] == "run.py":
        del document["script"]  # the name of the result begins with that of its script
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{name}: {question}")
    for row in rows:
        print("  " + ", ".join(f"{key}: {value}" for key, value in row.items()))
