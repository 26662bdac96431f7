"""Does the planner hold under many sessions, and a plan under a cap on memory? Started by hand: it loads the machine.

``python benchmarks/load.py sessions``, ``capped`` or ``fleet`` measures one of them.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from measure import in_fresh_process, save
from stream import CLASSES, write

SESSIONS = 50
VIEWS = 3  # of each session
PATIENT: dict[str, Any] = {"max_size": None, "ping_interval": None}  # a busy server does not answer in time
CLIENTS = 10_000_000
CAP_BYTES = 10**9

PLAN = """
import json, os, resource, sys, time
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # Arrow's own pool reserves a gigabyte that it does not use
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]),) * 2)
from measure import peak_resident_bytes
from fedeas import parse_policy
from fedeas.planning.request import plan_in_parts, write_plan
from fedeas.planning.tables import CountTable

class Counted(CountTable):
    passes = 0

    def chunks(self, *options, **more):
        self.passes += 1
        return super().chunks(*options, **more)

table, policy, start = Counted(sys.argv[1]), parse_policy(sys.argv[4]), time.perf_counter()
summary = write_plan(plan_in_parts(table, policy), policy.spec, sys.argv[2])
found = {"seconds": time.perf_counter() - start, "peak": peak_resident_bytes(), "passes": table.passes}
print(json.dumps({**found, "clients": summary.clients, "samples": summary.synthetic}))
"""

FLEET_POLICIES = (
    "greedy(budget=fedeas(beta=4))",
    "optimal(budget=fedeas(beta=4))",
    "kl(budget=fedeas(beta=4))",
)


def fleet() -> None:
    """One budget for ten million clients, in as many passes as it takes, under the same cap."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.parquet"
        write(path, CLIENTS)
        rows = [capped_plan(path, policy) for policy in FLEET_POLICIES]
    save("load-fleet", "One budget for all clients, in a process that gets no more memory than the cap", rows)


def capped_plan(path: Path, policy: str) -> dict[str, object]:
    """Plan a table in a process with capped memory."""
    done = in_fresh_process(PLAN, path, path.with_name("plan.parquet"), CAP_BYTES, policy)
    assert done["clients"] == CLIENTS
    assert done["peak"] <= CAP_BYTES, f"{done['peak']:,} bytes"
    return {
        "policy": policy,
        "clients": CLIENTS,
        "samples": done["samples"],
        "cap, MB": CAP_BYTES // 10**6,
        "peak resident MB": round(done["peak"] / 1e6),
        "passes": done["passes"],
        "seconds": round(done["seconds"]),
    }


def capped() -> None:
    """Plan ten million clients from Parquet to Parquet in a process that the kernel gives no more than a gigabyte.

    The limit is one on writable memory of its own; files that it maps count in the peak, which is checked afterwards.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.parquet"
        write(path, CLIENTS)
        done = in_fresh_process(PLAN, path, Path(folder) / "plan.parquet", CAP_BYTES, "fedeas(beta=12)")
    assert done["clients"] == CLIENTS
    assert done["peak"] <= CAP_BYTES, f"{done['peak']:,} bytes"
    row: dict[str, object] = {
        "clients": CLIENTS,
        "classes": CLASSES,
        "cap, MB": CAP_BYTES // 10**6,
        "peak resident MB": round(done["peak"] / 1e6),
        "seconds": round(done["seconds"], 1),
    }
    save("load-capped", "A plan in chunks, in a process that gets no more memory than the cap", [row])


def sessions() -> None:
    """Views of the planner's page, by one session and by many at once."""
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as port:
        asyncio.run(visit(port, 1))  # what Python loads only once is not measured
        rows = []
        for number in (1, SESSIONS):
            waits = np.array(asyncio.run(visit(port, number)))
            rows.append(
                {
                    "sessions at once": number,
                    "views": waits.size,
                    "median, ms": round(1000 * float(np.median(waits))),
                    "95th percentile, ms": round(1000 * float(np.percentile(waits, 95))),
                }
            )
    save("load-sessions", f"Views of the planner's page, {VIEWS} by each session one after the other", rows)


async def visit(port: int, number: int) -> list[float]:
    """Seconds of every view of so many sessions at once."""
    found = await asyncio.gather(*(session(port) for _ in range(number)))
    return [wait for waits in found for wait in waits]


async def session(port: int) -> list[float]:
    """One browser's WebSocket: ask for the page, wait until its script has finished, ask again."""
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
    from websockets.asyncio.client import connect

    ask = BackMsg()
    ask.rerun_script.query_string = ""
    waits = []
    address = f"ws://127.0.0.1:{port}/_stcore/stream"
    async with connect(address, origin=f"http://127.0.0.1:{port}", subprotocols=["streamlit"], **PATIENT) as page:
        for _ in range(VIEWS):
            began = time.perf_counter()
            await page.send(ask.SerializeToString())
            while True:
                message = ForwardMsg.FromString(await page.recv())
                if message.WhichOneof("type") == "script_finished":
                    break
            waits.append(time.perf_counter() - began)
    return waits


@contextmanager
def served(runs: Path) -> Iterator[int]:
    """The port of a running planner."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "fedeas", "planner", "--port", str(port), "--runs", str(runs)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(f"http://127.0.0.1:{port}/_stcore/health")
        yield port
    finally:
        process.kill()
        process.wait()


def _wait(address: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the planner did not answer")


def main() -> None:
    kinds = {"sessions": sessions, "capped": capped, "fleet": fleet}
    for name in sys.argv[1:] or kinds:
        kinds[name]()


if __name__ == "__main__":
    main()
