"""Figures of levels: every artist is where the numbers are, and missing runs are noted, not drawn."""

import numpy as np
import pytest
from pictures import svg_of, texts

from reproduction.figures import style as plots
from reproduction.figures.runs import Mark, levels_figure

WINDOW = "rounds 55-60"
TOTALS = [4000, 9000, 13000]
FEDAVG = Mark("FedAvg", 0.0, 54.9, 0.8, 55.5)
BARS = [FEDAVG, Mark("Missing-only", 1.0, None, None, 70.2), Mark("FedEAS", 2.0, 70.9, None, 71.7)]
FEDEAS = [Mark("FedEAS", total, 65.0 + 3 * place, 0.4, 66.1) for place, total in enumerate(TOTALS)]
UNIFORM = [Mark("Uniform", total, ours, 0.5, 60.3) for total, ours in zip(TOTALS, (59.0, None, 61.0), strict=True)]
EVERYWHERE = [Mark("FedAvg", None, 54.9, 0.8, 55.5), Mark("Full-Balance", None, None, None, 79.9)]
SWEEP = [*FEDEAS, *UNIFORM, *EVERYWHERE]


def bars(marks=BARS, title="one total"):
    return levels_figure({title: marks}, "", WINDOW, [mark.name for mark in marks])


def sweep(marks=SWEEP):
    return levels_figure({"sweep": marks}, "samples", WINDOW)


def without_paper(marks):
    return [mark._replace(paper=None) for mark in marks]


def not_run(marks):
    return [mark._replace(ours=None, spread=None) for mark in marks]


def shown(axes, marker):
    """The places and heights of markers."""
    drawn = [line.get_xydata() for line in axes.lines if line.get_marker() == marker]
    return {tuple(map(float, point)) for points in drawn for point in points if not np.isnan(point).any()}


def test_dots_are_ours_and_diamonds_the_papers_beside_them():
    (axes,) = bars().axes
    assert {height for _, height in shown(axes, "o")} == {54.9, 70.9}
    assert {height for _, height in shown(axes, "D")} == {55.5, 70.2, 71.7}
    for place, name in enumerate(mark.name for mark in BARS):
        assert axes.get_xticklabels()[place].get_text() == name
        assert {round(at) for at, height in shown(axes, "D") if height == BARS[place].paper} == {place}
    assert not {at for at, _ in shown(axes, "o")} & {at for at, _ in shown(axes, "D")}


def test_error_bars_are_the_spread():
    (axes,) = bars([Mark("FedEAS", 0.0, 70.0, 1.5), Mark("Uniform", 1.0, 60.0)]).axes
    spans = [(float(path[0, 1]), float(path[1, 1])) for drawn in axes.collections for path in drawn.get_segments()]
    assert spans == [(68.5, 71.5), (60.0, 60.0)]


def test_what_was_not_run_is_an_empty_place_and_the_legend_says_so():
    figure = bars()
    assert {round(at) for at, _ in shown(figure.axes[0], "o")} == {0, 2}
    assert "Missing-only: not run" in texts(figure)
    assert "not run" not in texts(figure)  # that is for a panel without any run


def test_every_setting_has_a_panel_and_a_method_one_colour():
    figure = levels_figure({"here": BARS, "there": BARS[::-1]}, "", WINDOW, ["a", "b", "c"])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["here", "there"]
    colours = [{line.get_color() for line in axes.lines} for axes in figure.axes]
    assert colours[0] == colours[1] >= {plots.BLUE, plots.GREY}


def test_without_the_papers_numbers_nothing_mentions_the_paper():
    for figure in (bars(without_paper(BARS)), sweep(without_paper(SWEEP))):
        assert not shown(figure.axes[0], "D")
        assert not any("paper" in text for text in texts(figure))


def test_the_sweep_passes_through_its_points_and_has_gaps_where_it_was_not_run():
    figure = sweep()
    drawn = {line.get_color(): line for line in figure.axes[0].lines if line.get_marker() == "o"}
    assert list(drawn[plots.BLUE].get_ydata()) == [65.0, 68.0, 71.0]
    assert list(np.isnan(drawn[plots.ORANGE].get_ydata())) == [False, True, False]
    assert all(drawn[colour].get_linestyle() == "-" for colour in (plots.BLUE, plots.ORANGE))
    assert {"Uniform: 2 of 3 run", "FedEAS", "Full-Balance: not run"} <= set(texts(figure))


def test_levels_without_a_place_are_horizontal_lines():
    (axes,) = sweep().axes
    levels = {line.get_ydata()[0]: line.get_linestyle() for line in axes.lines if list(line.get_xdata()) == [0, 1]}
    assert {level: dash for level, dash in levels.items() if not np.isnan(level)} == {54.9: "-", 55.5: "--", 79.9: "--"}


NOTHING = {"bars": lambda: bars(without_paper(not_run(BARS))), "sweep": lambda: sweep(not_run(SWEEP))}


@pytest.mark.parametrize("draw", NOTHING.values(), ids=NOTHING)
def test_a_figure_without_runs_says_so(draw, tmp_path):
    assert "not run<" in svg_of(draw(), tmp_path)


@pytest.mark.parametrize("draw", [bars, sweep])
def test_the_axis_names_the_rounds_that_accuracy_covers(draw):
    assert draw().axes[0].get_ylabel().endswith("rounds 55-60")


@pytest.mark.parametrize("draw", [bars, sweep])
def test_the_same_numbers_give_the_same_bytes(draw, tmp_path):
    assert svg_of(draw(), tmp_path) == svg_of(draw(), tmp_path)
