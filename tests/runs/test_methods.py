"""Names of methods: all different, and no longer than needed."""

from fedeas.config import RunConfig
from fedeas.runs.methods import names_of


def config(label="run", **more):
    return RunConfig(label=label, policy="full-balance", **more)


def test_a_label_that_no_other_method_has_is_the_name():
    assert names_of([[config("mine")], [config("base", algorithm="fedprox")]]) == ["mine", "base"]


def test_digests_are_left_out_if_another_key_differs():
    models = {"python:mine:Net": "ab" * 32, "python:mine:Other": "cd" * 32}
    methods = [[config(model={"name": name}, content={"model": digest})] for name, digest in models.items()]
    assert names_of(methods) == [f"full-balance + fedavg, model.name={name}" for name in models]


def test_digests_that_alone_differ_are_shortened():
    methods = [[config(content={"data": digest * 32})] for digest in ("ab", "cd")]
    assert names_of(methods) == [f"full-balance + fedavg, content.data={digest * 4}" for digest in ("ab", "cd")]


def test_splits_that_are_drawn_for_each_seed_are_not_in_a_name():
    def seeds(rate, digests):
        each = {"train": {"lr": rate}, "partition": {"redraw": True}}
        return [config(seed=seed, content={"partition": text * 32}, **each) for seed, text in enumerate(digests)]

    assert names_of([seeds(0.1, ("ab", "cd")), seeds(0.2, ("ab", "cd"))]) == [
        f"full-balance + fedavg, train.lr={rate}" for rate in (0.1, 0.2)
    ]
