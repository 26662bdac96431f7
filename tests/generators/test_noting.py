"""Notes of how many images a run found and had to make: they do not depend on how often the run was started."""

import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas.generators.bank import Bank
from fedeas.generators.base import plan_addresses
from fedeas.generators.pools import KeptPool, NotingGenerator


class Grey:
    num_classes, shape, batch_size, fingerprint = 3, (1, 2, 2), 4, "cd" * 32

    def sample(self, labels, index):
        return np.full((len(labels), *self.shape), 7, dtype=np.uint8)


class Stopped(Grey):
    """Is killed while it makes images."""

    def sample(self, labels, index):
        raise KeyboardInterrupt


def request(*clients):
    """Two images of each class for each client."""
    addresses = [plan_addresses(client, np.array([2, 2, 2])) for client in clients]
    return tuple(np.concatenate(part) for part in zip(*addresses, strict=True))


def test_a_client_is_noted_once_with_what_it_found_and_what_was_made(tmp_path):
    notes, bank = [], Bank(tmp_path).of(Grey())
    bank.sample(*(part[:2] for part in request(1)))
    journal = NotingGenerator(bank, [], notes.append)
    journal.sample(*request(0, 1))
    journal.sample(*request(0, 1, 2))
    assert notes == [{"clients": [0, 1], "found": 2, "made": 10}, {"clients": [2], "found": 0, "made": 6}]
    assert journal.drawn(set()) == {"found": 0, "made": 0}
    assert journal.drawn({0, 1, 2}) == {"found": 2, "made": 16}


@given(st.permutations(range(5)), st.data())
def test_a_request_for_clients_of_several_rounds_counts_once_and_a_resumed_run_counts_the_same(order, data):
    together = data.draw(st.integers(1, 5))
    trained = data.draw(st.integers(0, 5))
    notes = []
    with tempfile.TemporaryDirectory() as folder:
        journal = NotingGenerator(Bank(folder).of(Grey()), [], notes.append)
        for start in range(0, 5, together):
            journal.sample(*request(*order[start : start + together]))
        before = sum(journal.drawn([client])["made"] for client in order[:trained])
        resumed = NotingGenerator(Bank(folder).of(Grey()), notes, notes.append)
        resumed.skip(order[:trained])
        resumed.sample(*request(*order))
        assert before + sum(resumed.drawn([client])["made"] for client in order[trained:]) == 5 * 6


def test_what_an_earlier_start_noted_counts_although_the_images_are_there_now(tmp_path):
    notes = []
    with pytest.raises(KeyboardInterrupt):
        NotingGenerator(Bank(tmp_path).of(Stopped()), [], notes.append).sample(*request(0))
    Bank(tmp_path).of(Grey()).sample(*request(0))
    again = NotingGenerator(Bank(tmp_path).of(Grey()), notes, notes.append)
    again.sample(*request(0))
    assert again.drawn({0}) == {"found": 0, "made": 6}
    assert len(notes) == 1


def test_images_that_clients_share_count_once(tmp_path):
    notes = []
    journal = NotingGenerator(KeptPool(Bank(tmp_path).of(Grey())), [], notes.append)
    journal.sample(*request(0, 1))
    journal.sample(*request(2))
    assert notes == [{"clients": [0, 1], "found": 0, "made": 6}, {"clients": [2], "found": 6, "made": 0}]


def test_clients_whose_images_are_in_the_records_already_are_not_noted(tmp_path):
    notes = []
    journal = NotingGenerator(Bank(tmp_path).of(Grey()), [], notes.append)
    journal.skip([0])
    journal.sample(*request(0, 1))
    assert notes == [{"clients": [1], "found": 0, "made": 6}]
