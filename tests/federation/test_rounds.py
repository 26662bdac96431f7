"""The order of work in a round."""

from federation.engines.six_clients import SIZES, worker
from torch import tensor

from fedeas.algorithms.base import Fleet
from fedeas.federation.rounds import Schedule, federate
from fedeas.federation.worker import LocalEngine


def federated(test, probe, on_round, **schedule):
    own = worker()
    server = own.algorithm.init(own.model, Fleet(SIZES, 3))
    schedule = Schedule(3, len(SIZES), 2, seed=0, **schedule)
    return federate(own.algorithm, LocalEngine(own), server, schedule, test, {"gamma_hat": probe}, on_round)


def test_the_model_is_tested_and_replies_are_measured_before_a_round_is_recorded():
    done, records = [], []

    def test(state):
        done.append("test")
        return {"accuracy": 0.25}

    def probe(before, replies):
        done.append("probe")
        return tensor(0.5)

    def on_round(record, state):
        done.append("record")
        records.append(record)

    federated(test, probe, on_round, eval_every=2)
    assert done == ["probe", "record", "test", "probe", "record", "test", "probe", "record"]
    assert [record.get("accuracy") for record in records] == [None, 0.25, 0.25]
    assert [record["gamma_hat"] for record in records] == [0.5] * 3
    for record in records:
        assert {"evaluate", "probe"} <= record["seconds"].keys()


def test_the_loop_ends_after_the_round_whose_record_ends_it():
    rounds, states = [], []

    def on_round(record, state):
        rounds.append(record["round"])
        states.append(state)
        return record["round"] == 2

    last = federated(lambda state: {}, lambda before, replies: tensor(0.0), on_round)
    assert rounds == [1, 2]
    assert last is states[-1]
