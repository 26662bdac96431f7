"""Names of methods: all different, and no longer than needed."""

import pytest

from fedeas import InputError
from fedeas.config import RunConfig
from fedeas.runs.methods import grouped, named, names_of


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


def test_the_engine_is_not_in_a_name():
    methods = [
        [config(engine={"name": name}, train={"lr": rate}) for name in ("lanes", "fast")[:engines]]
        for rate, engines in ((0.1, 2), (0.2, 1))
    ]
    assert names_of(methods) == [f"full-balance + fedavg, train.lr={rate}" for rate in (0.1, 0.2)]


def test_several_values_of_one_method_are_not_taken_for_several_settings():
    one, other = config(model={"weights": "a"}, content={"weights": "ab" * 32}), config(model={"weights": "b"})
    assert names_of([[one, other], [config()]])[0] == "full-balance + fedavg, model.weights=a and b"


def test_splits_that_are_drawn_for_each_seed_are_not_in_a_name():
    def seeds(rate, digests):
        each = {"train": {"lr": rate}, "partition": {"redraw": True}}
        return [config(seed=seed, content={"partition": text * 32}, **each) for seed, text in enumerate(digests)]

    assert names_of([seeds(0.1, ("ab", "cd")), seeds(0.2, ("ab", "cd"))]) == [
        f"full-balance + fedavg, train.lr={rate}" for rate in (0.1, 0.2)
    ]


def groups_of(*configs):
    return grouped(configs, lambda each: each)


def test_runs_that_differ_in_seed_and_label_alone_are_one_method():
    assert [*groups_of(config("a"), config("b", seed=1))] == ["full-balance + fedavg"]


def test_one_config_under_two_labels_is_two_methods():
    found = groups_of(config("a"), config("b"), config("b", seed=1))
    assert {name: [each.seed for each in group] for name, group in found.items()} == {"a": [0], "b": [0, 1]}


def test_a_copy_of_a_run_is_a_method_of_its_own():
    found = groups_of(config("a"), config("a"), config("a", seed=1))
    assert [[each.seed for each in group] for group in found.values()] == [[0, 1], [0]]


def test_labels_tell_methods_apart_whose_settings_do_not():
    rates = [{"train": {"lr": rate}} for rate in (0.1, 0.2)]
    assert len(groups_of(*(config(label, **rate) for label in "ab" for rate in rates))) == 4


def test_a_label_of_several_methods_is_answered_with_these_alone():
    with pytest.raises(InputError, match="several methods") as caught:
        named("mine", {"mine + fedavg": {"mine"}, "mine + fedprox": {"mine", "own"}, "other": {"else"}})
    assert str(caught.value).endswith("choose one of 'mine + fedavg', 'mine + fedprox'")
