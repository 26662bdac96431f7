import pytest

from fedeas import FedEAS, Greedy, SpecError, Uniform, parse_policy


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
        ("", "expected a policy name at the end"),
        ("fedavg", "unknown policy 'fedavg'; known are fedeas, uniform"),
        ("fedeas(", "expected a field name at the end"),
        ("fedeas(beta)", "expected '=', not ')'"),
        ("fedeas(beta=)", "expected a value, not ')'"),
        ("fedeas(beta=12", "expected ',' at the end"),
        ("fedeas(beta=12))", "unexpected ')'"),
        ("fedeas(beta=12) x", "unexpected 'x'"),
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
        ("x" * 501, "policy spec of 501 characters"),
    ],
)
def test_malformed_specs_are_refused_in_one_line(text, message):
    with pytest.raises(SpecError) as caught:
        parse_policy(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
