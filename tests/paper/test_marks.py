"""How methods look: in the paper's figures a policy's colour is its own, on pages all colours go before dashes."""

from fedeas.paper.figures.style import looks_by_name
from fedeas.plotting import figures as plots
from fedeas.plotting.figures import Look, looks_of


def test_a_policy_has_its_usual_colour_by_either_name():
    assert looks_of(["fedeas", "no-generation"]) == [Look(plots.BLUE), Look(plots.GREY)]
    assert looks_by_name(["FedEAS (beta = 12)", "FedAvg"]) == {
        "FedEAS (beta = 12)": Look(plots.BLUE),
        "FedAvg": Look(plots.GREY),
    }


def test_the_second_of_a_policy_is_told_apart_from_the_first():
    assert looks_of(["uniform", "uniform"]) == [Look(plots.ORANGE), Look(plots.PURPLE)]
    assert len(set(looks_by_name(["FedEAS (beta = 8)", "FedEAS (beta = 12)", "FedEAS (beta = 8)"]).values())) == 2


def test_pages_use_up_all_colours_before_they_dash():
    looks = looks_of([f"policy-{number}" for number in range(24)])
    assert len(set(looks)) == 24
    assert [look.dash for look in looks] == ["solid"] * 8 + ["dashed"] * 8 + ["dotted"] * 8
    assert len({look.colour for look in looks[:8]}) == 8


def test_figures_of_the_paper_lend_no_policys_colour():
    looks = looks_by_name([*"abcdefghi", "FedEAS"])
    assert len(set(looks.values())) == 10
    assert not {look.colour for name, look in looks.items() if name != "FedEAS"} & set(plots.USUAL.values())
