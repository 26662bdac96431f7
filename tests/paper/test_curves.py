"""Figures of results: every artist stands where the numbers say, and what is missing is said, not drawn."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.text import Text

from fedeas import plots
from fedeas.paper.curves import (
    Bar,
    Course,
    Line,
    Removal,
    Sweep,
    allocation_figure,
    budget_figure,
    convergence_figure,
    course_figure,
    removal_figure,
)

ROUNDS = list(range(1, 41))
TOTALS = [4000, 9000, 13000]
BARS = [Bar("FedAvg", 54.3, 1.2, 55.5), Bar("Missing-only", None, None, 70.2), Bar("FedEAS", 70.9, 0.4, 71.7)]
SWEEPS = [
    Sweep("FedEAS", TOTALS, [65.0, 68.0, 71.0], [0.4, None, 0.3], [66.1, 69.4, 71.7]),
    Sweep("Uniform", TOTALS, [59.0, None, None], [0.5, None, None], [60.3, 62.0, 64.4]),
]
FEDAVG, FULL = Bar("FedAvg", 54.9, 0.8, 55.5), Bar("Full-Balance", 79.0, 0.3, 79.9)
UNKNOWN = Bar("FedAvg", None), Bar("Full-Balance", None)


def course(top, speed, seed):
    noise = np.random.default_rng(seed).normal(0, 0.02, len(ROUNDS))
    return Course(ROUNDS, list(np.clip(top * (1 - np.exp(-np.array(ROUNDS) / speed)) + noise, 0, 1)))


def line(name, top=0.8, speed=8, seeds=3, paper=None):
    return Line(name, [course(top, speed, seed) for seed in range(seeds)], paper)


def texts(figure):
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


def verticals(axes):
    return [drawn.get_xdata()[0] for drawn in axes.lines if drawn.get_linestyle() == ":"]


def diamonds(axes):
    return [tuple(map(float, drawn.get_xydata()[0])) for drawn in axes.lines if drawn.get_marker() == "D"]


def hollow(bar):
    return bar.get_facecolor() == colors.to_rgba("white")


def without_paper(sweep):
    return sweep._replace(paper=[None] * len(TOTALS))


def not_run(sweep):
    return sweep._replace(ours=[None] * len(TOTALS), spread=[None] * len(TOTALS))


def test_dotted_lines_stand_where_the_mean_first_reaches_the_threshold():
    lines = [line("FedEAS", speed=6), line("Missing-only", speed=10)]
    expected = [
        ROUNDS[int(np.argmax(np.mean([each.accuracy for each in method.courses], axis=0) >= 0.7))] for method in lines
    ]
    assert expected[0] < expected[1]
    figure = convergence_figure({"here": lines}, 0.7)
    assert verticals(figure.axes[0]) == expected
    assert {f"round {number}" for number in expected} <= set(texts(figure))
    assert f"FedEAS: round {expected[0]}" in texts(figure)


def test_the_mean_and_not_a_single_seed_decides():
    courses = [Course([1, 2, 3], [0.9, 0.5, 0.8]), Course([1, 2, 3], [0.1, 0.6, 0.8])]
    figure = convergence_figure({"here": [Line("FedEAS", courses)]}, 0.7)
    assert verticals(figure.axes[0]) == [3]


def test_a_mean_at_the_threshold_itself_reaches_it():
    figure = convergence_figure({"here": [Line("FedEAS", [Course([5], [0.7])] * 3)]}, 0.7)
    assert verticals(figure.axes[0]) == [5]


def test_a_threshold_that_is_never_reached_has_no_vertical_and_the_legend_says_so():
    figure = convergence_figure({"here": [line("FedEAS", top=0.5, paper=30), line("Uniform", top=0.4)]}, 0.7)
    assert verticals(figure.axes[0]) == []
    assert {"FedEAS: not reached (paper: 30)", "Uniform: not reached"} <= set(texts(figure))


def test_the_papers_rounds_are_diamonds_on_the_threshold():
    figure = convergence_figure({"here": [line("FedEAS", paper=30), line("Missing-only", paper=38)]}, 0.7)
    assert diamonds(figure.axes[0]) == [(30, 0.7), (38, 0.7)]
    assert "the paper's round" in texts(figure)


def test_without_the_papers_rounds_nothing_speaks_of_it():
    figure = convergence_figure({"here": [line("FedEAS")]}, 0.7)
    assert diamonds(figure.axes[0]) == []
    assert not any("paper" in text for text in texts(figure))


def test_a_panel_that_was_not_run_says_so_beside_one_that_was():
    panels = {"first": [Line("FedEAS", [], 30)], "second": [line("FedEAS", paper=33)]}
    figure = convergence_figure(panels, 0.7)
    empty, full = figure.axes
    assert "not run" in [text.get_text() for text in empty.texts]
    assert "not run" not in [text.get_text() for text in full.texts]
    assert "FedEAS: not run (paper: 30)" in texts(figure)
    assert empty.get_xlim() == full.get_xlim()


def test_the_band_spans_the_extremes_and_one_seed_has_none():
    method = line("FedEAS")
    many, one = (convergence_figure({"here": [method._replace(courses=method.courses[:n])]}, 0.7) for n in (3, 1))
    (band,) = many.axes[0].collections
    values = np.array([each.accuracy for each in method.courses])
    corners = {tuple(np.round(corner, 9)) for corner in band.get_paths()[0].vertices}
    for edge in (values.min(axis=0), values.max(axis=0)):
        assert set(zip(ROUNDS, np.round(edge, 9), strict=True)) <= corners
    assert len(one.axes[0].collections) == 0


def test_a_seed_that_broke_off_does_not_bend_the_mean():
    courses = [Course([1, 2, 3], [0.2, 0.4, 0.9]), Course([1, 2], [0.4, 0.6])]
    axes = convergence_figure({"here": [Line("FedEAS", courses)]}, 0.7).axes[0]
    mean = next(drawn for drawn in axes.lines if drawn.get_color() == plots.BLUE)
    assert list(mean.get_xdata()) == [1, 2]
    assert mean.get_ydata() == pytest.approx([0.3, 0.5])


def test_a_method_has_its_own_colour_in_every_panel():
    panels = {"first": [line("Uniform"), line("SCAFFOLD")], "second": [line("SCAFFOLD"), line("Uniform")]}
    first, second = convergence_figure(panels, 2.0).axes
    solid = [[drawn.get_color() for drawn in axes.lines if drawn.get_linestyle() == "-"] for axes in (first, second)]
    assert solid[0] == solid[1][::-1]
    assert solid[0][0] == plots.ORANGE


def test_bars_are_as_high_as_the_numbers():
    axes = allocation_figure(BARS, "one total").axes[0]
    ours = [bar.get_height() for bar in axes.patches if not hollow(bar)]
    paper = [bar.get_height() for bar in axes.patches if hollow(bar)]
    assert ours == [54.3, 70.9]
    assert paper == [55.5, 70.2, 71.7]


def test_bars_stand_beside_each_other():
    spans = sorted(
        (bar.get_x(), bar.get_x() + bar.get_width()) for bar in allocation_figure(BARS, "one").axes[0].patches
    )
    assert all(right <= left for (_, right), (left, _) in pairwise(spans))


def test_error_bars_are_the_spread():
    axes = allocation_figure([Bar("FedEAS", 70.0, 1.5), Bar("Uniform", 60.0, None)], "one total").axes[0]
    spans = [(float(path[0, 1]), float(path[1, 1])) for drawn in axes.collections for path in drawn.get_segments()]
    assert spans == [(68.5, 71.5)]


def test_a_bar_that_was_not_run_is_an_empty_place_that_says_so():
    figure = allocation_figure(BARS, "one total")
    (note,) = [text for text in figure.axes[0].texts if text.get_text() == "not run"]
    solid = [bar for bar in figure.axes[0].patches if not hollow(bar)]
    assert not any(bar.get_x() <= note.xy[0] <= bar.get_x() + bar.get_width() for bar in figure.axes[0].patches)
    assert solid[0].get_x() < note.xy[0] < solid[1].get_x()


def test_bars_without_the_papers_numbers_have_no_hollow_ones_and_no_legend():
    figure = allocation_figure([bar._replace(paper=None) for bar in BARS], "one total")
    assert not any(hollow(bar) for bar in figure.axes[0].patches)
    assert not figure.legends


def test_the_sweep_passes_through_its_points_and_breaks_off_where_it_was_not_run():
    figure = budget_figure(SWEEPS, FEDAVG, FULL)
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
    figure = budget_figure(SWEEPS, FEDAVG, FULL._replace(ours=None))
    levels = {
        one.get_ydata()[0]: one.get_linestyle() for one in figure.axes[0].lines if list(one.get_xdata()) == [0, 1]
    }
    assert levels == {54.9: "-", 55.5: "--", 79.9: "--"}
    assert {"FedAvg 54.90", "FedAvg 55.50 (paper)", "Full-Balance: not run"} <= set(texts(figure))


def test_a_sweep_without_the_papers_numbers_has_no_dashed_lines():
    figure = budget_figure(
        [without_paper(each) for each in SWEEPS], FEDAVG._replace(paper=None), Bar("Full-Balance", 79)
    )
    assert not any(one.get_linestyle() == "--" for one in figure.axes[0].lines)
    assert not any("paper" in text for text in texts(figure))


def test_a_sweep_that_was_not_run_shows_the_papers_and_says_so():
    figure = budget_figure([not_run(each) for each in SWEEPS], FEDAVG._replace(ours=None), FULL._replace(ours=None))
    assert {one.get_linestyle() for one in figure.axes[0].lines} == {"--"}
    assert {"not run", "FedEAS: not run", "Uniform: not run", "FedAvg: not run"} <= set(texts(figure))


def test_the_names_of_ten_methods_do_not_overlap_and_stay_within_the_picture():
    names = [f"method {number}" for number in range(9)] + ["FedEAS"]
    figure = course_figure([line(name, top=0.5 + 0.001 * place) for place, name in enumerate(names)], "ten")
    figure.draw_without_rendering()
    boxes = {text.get_text(): Text.get_window_extent(text) for text in figure.axes[0].texts}
    assert set(boxes) == set(names)
    assert not any(one.overlaps(other) for one, other in combinations(boxes.values(), 2))
    assert all(
        box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1 for box in boxes.values()
    )
    looks = {(one.get_color(), one.get_linestyle()) for one in figure.axes[0].lines}
    assert len(looks) == len(names)


def test_the_course_figure_has_no_paper_marks_and_names_what_was_not_run():
    figure = course_figure([line("FedEAS", paper=30), Line("Uniform", [], 40), Line("MOON", [])], "ours")
    assert len(figure.axes[0].lines) == 1
    assert "not run: Uniform, MOON" in texts(figure)


def test_a_course_of_one_round_is_a_dot():
    (drawn,) = course_figure([Line("FedEAS", [Course([1], [0.2])])], "short").axes[0].lines
    assert drawn.get_marker() == "o"


REMOVALS = [Removal(0.0, FEDAVG), Removal(57.6, Bar("Uniform", 56.5, 1.5, 58.8)), Removal(78.2, Bar("Greedy", 60.3))]


def test_removals_are_dots_with_their_spread_and_diamonds_for_the_paper():
    figure = removal_figure(REMOVALS, "one total")
    marks = {(one.get_marker(), *one.get_xydata()[0]) for one in figure.axes[0].lines if one.get_marker() in "oD"}
    ours = {("o", 0.0, 54.9), ("o", 57.6, 56.5), ("o", 78.2, 60.3)}
    assert marks == ours | {("D", 0.0, 55.5), ("D", 57.6, 58.8)}
    spans = [path[:, 1].tolist() for drawn in figure.axes[0].collections for path in drawn.get_segments()]
    assert np.allclose(spans, [[54.1, 55.7], [55.0, 58.0]])
    assert {"FedAvg 54.90", "Uniform 56.50", "Greedy 60.30", "ours", "the paper"} <= set(texts(figure))


def test_removals_that_were_not_run_are_named_and_have_no_dot():
    figure = removal_figure([*REMOVALS, Removal(74.8, Bar("FedEAS", None))], "one total")
    assert "not run: FedEAS" in texts(figure)
    assert not any(one.get_xdata()[0] == 74.8 for one in figure.axes[0].lines)


NOTHING = {
    "no removals": lambda: removal_figure([], "one total"),
    "removals without numbers": lambda: removal_figure([Removal(74.8, Bar("FedEAS", None))], "one total"),
    "no panels": lambda: convergence_figure({}, 0.7),
    "a panel without lines": lambda: convergence_figure({"here": []}, 0.7),
    "lines without courses": lambda: convergence_figure({"here": [Line("FedEAS", [])]}, 0.7),
    "a course without rounds": lambda: convergence_figure({"here": [Line("FedEAS", [Course([], [])])]}, 0.7),
    "no bars": lambda: allocation_figure([], "one total"),
    "bars without numbers": lambda: allocation_figure([Bar("FedEAS", None)], "one total"),
    "no sweeps": lambda: budget_figure([], *UNKNOWN),
    "sweeps without numbers": lambda: budget_figure([not_run(without_paper(SWEEPS[0]))], *UNKNOWN),
    "no lines": lambda: course_figure([], "ours"),
    "nothing run": lambda: course_figure([Line("FedEAS", [])], "ours"),
}


@pytest.mark.parametrize("draw", NOTHING.values(), ids=NOTHING)
def test_nothing_to_draw_still_gives_a_picture_that_says_so(draw, tmp_path):
    figure = draw()
    plots.save(figure, tmp_path / "nothing.svg")
    assert "not run" in (tmp_path / "nothing.svg").read_text()


SOMETHING = {
    "convergence": lambda: convergence_figure({"a": [line("FedEAS", paper=9), line("MOON")], "b": [line("MOON")]}, 0.7),
    "allocation": lambda: allocation_figure(BARS, "one total"),
    "budget": lambda: budget_figure(SWEEPS, FEDAVG, FULL),
    "course": lambda: course_figure([line("FedEAS"), line("MOON", top=0.6)], "ours"),
}


@pytest.mark.parametrize("draw", SOMETHING.values(), ids=SOMETHING)
def test_the_same_numbers_give_the_same_bytes(draw, tmp_path):
    for name in ("one", "other"):
        plots.save(draw(), tmp_path / f"{name}.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()
