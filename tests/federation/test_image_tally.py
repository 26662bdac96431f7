"""A run counts the synthetic images of a client once, in the first round in which the client trains."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedeas.federation.run import ImageTally
from fedeas.generators.pools import NotingGenerator

GENERATED = np.array([5, 0, 7, 11])
CLIENTS = st.sets(st.integers(0, 3))


def records(rounds):
    return [{"clients": sorted(asked), "missing": sorted(away & asked)} for asked, away in rounds]


@given(st.lists(st.tuples(CLIENTS, CLIENTS), max_size=6), st.integers(0, 6))
def test_a_resumed_tally_counts_as_one_that_never_stopped(rounds, done):
    rounds = records(rounds)
    whole = ImageTally(GENERATED, [])
    expected = [whole.count(record) for record in rounds]
    resumed = ImageTally(GENERATED, rounds[:done])
    assert [resumed.count(record) for record in rounds[done:]] == expected[done:]
    trained = {client for record in rounds for client in set(record["clients"]) - set(record["missing"])}
    assert whole.total(expected) == {"generated": sum(GENERATED[sorted(trained)]), "images": None}


def test_images_from_the_bank_are_counted_apart():
    notes = [{"clients": [0, 2], "found": 8, "made": 4}, {"clients": [3], "found": 0, "made": 11}]
    tally = ImageTally(
        GENERATED, [], NotingGenerator(SimpleNamespace(num_classes=2, shape=(1, 1, 1)), notes, notes.append)
    )
    rounds = [tally.count(record) for record in records([({0, 2}, set()), ({0, 1}, set()), ({3}, set())])]
    assert rounds == [
        {"generated": 12, "images": {"found": 8, "made": 4}},
        {"generated": 0},
        {"generated": 11, "images": {"found": 0, "made": 11}},
    ]
    assert tally.total(rounds) == {"generated": 23, "images": {"found": 8, "made": 15}}
