"""The figure of the answers: what other uses of the images gain over FedEAS, by experiment and over all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reproduction.answers import STEPS, USES, clean, mean_of_experiments, whole_difference
from reproduction.figures import style
from reproduction.findings import Findings

SHADES = (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)
MARKERS = "osD^vP"
POINTS = (-0.38, 0.08)  # where in its row the first and the last experiment are drawn
MEAN = 0.24  # where the mean is drawn
GAIN = "points of accuracy, mean over the budgets of an experiment"
REAL = "open marks: real images instead of generated ones"


@style.styled
def gains_figure(experiments: Sequence[Findings]) -> Figure:
    """A row for each method: a point for each clean experiment, and the mean of them with its 95 % interval.

    Experiments of one dataset share a colour; each is a little lower than the one before, so that none hides. Methods
    that give no images to clients are left out: they lose so much that their rows would squeeze the others.
    """
    found = [each for each in clean(experiments) if each.compared]
    rows = [name for name in USES if any(whole_difference(each, name) for each in found)]
    figure = style.new_figure(style.WIDTH, 1.6 + 0.42 * max(len(rows), 2))
    axes = figure.subplots()
    axes.set_title("Gain over FedEAS with at most as many images, clean protocol")
    if not rows:
        style.say_not_run(axes)
        return figure
    looks = dict(zip(dict.fromkeys(each.dataset for each in found), zip(SHADES, MARKERS, strict=True), strict=False))
    for height, name in enumerate(rows):
        shown = [(each, difference) for each in found if (difference := whole_difference(each, name)) is not None]
        for (each, difference), offset in zip(shown, np.linspace(*POINTS, len(shown)), strict=True):
            colour, marker = looks[each.dataset]
            fill = "white" if each.places_real_images else colour
            axes.plot(difference.mean, height + offset, marker, color=colour, markerfacecolor=fill, markersize=5)
        mean = mean_of_experiments(found, name)
        if mean is not None and mean.interval is not None:
            low, high = mean.interval
            ends = [[mean.mean - low], [high - mean.mean]]
            axes.errorbar(mean.mean, height + MEAN, xerr=ends, fmt="|", markersize=10, capsize=3, color=style.INK)
        axes.axhline(height + 0.5, **style.GRID)
    axes.axvline(0, color=style.INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [name.replace(STEPS, ",\nequal steps") for name in rows])
    axes.tick_params(axis="y", length=0)
    real = [REAL] if any(each.places_real_images for each in found) else []
    axes.set(xlabel="\n".join([GAIN, *real]), ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="x", **style.GRID)
    keys = [style.mark(dataset, colour, marker=marker) for dataset, (colour, marker) in looks.items()]
    keys.append(Line2D([], [], color=style.INK, marker="|", markersize=10, label="mean, 95 %"))
    figure.legend(handles=keys, loc="outside lower center", ncols=len(looks) + 1)
    return figure
