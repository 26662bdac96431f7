"""The order of work in a round."""

from federation.engines.six_clients import SIZES, worker

from fedeas.algorithms.base import Fleet
from fedeas.federation.engines.local import LocalEngine
from fedeas.federation.rounds import Schedule, federate


def test_probes_begin_while_the_test_runs_and_both_are_read_afterwards():
    done, records = [], []

    def noting(name, result):
        def start(*state):
            done.append(f"{name} begins")

            def read():
                done.append(f"{name} is read")
                return result

            return read

        return start

    own = worker()
    server = own.algorithm.init(own.model, Fleet(SIZES, 3))
    schedule = Schedule(3, len(SIZES), 2, seed=0, eval_every=2)
    probes = (noting("probe", {"gamma_hat": 0.5}),)
    test = noting("test", {"accuracy": 0.25})
    federate(own.algorithm, LocalEngine(own), server, schedule, test, probes, lambda record, _: records.append(record))
    whole = ["test begins", "probe begins", "test is read", "probe is read"]
    assert done == ["probe begins", "probe is read", *whole, *whole]
    assert [record.get("accuracy") for record in records] == [None, 0.25, 0.25]
    assert [record["gamma_hat"] for record in records] == [0.5] * 3
    for record in records:
        assert {"evaluate", "probe"} <= record["seconds"].keys()
