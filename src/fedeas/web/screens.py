"""Colours of the page on a light and on a dark screen."""

from __future__ import annotations

from typing import NamedTuple

from fedeas.plotting.figures import INK


class Screen(NamedTuple):
    """Colours of text, of grid lines and of the page."""

    ink: str
    grid: str
    paper: str


LIGHT, DARK = Screen(INK, "#e8ebef", "#ffffff"), Screen("#edebe8", "#302e2b", "#171614")
