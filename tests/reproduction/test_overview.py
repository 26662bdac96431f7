"""The summary figure: a marker for each number at its place, and no overlapping text."""

from itertools import combinations

import pytest
from pictures import svg_of, texts

from fedeas.runs.comparison import Measured
from reproduction.figures.runs import Spot, overview, overview_figure
from reproduction.methods import FEDEAS
from reproduction.published import EXAMPLE, published, setting
from reproduction.results import Results
from reproduction.studies import HEADLINE, study, with_seeds

WINDOW = "rounds 181-200"
SPOTS = [
    Spot("none", "FedAvg", Measured(55.0, 2.0, 3), None, 50.2),
    Spot("β = 12", "Uniform", None, Measured(71.0, None, 1), 58.8),
    Spot("β = 12", "FedEAS", Measured(73.0, 0.5, 3), Measured(74.0, None, 1), 72.6),
    Spot("β = 12", "Greedy"),
    Spot("full", "Full-Balance", None, None, 79.3),
]


def heights(axes, marker):
    return sorted(float(line.get_ydata()[0]) for line in axes.lines if line.get_marker() == marker)


def places(axes, marker):
    return [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == marker]


def test_every_number_has_its_marker():
    (axes,) = overview_figure({"here": SPOTS}, WINDOW).axes
    assert heights(axes, "o") == [55.0, 73.0]
    assert heights(axes, "s") == [71.0, 74.0]
    assert heights(axes, "D") == [50.2, 58.8, 72.6, 79.3]


def test_budgets_grow_to_the_right_and_markers_of_a_policy_are_side_by_side():
    (axes,) = overview_figure({"here": SPOTS}, WINDOW).axes
    assert places(axes, "D") == sorted(places(axes, "D"))
    ours, theirs = places(axes, "o")[1], places(axes, "D")[2]
    assert 0 < theirs - ours < 1


def test_protocols_without_runs_have_no_legend_key():
    figure = overview_figure({"here": SPOTS}, WINDOW)
    assert "Greedy" not in texts(figure)
    assert {"FedAvg", "Uniform", "FedEAS", "Full-Balance"} <= set(texts(figure))
    alone = overview_figure({"here": [SPOTS[-1]]}, WINDOW)
    assert not any("ours" in text for text in texts(alone))


def test_the_labels_of_many_budgets_do_not_overlap():
    spots = [Spot(f"β = {beta}\n{beta * 1100:,}", name, None, None, 60.0) for beta in range(4, 32, 4) for name in "ab"]
    figure = overview_figure({"one": spots, "other": spots}, WINDOW)
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_without_runs_only_the_paper_is_shown(tmp_path):
    (axes,) = overview(Results([tmp_path])).axes
    assert axes.get_title(loc="left") == setting(HEADLINE).title
    printed = [published().printed(name, setting(HEADLINE)) for name in published().accuracy]
    assert set(heights(axes, "D")) <= {float(number) for number in printed if number is not None}
    assert heights(axes, "o") == heights(axes, "s") == []


@pytest.mark.parametrize(("protocol", "marker"), [("clean", "o"), ("paper", "s")])
def test_runs_of_a_protocol_have_its_marker_in_the_panel_of_their_setting(protocol, marker, finished, tmp_path):
    for run, value in zip(
        with_seeds(study("full", protocol).config(setting(EXAMPLE), FEDEAS), 2), (0.7, 0.8), strict=True
    ):
        finished(run, accuracy=value)
    (axes,) = overview(Results([tmp_path])).axes
    assert axes.get_title(loc="left") == setting(EXAMPLE).title
    assert heights(axes, marker) == [pytest.approx(75)]


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    one, other = (svg_of(overview_figure({"here": SPOTS}, WINDOW), tmp_path) for _ in range(2))
    assert one == other
