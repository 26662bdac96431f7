"""How fast are Greedy and Optimal, against the loop that recomputes all gains for each sample?"""

from __future__ import annotations

import numpy as np
from measure import save, seconds

from fedeas import FedEAS, FullBalance, Greedy, LabelCounts, Optimal
from reproduction.published import example_counts


def by_the_loop(counts: LabelCounts, budget: int) -> np.ndarray:
    """Eq. (gain) of every pair for every sample, in numpy."""
    n, weights = counts.n.astype(float), counts.weights
    for _ in range(budget):
        sizes = n.sum(axis=1)
        q = n / sizes[:, None]
        gain = (2 * weights / sizes)[:, None] * ((q * q).sum(axis=1)[:, None] - q)
        n.flat[gain.argmax()] += 1
    return n.astype(np.int64) - counts.n


def skewed(clients: int, classes: int, size: int) -> LabelCounts:
    rng = np.random.default_rng(0)
    sizes = rng.gamma(2.0, size / 2, clients)[:, None]
    return LabelCounts(np.floor(rng.dirichlet([0.1] * classes, clients) * sizes).astype(int) + 1)


def main() -> None:
    paper = example_counts()
    demand = FullBalance().allocate(paper).total
    federations = [
        ("the paper's, K=20, C=10", paper, FedEAS(12).allocate(paper).total),
        ("the paper's, half of Full-Balance", paper, demand // 2),
        ("the paper's, all of Full-Balance", paper, demand),
        ("K=1,000, C=10", skewed(1000, 10, 450), 250_000),
        ("K=1,000, C=100", skewed(1000, 100, 4500), 250_000),
    ]
    results: list[dict[str, object]] = []
    for name, table, total in federations:
        greedy = seconds(lambda t=table, b=total: Greedy(budget=b).allocate(t), repeats=5)
        optimal = seconds(lambda t=table, b=total: Optimal(budget=b).allocate(t), repeats=5)
        # With a thousand clients the loop takes hours.
        loop = seconds(lambda b=total: by_the_loop(paper, b), repeats=1) if table is paper else None
        results.append(
            {
                "federation": name,
                "budget": total,
                "greedy, ms": round(greedy * 1e3, 1),
                "loop, ms": "-" if loop is None else round(loop * 1e3),
                "times faster": "-" if loop is None else round(loop / greedy),
                "optimal, ms": round(optimal * 1e3, 1),
                "certified gap in I": f"{Optimal(budget=total).allocate(table).gap:.1e}",
            }
        )
    save("search", "Greedy and Optimal; the loop recomputes all gains for each sample", results)


if __name__ == "__main__":
    main()
