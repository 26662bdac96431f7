"""The figure of gains: a mark for each experiment at its mean, and an interval for each method."""

from dataclasses import replace

import pytest
from pictures import texts
from test_answers import experiment

from reproduction.answers import METHODS, mean_of_experiments, overall
from reproduction.figures.runs import REAL, USES, gains_figure

EXPERIMENTS = [
    experiment("one", "KL"),
    replace(experiment("other", "KL", level=2.0), places_real_images=True),
    experiment("other", "Uniform", level=-1.0),
]


def marks(axes):
    """Where single marks stand, whether they are open, and in which row."""
    shown = [line for line in axes.lines if line.get_marker() in set("osD^vP")]
    return {
        (float(line.get_xdata()[0]), line.get_markerfacecolor() == "white", round(float(line.get_ydata()[0])))
        for line in shown
    }


def rows(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_each_experiment_has_a_mark_at_its_mean_in_the_row_of_the_method():
    (axes,) = gains_figure(EXPERIMENTS).axes
    assert rows(axes) == [name for name in USES if name in ("Uniform", "KL")]
    wanted = {
        (each.compared[0].difference.mean, each.places_real_images, rows(axes).index(each.compared[0].method))
        for each in EXPERIMENTS
    }
    found = marks(axes)
    assert len(found) == len(wanted)
    assert {at[1:] for at in found} == {at[1:] for at in wanted}
    assert sorted(at[0] for at in found) == pytest.approx(sorted(at[0] for at in wanted))


def test_the_interval_is_that_of_the_mean_over_experiments():
    (axes,) = gains_figure(EXPERIMENTS).axes
    low, high = mean_of_experiments(EXPERIMENTS, "KL").interval
    (bar,) = axes.collections  # Uniform has one experiment, and so no interval
    ((start, _), (end, _)) = bar.get_segments()[0]
    assert (start, end) == pytest.approx((low, high))


def test_experiments_without_all_their_runs_and_under_the_papers_protocol_are_left_out():
    unfinished = experiment("one", "KL", seeds=2)
    others = [replace(each, protocol="paper") for each in EXPERIMENTS]
    assert not overall(unfinished)["KL"].verdict.is_given
    (axes,) = gains_figure([unfinished, *others]).axes
    assert not marks(axes)


def test_methods_that_give_clients_no_images_have_no_row():
    assert {name for name in METHODS if name not in USES} == {
        "FedAvg", "FedAvg, balanced softmax",
    }  # fmt: skip


def test_nothing_is_cut_off_and_open_marks_are_explained_where_there_are_any():
    figure = gains_figure(EXPERIMENTS)
    figure.draw_without_rendering()
    taken, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(taken.x0, taken.y0, width - taken.x1, height - taken.y1) >= 0
    assert any(REAL in text for text in texts(figure))
    assert not any(REAL in text for text in texts(gains_figure(EXPERIMENTS[::2])))
