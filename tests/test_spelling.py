"""Each object has one spec: every spelling that is read prints the same text."""

from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedeas import FedEAS, SpecError, Uniform, parse_policy
from fedeas.algorithms import ALGORITHMS, parse_algorithm
from fedeas.config.hyperparameters import HYPERPARAMETERS, parse_hyperparameters
from fedeas.core.errors import FedEASError
from fedeas.core.spec import Described
from fedeas.generators.kinds import GENERATORS, Diffusion, parse_generator
from fedeas.planning.policies import POLICIES

FAMILIES = {
    "policy": (POLICIES, parse_policy),
    "algorithm": (ALGORITHMS, parse_algorithm),
    "hyperparameters": (ALGORITHMS, parse_hyperparameters),
    "generator": (GENERATORS, parse_generator),
}
NUMBERS = st.one_of(st.floats(1e-6, 1e18), st.floats(0, 1), st.integers(1, 10**17), st.sampled_from([-0.0, True]))
TEXTS = st.one_of(st.text(st.sampled_from("ab/:. {}9-"), max_size=8), st.sampled_from(["true", "gaussian", "FedEAS"]))


def values(kind, known):
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(0, 10**6)
    if kind is str:
        return TEXTS
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is float or float in get_args(kind):
        return NUMBERS
    nested = st.sampled_from(list(known.values())).flatmap(lambda each: objects(each, known, deep=False))
    return st.one_of(st.integers(0, 10**6), nested) if int in get_args(kind) else nested


@st.composite
def objects(draw, described, known, deep=True):
    """A member of a family with random values for some of its fields."""
    kinds, given_values = get_type_hints(described), {}
    for field in fields(described):
        needed = field.default is field.default_factory
        if needed or draw(st.booleans()):
            kind = kinds[field.name]
            nested = any(isinstance(each, type) and issubclass(each, Described) for each in (kind, *get_args(kind)))
            assume(deep or not nested or int in get_args(kind))
            given_values[field.name] = draw(st.integers(0, 99) if nested and not deep else values(kind, known))
    try:
        return described(**given_values)
    except FedEASError:
        assume(False)


@st.composite
def spelled(draw, described):
    """One of the ways to write an object down."""

    def pick(*ways):
        return draw(st.sampled_from(ways))

    def cased(word):
        return pick(word, word.upper(), word.title(), word.replace("-", "_"), word.replace("_", "-"))

    def number(value):
        number = float(value)
        ways = [repr(number), f"{number:.17e}", f"{number:+.17E}"]
        if number.is_integer():
            ways += [str(int(number)), f"{int(number):_}"]
        return pick(*ways)

    def value(given_value, kind):
        if isinstance(given_value, Described):
            return draw(spelled(given_value))
        if get_origin(kind) is Literal and given_value:
            return cased(given_value)
        if isinstance(given_value, str):
            return f'"{given_value}"'
        if kind is bool:
            return cased(str(given_value).lower())
        return str(given_value) if isinstance(given_value, int) and kind is not float else number(given_value)

    kinds = get_type_hints(type(described))
    told = [field for field in fields(described) if getattr(described, field.name) is not None]
    told = [each for each in told if getattr(described, each.name) != each.default or pick(True, False)]
    space = pick("", " ", "  ")
    told = [
        f"{cased(each.name)}{space}={space}{value(getattr(described, each.name), kinds[each.name])}"
        for each in draw(st.permutations(told))
    ]
    name = cased(described.name())
    return f"{space}{name}({space}{f'{space},{space}'.join(told)}{space})" if told else name + pick("", "()")


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_every_spelling_prints_as_one_spec(family, data):
    known, parse = FAMILIES[family]
    thing = data.draw(objects(data.draw(st.sampled_from(list(known.values()))), known))
    text = data.draw(spelled(thing))
    assume(len(text) < 500)
    assert parse(text).spec == thing.spec
    assert parse(thing.spec).spec == thing.spec


@pytest.mark.parametrize(
    "same",
    [
        [FedEAS(), FedEAS(12), FedEAS(beta=12.0, gamma=0.5), FedEAS(np.float64(12)), parse_policy("FedEAS(beta=12.)")],
        [FedEAS(1), FedEAS(1.0), FedEAS(np.int64(1))],
        [FedEAS(gamma=0), FedEAS(gamma=-0.0)],
        [Uniform(FedEAS(2)), Uniform(FedEAS(2.0)), parse_policy("uniform(budget=FEDEAS(gamma=.5, beta=2.))")],
        [parse_algorithm("fedprox(mu=1)"), ALGORITHMS["fedprox"](mu=np.float64(1)), ALGORITHMS["fedprox"](mu=1.0)],
        [parse_algorithm("scaffold(option=i)"), ALGORITHMS["scaffold"](option="I")],
    ],
)
def test_equal_numbers_print_alike(same):
    assert len({each.spec for each in same}) == 1


def test_words_that_are_names_can_also_be_text():
    for text in ("gaussian", "true"):
        assert parse_generator(Diffusion(weights=text).spec) == Diffusion(weights=text)


@pytest.mark.parametrize("number", ["1__0", "1_", "9" * 400])
def test_impossible_numbers_are_refused(number):
    with pytest.raises(SpecError, match="fedeas"):
        parse_policy(f"fedeas(beta={number})")


def test_hyperparameters_are_those_of_the_algorithms():
    assert list(ALGORITHMS) == list(HYPERPARAMETERS)
    for name, algorithm in ALGORITHMS.items():
        plain = parse_hyperparameters(name)
        assert isinstance(parse_algorithm(name), type(plain))
        assert fields(plain) == fields(algorithm)
        assert plain.spec == algorithm().spec
    with pytest.raises(SpecError, match="unknown algorithm 'fedavgg'"):
        parse_hyperparameters("fedavgg")
