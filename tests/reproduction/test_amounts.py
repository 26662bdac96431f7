"""Figures of amounts: every artist is where the numbers are, and missing runs are noted, not drawn."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib import colors
from pictures import svg_of, texts

from reproduction.figures import style as plots
from reproduction.figures.runs import Bar, Sweep, allocation_figure, budget_figure, removal_figure

WINDOW = "rounds 55-60"
TOTALS = [4000, 9000, 13000]
BARS = [Bar("FedAvg", 54.3, 1.2, 55.5), Bar("Missing-only", None, None, 70.2), Bar("FedEAS", 70.9, 0.4, 71.7)]
FEDEAS = [Bar("FedEAS", 65.0, 0.4, 66.1), Bar("FedEAS", 68.0, None, 69.4), Bar("FedEAS", 71.0, 0.3, 71.7)]
UNIFORM = [Bar("Uniform", 59.0, 0.5, 60.3), Bar("Uniform", None, None, 62.0), Bar("Uniform", None, None, 64.4)]
SWEEPS = [Sweep("FedEAS", TOTALS, FEDEAS), Sweep("Uniform", TOTALS, UNIFORM)]
FEDAVG, FULL = Bar("FedAvg", 54.9, 0.8, 55.5), Bar("Full-Balance", 79.0, 0.3, 79.9)
UNKNOWN = Bar("FedAvg", None), Bar("Full-Balance", None)
REMOVALS = [(0.0, FEDAVG), (57.6, Bar("Uniform", 56.5, 1.5, 58.8)), (78.2, Bar("Greedy", 60.3))]


def hollow(bar):
    return bar.get_facecolor() == colors.to_rgba("white")


def without_paper(sweep):
    return sweep._replace(bars=[bar._replace(paper=None) for bar in sweep.bars])


def not_run(sweep):
    return sweep._replace(bars=[bar._replace(ours=None, spread=None) for bar in sweep.bars])


def test_bars_are_as_high_as_the_numbers():
    axes = allocation_figure(BARS, "one total", WINDOW).axes[0]
    ours = [bar.get_height() for bar in axes.patches if not hollow(bar)]
    paper = [bar.get_height() for bar in axes.patches if hollow(bar)]
    assert ours == [54.3, 70.9]
    assert paper == [55.5, 70.2, 71.7]


def test_bars_are_side_by_side():
    spans = sorted(
        (bar.get_x(), bar.get_x() + bar.get_width()) for bar in allocation_figure(BARS, "one", WINDOW).axes[0].patches
    )
    assert all(right <= left for (_, right), (left, _) in pairwise(spans))


def test_error_bars_are_the_spread():
    axes = allocation_figure([Bar("FedEAS", 70.0, 1.5), Bar("Uniform", 60.0, None)], "one total", WINDOW).axes[0]
    spans = [(float(path[0, 1]), float(path[1, 1])) for drawn in axes.collections for path in drawn.get_segments()]
    assert spans == [(68.5, 71.5)]


def test_a_bar_that_was_not_run_is_an_empty_place_that_says_so():
    figure = allocation_figure(BARS, "one total", WINDOW)
    (note,) = [text for text in figure.axes[0].texts if text.get_text() == "not run"]
    solid = [bar for bar in figure.axes[0].patches if not hollow(bar)]
    assert not any(bar.get_x() <= note.xy[0] <= bar.get_x() + bar.get_width() for bar in figure.axes[0].patches)
    assert solid[0].get_x() < note.xy[0] < solid[1].get_x()


def test_bars_without_the_papers_numbers_have_no_hollow_ones_and_no_legend():
    figure = allocation_figure([bar._replace(paper=None) for bar in BARS], "one total", WINDOW)
    assert not any(hollow(bar) for bar in figure.axes[0].patches)
    assert not figure.legends


def test_the_sweep_passes_through_its_points_and_has_gaps_where_it_was_not_run():
    figure = budget_figure(SWEEPS, FEDAVG, FULL, "sweep", WINDOW)
    drawn = {
        (one.get_color(), one.get_linestyle()): one.get_ydata()
        for one in figure.axes[0].lines
        if len(one.get_xdata()) == 3
    }
    assert list(drawn[plots.BLUE, "-"]) == [65.0, 68.0, 71.0]
    assert list(drawn[plots.BLUE, "--"]) == [66.1, 69.4, 71.7]
    assert list(np.isnan(drawn[plots.ORANGE, "-"])) == [False, True, True]
    assert "Uniform: 1 of 3 run" in texts(figure)


def test_references_are_horizontal_lines_with_their_numbers():
    figure = budget_figure(SWEEPS, FEDAVG, FULL._replace(ours=None), "sweep", WINDOW)
    levels = {
        one.get_ydata()[0]: one.get_linestyle() for one in figure.axes[0].lines if list(one.get_xdata()) == [0, 1]
    }
    assert levels == {54.9: "-", 55.5: "--", 79.9: "--"}
    assert {"FedAvg 54.90", "FedAvg 55.50 (paper)", "Full-Balance: not run"} <= set(texts(figure))


def test_a_sweep_without_the_papers_numbers_has_no_dashed_lines():
    figure = budget_figure(
        [without_paper(each) for each in SWEEPS],
        FEDAVG._replace(paper=None),
        Bar("Full-Balance", 79),
        "sweep",
        WINDOW,
    )
    assert not any(one.get_linestyle() == "--" for one in figure.axes[0].lines)
    assert not any("paper" in text for text in texts(figure))


def test_a_sweep_that_was_not_run_shows_the_papers_and_says_so():
    references = FEDAVG._replace(ours=None), FULL._replace(ours=None)
    figure = budget_figure([not_run(each) for each in SWEEPS], *references, "sweep", WINDOW)
    assert {one.get_linestyle() for one in figure.axes[0].lines} == {"--"}
    assert {"not run", "FedEAS: not run", "Uniform: not run", "FedAvg: not run"} <= set(texts(figure))


def test_removals_are_dots_with_their_spread_and_diamonds_for_the_paper():
    figure = removal_figure(REMOVALS, "one total", WINDOW)
    marks = {(one.get_marker(), *one.get_xydata()[0]) for one in figure.axes[0].lines if one.get_marker() in "oD"}
    ours = {("o", 0.0, 54.9), ("o", 57.6, 56.5), ("o", 78.2, 60.3)}
    assert marks == ours | {("D", 0.0, 55.5), ("D", 57.6, 58.8)}
    spans = [path[:, 1].tolist() for drawn in figure.axes[0].collections for path in drawn.get_segments()]
    assert np.allclose(spans, [[54.1, 55.7], [55.0, 58.0]])
    named = {"FedAvg 54.90", "Uniform 56.50", "Greedy 60.30"}
    assert named | {"ours, ± deviation over seeds", "the paper"} <= set(texts(figure))


def test_removals_that_were_not_run_are_named_and_have_no_dot():
    figure = removal_figure([*REMOVALS, (74.8, Bar("FedEAS", None))], "one total", WINDOW)
    assert "not run: FedEAS" in texts(figure)
    assert not any(one.get_xdata()[0] == 74.8 for one in figure.axes[0].lines)


NOTHING = {
    "no removals": lambda: removal_figure([], "one total", WINDOW),
    "removals without numbers": lambda: removal_figure([(74.8, Bar("FedEAS", None))], "one total", WINDOW),
    "no bars": lambda: allocation_figure([], "one total", WINDOW),
    "bars without numbers": lambda: allocation_figure([Bar("FedEAS", None)], "one total", WINDOW),
    "no sweeps": lambda: budget_figure([], *UNKNOWN, "sweep", WINDOW),
    "sweeps without numbers": lambda: budget_figure([not_run(without_paper(SWEEPS[0]))], *UNKNOWN, "sweep", WINDOW),
}


@pytest.mark.parametrize("draw", NOTHING.values(), ids=NOTHING)
def test_a_figure_without_data_says_so(draw, tmp_path):
    assert "not run" in svg_of(draw(), tmp_path)


SOMETHING = {
    "removal": lambda: removal_figure(REMOVALS, "one total", WINDOW),
    "allocation": lambda: allocation_figure(BARS, "one total", WINDOW),
    "budget": lambda: budget_figure(SWEEPS, FEDAVG, FULL, "sweep", WINDOW),
}


@pytest.mark.parametrize("draw", SOMETHING.values(), ids=SOMETHING)
def test_the_axis_names_the_rounds_that_accuracy_covers(draw):
    assert draw().axes[0].get_ylabel().endswith("rounds 55-60")


@pytest.mark.parametrize("draw", SOMETHING.values(), ids=SOMETHING)
def test_the_same_numbers_give_the_same_bytes(draw, tmp_path):
    assert svg_of(draw(), tmp_path) == svg_of(draw(), tmp_path)
