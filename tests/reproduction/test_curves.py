"""Figures over rounds: every artist is where the numbers are, and missing runs are noted, not drawn."""

import numpy as np
import pytest
from pictures import svg_of, texts

from reproduction.figures import style as plots
from reproduction.figures.runs import Line, curves_figure

ROUNDS = list(range(1, 41))


def by_round(rounds, accuracy):
    return dict(zip(rounds, accuracy, strict=True))


def curve(top, speed, seed):
    noise = np.random.default_rng(seed).normal(0, 0.02, len(ROUNDS))
    return by_round(ROUNDS, list(np.clip(top * (1 - np.exp(-np.array(ROUNDS) / speed)) + noise, 0, 1)))


def line(name, top=0.8, speed=8, seeds=3, paper=None):
    return Line(name, [curve(top, speed, seed) for seed in range(seeds)], paper)


def verticals(axes):
    return [drawn.get_xdata()[0] for drawn in axes.lines if drawn.get_linestyle() == ":"]


def diamonds(axes):
    return [tuple(map(float, drawn.get_xydata()[0])) for drawn in axes.lines if drawn.get_marker() == "D"]


def test_dotted_lines_are_where_the_mean_first_reaches_the_threshold():
    lines = [line("FedEAS", speed=6), line("Missing-only", speed=10)]
    expected = [
        ROUNDS[int(np.argmax(np.mean([list(each.values()) for each in method.curves], axis=0) >= 0.7))]
        for method in lines
    ]
    assert expected[0] < expected[1]
    figure = curves_figure({"here": lines}, 0.7)
    assert verticals(figure.axes[0]) == expected
    assert f"FedEAS: round {expected[0]}" in texts(figure)


def test_the_mean_and_not_a_single_seed_decides():
    curves = [by_round([1, 2, 3], [0.9, 0.5, 0.8]), by_round([1, 2, 3], [0.1, 0.6, 0.8])]
    figure = curves_figure({"here": [Line("FedEAS", curves)]}, 0.7)
    assert verticals(figure.axes[0]) == [3]


def test_a_mean_at_the_threshold_itself_reaches_it():
    figure = curves_figure({"here": [Line("FedEAS", [by_round([5], [0.7])] * 3)]}, 0.7)
    assert verticals(figure.axes[0]) == [5]


def test_a_threshold_that_is_never_reached_has_no_vertical_and_the_legend_says_so():
    figure = curves_figure({"here": [line("FedEAS", top=0.5, paper=30), line("Uniform", top=0.4)]}, 0.7)
    assert verticals(figure.axes[0]) == []
    assert {"FedEAS: not reached (paper: 30)", "Uniform: not reached"} <= set(texts(figure))


def test_the_papers_rounds_are_diamonds_on_the_threshold():
    figure = curves_figure({"here": [line("FedEAS", paper=30), line("Missing-only", paper=38)]}, 0.7)
    assert diamonds(figure.axes[0]) == [(30, 0.7), (38, 0.7)]
    assert "the paper's round" in texts(figure)


def test_without_the_papers_rounds_there_is_no_mention_of_the_paper():
    figure = curves_figure({"here": [line("FedEAS")]}, 0.7)
    assert diamonds(figure.axes[0]) == []
    assert not any("paper" in text for text in texts(figure))


def test_a_panel_that_was_not_run_says_so_beside_one_that_was():
    panels = {"first": [Line("FedEAS", [], 30)], "second": [line("FedEAS", paper=33)]}
    figure = curves_figure(panels, 0.7)
    empty, full = figure.axes
    assert "not run" in [text.get_text() for text in empty.texts]
    assert "not run" not in [text.get_text() for text in full.texts]
    assert "FedEAS: not run (paper: 30)" in texts(figure)
    assert empty.get_xlim() == full.get_xlim()


def test_the_band_spans_the_extremes_and_one_seed_has_none():
    method = line("FedEAS")
    many, one = (curves_figure({"here": [method._replace(curves=method.curves[:n])]}, 0.7) for n in (3, 1))
    (band,) = many.axes[0].collections
    values = np.array([list(each.values()) for each in method.curves])
    corners = {tuple(np.round(corner, 9)) for corner in band.get_paths()[0].vertices}
    for edge in (values.min(axis=0), values.max(axis=0)):
        assert set(zip(ROUNDS, np.round(edge, 9), strict=True)) <= corners
    assert len(one.axes[0].collections) == 0


def test_an_interrupted_seed_does_not_distort_the_mean():
    curves = [by_round([1, 2, 3], [0.2, 0.4, 0.9]), by_round([1, 2], [0.4, 0.6])]
    axes = curves_figure({"here": [Line("FedEAS", curves)]}, 0.7).axes[0]
    mean = next(drawn for drawn in axes.lines if drawn.get_color() == plots.BLUE)
    assert list(mean.get_xdata()) == [1, 2]
    assert mean.get_ydata() == pytest.approx([0.3, 0.5])


def test_a_method_has_its_own_colour_in_every_panel():
    panels = {"first": [line("Uniform"), line("SCAFFOLD")], "second": [line("SCAFFOLD"), line("Uniform")]}
    first, second = curves_figure(panels, 2.0).axes
    solid = [[drawn.get_color() for drawn in axes.lines if drawn.get_linestyle() == "-"] for axes in (first, second)]
    assert solid[0] == solid[1][::-1]
    assert solid[0][0] == plots.ORANGE


def test_a_curve_of_one_round_is_a_dot():
    _, drawn = curves_figure({"short": [Line("FedEAS", [by_round([1], [0.2])])]}, 0.7).axes[0].lines
    assert drawn.get_marker() == "o"


NOTHING = {
    "no panels": lambda: curves_figure({}, 0.7),
    "a panel without lines": lambda: curves_figure({"here": []}, 0.7),
    "lines without curves": lambda: curves_figure({"here": [Line("FedEAS", [])]}, 0.7),
    "a curve without rounds": lambda: curves_figure({"here": [Line("FedEAS", [by_round([], [])])]}, 0.7),
}


@pytest.mark.parametrize("draw", NOTHING.values(), ids=NOTHING)
def test_a_figure_without_data_says_so(draw, tmp_path):
    assert "not run" in svg_of(draw(), tmp_path)


SOMETHING = {
    "convergence": lambda: curves_figure({"a": [line("FedEAS", paper=9), line("MOON")], "b": [line("MOON")]}, 0.7),
    "one panel": lambda: curves_figure({"ours": [line("FedEAS"), line("MOON", top=0.6)]}, 0.7),
}


@pytest.mark.parametrize("draw", SOMETHING.values(), ids=SOMETHING)
def test_the_same_numbers_give_the_same_bytes(draw, tmp_path):
    assert svg_of(draw(), tmp_path) == svg_of(draw(), tmp_path)


def test_titles_of_neighbouring_panels_do_not_overlap():
    title = "CIFAR-100, K=100, alpha=0.05 (clean protocol, start scratch)"
    figure = curves_figure({title: [line("FedEAS")], f"{title} ": [line("FedEAS")]}, 0.7)
    figure.draw_without_rendering()
    left, right = (axes._left_title.get_window_extent() for axes in figure.axes)
    assert not left.overlaps(right)
    assert right.x1 <= figure.bbox.x1
