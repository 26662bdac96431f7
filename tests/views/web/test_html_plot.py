"""Plots of the page in HTML: what is drawn is where the numbers are."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import LabelCounts
from fedeas.views.web import html_plot, plan_charts
from fedeas.views.web.html_plot import Axis

COUNTS = LabelCounts([[900, 80, 20], [10, 300, 690], [400, 0, 380]])
CURVES = plan_charts.curves(COUNTS)


def points_of(plot, name):
    """Values of all points of a series, read back from their places in the HTML, and their tips."""
    number = [series.name for series in plot.series].index(name)
    text = html_plot.plot_html(plot).partition(f'class="series{number}"')[2].partition("</div>")[0]
    found = re.findall(r'left:(.*?)%;bottom:(.*?)%" data-tip="(.*?)"', text, re.DOTALL)
    return [(10 ** value_at(plot.across, float(x)), value_at(plot.upwards, float(y)), tip) for x, y, tip in found]


def value_at(axis, percent):
    return axis.start + (axis.end - axis.start) * percent / 100


@given(st.integers(1, 10**9))
def test_a_plan_is_drawn_at_its_images_and_what_it_removes(images):
    plot = plan_charts.trade_off(CURVES, "fedeas(beta=1)", images, 0.25)
    ((across, upwards, tip),) = points_of(plot, "this plan")
    assert (across, upwards) == (pytest.approx(images, rel=0.01), pytest.approx(0.25, abs=0.001))
    assert f"{images:,} images" in tip
    assert len(plot.across.labels) >= 2


def test_a_plan_without_images_is_left_of_a_logarithmic_axis():
    plot = plan_charts.trade_off(CURVES, "none", 0, 0.0)
    assert points_of(plot, "this plan") == []
    assert plot.across == plan_charts.trade_off(CURVES, "one", CURVES.demand.total, 1.0).across


def test_a_curve_is_drawn_where_its_policy_is():
    plot = plan_charts.trade_off(CURVES, "fedeas(beta=1)", 100, 0.25)
    for name in ("fedeas", "uniform"):
        for across, upwards, _ in points_of(plot, name):
            nearest = np.abs(CURVES.paths[name].total - across).argmin()
            assert across == pytest.approx(CURVES.paths[name].total[nearest], rel=0.01)
            assert upwards == pytest.approx(CURVES.paths[name].removed[nearest], abs=0.001)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.floats(0, 1))
def test_places_are_percent_of_the_way(start, length, share):
    assert Axis("", start, start + length, {}).places(start + share * length) == pytest.approx(100 * share, abs=1e-3)


def test_every_mark_and_every_switch_has_its_style():
    style = html_plot.STYLE.read_text()
    looks = plan_charts.CURVES.values()
    assert all(f".{look.mark}::before" in style or look.mark in {"", "square"} for look in looks)
    assert all(f".series{number}" in style for number in range(len(looks)))
    assert {look.dash for look in looks} <= {*html_plot.DASHES}
