"""Run every benchmark and render docs/performance.md from what they measured; `rounds` needs the extra `flower`,
`planner` the extra `web`.

Those named `gpu_` need a GPU, those named `flower_` start processes of their own, and `storage` needs other libraries.
They are started by hand, and the page shows what they measured last.
"""

from __future__ import annotations

import algorithms
import allocate
import planner
import rounds
import samplers
import search
import start
import stream
from measure import RESULTS
from page import page


def main() -> None:
    for benchmark in (start, allocate, search, stream, algorithms, samplers, planner, rounds):
        benchmark.main()
    (RESULTS.parent.parent / "docs" / "performance.md").write_text(page())


if __name__ == "__main__":
    main()
