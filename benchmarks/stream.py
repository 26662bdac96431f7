"""Can a table larger than memory be planned, and does throughput hold as it grows?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import in_fresh_process, save
from pyarrow import parquet

CLASSES = 10

PLAN = """
import json, sys, time
from measure import peak_resident_bytes
from fedeas import FedEAS
from fedeas.planning.request import plan_in_parts, write_plan
from fedeas.planning.tables import CountTable

start = time.perf_counter()
policy = FedEAS(12)
summary = write_plan(plan_in_parts(CountTable(sys.argv[1]), policy), policy.spec, sys.argv[2])
elapsed = time.perf_counter() - start
print(json.dumps({"seconds": elapsed, "peak": peak_resident_bytes(), "clients": summary.clients}))
"""


def write(path: Path, clients: int) -> None:
    """Random skewed counts, a million rows at a time, client ids in no order."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(clients)
    schema = pa.schema([("client", pa.int64()), *((f"class {c}", pa.int32()) for c in range(CLASSES))])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, clients, 1_000_000):
            part = ids[start : start + 1_000_000]
            n = rng.negative_binomial(0.3, 0.005, (CLASSES, part.size)).astype(np.int32)
            n[0] += 1
            writer.write_table(pa.table([part, *n], schema=schema))


def main() -> None:
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for clients in (100_000, 1_000_000, 10_000_000):
            path = Path(folder) / "counts.parquet"
            write(path, clients)
            runs = [in_fresh_process(PLAN, path, Path(folder) / "plan.parquet") for _ in range(3)]
            done = min(runs, key=lambda run: run["seconds"])
            assert done["clients"] == clients
            results.append(
                {
                    "clients": clients,
                    "classes": CLASSES,
                    "seconds": round(done["seconds"], 1),
                    "thousand clients a second": round(clients / done["seconds"] / 1e3),
                    "peak resident MB": round(done["peak"] / 1e6),
                }
            )
    save("stream", "FedEAS from Parquet to Parquet in chunks, client ids checked for duplicates", results)


if __name__ == "__main__":
    main()
