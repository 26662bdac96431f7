"""Random federations: skewed, sparse, tied, tiny and huge ones."""

import numpy as np
from hypothesis import strategies as st

from fedeas import LabelCounts


@st.composite
def label_counts(draw, max_clients=6, max_classes=5, max_count=200, min_classes=2):
    num_classes = draw(st.integers(min_classes, max_classes))
    count = st.one_of(st.just(0), st.integers(0, 4), st.integers(0, max_count))
    row = st.lists(count, min_size=num_classes, max_size=num_classes).filter(any)
    rows = draw(st.lists(row, min_size=1, max_size=max_clients))
    if draw(st.booleans()):  # twins, so that ties between clients are common
        rows.append(list(draw(st.sampled_from(rows))))
    return LabelCounts(rows)


def dirichlet_counts(clients, classes, alpha, size, seed=0):
    """A larger skewed federation for tests that need numbers rather than corner cases."""
    rng = np.random.default_rng(seed)
    sizes = rng.gamma(2.0, size / 2, clients)[:, None]
    return LabelCounts(
        np.floor(rng.dirichlet([alpha] * classes, clients) * sizes).astype(int) + np.eye(classes, dtype=int)[0]
    )
