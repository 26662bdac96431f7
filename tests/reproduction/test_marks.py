"""Looks of methods: in the paper's figures a policy has its own colour; pages use all colours before dashes."""

from fedeas.views.figures import Look, looks_of
from reproduction.figures import style as plots
from reproduction.figures.style import looks_by_name


def test_a_policy_has_its_usual_colour_by_either_name():
    assert looks_of(["fedeas", "no-generation"]) == [Look(plots.BLUE), Look(plots.GREY)]
    assert looks_by_name(["FedEAS (beta = 12)", "FedAvg"]) == {
        "FedEAS (beta = 12)": Look(plots.BLUE),
        "FedAvg": Look(plots.GREY),
    }


def test_two_methods_of_one_policy_look_different():
    assert looks_of(["uniform", "uniform"]) == [Look(plots.ORANGE), Look(plots.PURPLE)]
    assert len(set(looks_by_name(["FedEAS (beta = 8)", "FedEAS (beta = 12)", "FedEAS (beta = 8)"]).values())) == 2


def test_pages_use_all_colours_before_dashes():
    looks = looks_of([f"policy-{number}" for number in range(24)])
    assert len(set(looks)) == 24
    assert [look.dash for look in looks] == ["solid"] * 8 + ["dashed"] * 8 + ["dotted"] * 8
    assert len({look.colour for look in looks[:8]}) == 8


def test_figures_of_the_paper_use_a_policys_colour_only_for_it():
    looks = looks_by_name([*"abcdefghi", "FedEAS"])
    assert len(set(looks.values())) == 10
    assert not {look.colour for name, look in looks.items() if name != "FedEAS"} & set(plots.USUAL.values())
