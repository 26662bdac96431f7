import pytest

from fedeas import FedEAS, Greedy, SpecError, Uniform, parse_policy
from fedeas.planning.policies import policy_spec


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("fedeas", FedEAS()),
        ("FedEAS()", FedEAS()),
        ("fedeas( beta = 8 , fill=all )", FedEAS(8, fill="all")),
        ("fedeas(beta=1e1,entropy=false)", FedEAS(10, entropy=False)),
        ("greedy(budget=226_783)", Greedy(budget=226783)),
        ("uniform(budget=fedeas)", Uniform(budget=FedEAS())),
        ("uniform(budget=fedeas(beta=.5, fill=below-mean))", Uniform(budget=FedEAS(0.5))),
    ],
)
def test_specs_are_read(text, policy):
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a policy name"),
        ("fedavg", "unknown policy 'fedavg'; known are fedeas, uniform"),
        ("fedeas(", "'(' was never closed at '('; write name(field=value, ...)"),
        ("fedeas(beta)", "cannot read 'fedeas(beta)'; write name(field=value, ...)"),
        ("fedeas(beta=)", "; write name(field=value, ...)"),
        ("fedeas(beta=12", "'(' was never closed at '(beta=12'"),
        ("fedeas(beta=12))", "unmatched ')' at ')'"),
        ("fedeas(beta=12) x", "invalid syntax at 'x'"),
        ("fedeas(beta=1, beta=2)", "'beta' is given twice"),
        ("fedeas(bета=1)", "cannot read"),
        ("fedeas(speed=1)", "fedeas has no field 'speed'; it has beta, gamma, entropy, fill"),
        ("no-generation(x=1)", "no-generation has no field 'x'; it has none"),
        ("fedeas(beta=0)", "beta must be a finite number above 0, not 0"),
        ("fedeas(beta=fast)", "beta must be a finite number above 0, not 'fast'"),
        ("uniform", "uniform needs budget, as in uniform(budget=...)"),
        ("uniform(budget=-3)", "budget must be 0 or more, not -3"),
        ("uniform(budget=2.5)", "budget must be a whole number"),
        ("__import__('os')", 'cannot read "__import__'),
        ("fedeas(beta=1_)", "cannot read the number '1_'"),
        ("fedeas(beta=0x10)", "cannot read '0x10)'"),
        ("fedeas(beta=1 + 2)", "cannot read '+ 2)'"),
        ("fedeas # beta", "cannot read '# beta'"),
        ("fedeas\0", "cannot read 'fedeas"),
        ("fedeas(fill=all(x=1))", "all takes no arguments here"),
        ("(" * 250 + "fedeas" + ")" * 240, "too many nested parentheses"),
        ("uniform(budget=" * 101 + "3" + ")" * 101, "too many nested parentheses"),
        ("x" * 100_001, "policy spec of 100001 characters"),
    ],
)
def test_malformed_specs_are_refused_in_one_line(text, message):
    with pytest.raises(SpecError) as caught:
        parse_policy(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deep_specs_are_read_back():
    deep = "uniform(budget=" * 100 + "3" + ")" * 100
    assert parse_policy(deep).spec == deep


def test_an_error_does_not_repeat_a_whole_long_spec():
    with pytest.raises(SpecError) as caught:
        parse_policy(f'pool(distinct=3, fill="{"half " * 10_000}")')
    assert "fill must be 'mean' or 'max'" in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_a_spec_of_many_words_looks_through_the_installed_packages_once(monkeypatch):
    looked = []
    monkeypatch.setattr("fedeas.core.spec.installed", lambda kind: looked.append(kind) or {})
    words = ", ".join(f"a{number}=b{number}" for number in range(40))
    with pytest.raises(SpecError, match="no field 'a0'"):
        policy_spec(f"fedeas({words})")
    assert looked == ["policy"]
