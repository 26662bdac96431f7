"""How fast is FedEAS on a million clients, against the equations written as a loop?"""

from __future__ import annotations

import math

import numpy as np
from measure import in_fresh_process, save, seconds

from fedeas import FedEAS, LabelCounts

CLASSES = 100
LOOP_CLIENTS = 20_000

MEMORY = """
import json, sys
import numpy as np
from measure import peak_resident_bytes as peak
from fedeas import FedEAS, LabelCounts

clients, classes = int(sys.argv[1]), int(sys.argv[2])
FedEAS(12).allocate(LabelCounts([[5, 0]]))  # load everything first
before = peak()
n = np.zeros((clients, classes), dtype=np.int64)
rng = np.random.default_rng(0)
for start in range(0, clients, 10_000):
    n[start:start + 10_000] = rng.negative_binomial(0.1, 0.005, n[start:start + 10_000].shape)
n[:, 0] += 1
n.flags.writeable = False
FedEAS(12).allocate(LabelCounts(n))
print(json.dumps({"input": n.nbytes, "peak": peak() - before}))
"""


def skewed(clients: int) -> np.ndarray:
    n = np.random.default_rng(0).negative_binomial(0.1, 0.005, (clients, CLASSES))
    n[:, 0] += 1
    n.flags.writeable = False
    return n


def by_the_loop(rows: list[list[int]], beta: float) -> list[list[int]]:
    """Eq. (cap) and (gen), one client at a time."""
    plan = []
    for row in rows:
        size, classes = sum(row), len(row)
        entropy = -sum(n / size * math.log(n / size) for n in row if n) / math.log(classes)
        mean = size / classes
        budget = math.floor(math.sqrt(mean) * (1 - entropy) * beta)
        plan.append([budget - n if n < budget and n < mean else 0 for n in row])
    return plan


def main() -> None:
    few = skewed(LOOP_CLIENTS)
    rows = few.tolist()
    loop = seconds(lambda: by_the_loop(rows, 12)) / LOOP_CLIENTS
    assert FedEAS(12).allocate(LabelCounts(few)).n.tolist() == by_the_loop(rows, 12)
    results: list[dict[str, object]] = []
    for clients in (10_000, 100_000, 1_000_000):
        n = skewed(clients)
        each = seconds(lambda n=n: FedEAS(12).allocate(LabelCounts(n)), repeats=7) / clients
        memory = in_fresh_process(MEMORY, clients, CLASSES)
        results.append(
            {
                "clients": clients,
                "classes": CLASSES,
                "microseconds a client": round(each * 1e6, 2),
                "loop, microseconds a client": round(loop * 1e6, 2),
                "times faster": round(loop / each, 1),
                "peak memory over input": round(memory["peak"] / memory["input"], 2),
            }
        )
        del n
    save("allocate", f"FedEAS.allocate against a loop over clients (timed on {LOOP_CLIENTS:,} clients)", results)


if __name__ == "__main__":
    main()
