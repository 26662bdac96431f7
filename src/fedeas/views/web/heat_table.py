"""Small heat maps of the page as HTML tables: a browser draws them much faster than a Plotly figure with numbers."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from plotly.colors import hex_to_rgb, sequential

from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_html
from fedeas.planning.counts import LabelCounts
from fedeas.views.figures import DARK, LIGHT, Screen

MOST_CLIENTS, MOST_CLASSES = 25, 12
SHADES = 64
SHORT = 3  # characters of a class name that is written across
CORNER = "client"  # what the first column holds
WIDEST = 24  # characters of a client's name before it is broken

STYLE = """<style>
.heat {{overflow-x: auto; font-size: 12px; line-height: 16px}}
.heat table {{table-layout: fixed; border-collapse: collapse; width: 100%; color: {ink}}}
.heat caption {{text-align: left; font-size: 15px; line-height: 28px}}
.heat td {{padding: 0; text-align: center; border: 1px solid {grid}}}
.heat th {{font-weight: normal; vertical-align: bottom; padding: 0; overflow-wrap: anywhere}}
.heat .first, .heat tbody th {{position: sticky; left: 0; padding-right: 6px; text-align: right; background: {paper}}}
.heat .long {{writing-mode: vertical-rl; transform: rotate(180deg); margin: auto; padding: 4px 0; max-height: 20em}}
.heat td:hover {{outline: 2px solid {ink}}}
</style>"""


def is_small(clients: int, classes: int) -> bool:
    """Whether a heat map is shown as a table, with its numbers."""
    return clients <= MOST_CLIENTS and classes <= MOST_CLASSES


def heat_table(
    counts: LabelCounts, table: IntArray, rows: IntArray, largest: int, title: str, screen: Screen = LIGHT
) -> str:
    """Samples of clients x classes, blank where there are none; the darkest or, on a dark screen, brightest is most."""
    classes = [*map(for_html, counts.class_names)]
    clients = [for_html(counts.client_name(row)) for row in rows]
    first, others = min(max(map(len, [*clients, CORNER])), WIDEST) + 2, max(len(str(largest)), SHORT) + 1
    heads = (name if len(name) <= SHORT else f'<div class="long">{name}</div>' for name in classes)
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    shares = np.log10(np.maximum(table[rows], 1)) / np.log10(max(largest, 10))
    shades = np.rint(shares * (SHADES - 1)).astype(np.int64)  # places in the palette
    body = "".join(map(partial(_row, screen, classes), clients, table[rows].tolist(), shades.tolist()))
    return (
        # Takes the focus so that its sides can be reached with keys. A browser's search for such an element ends here.
        f'<div class="heat" tabindex="0" role="region" aria-label="{title}">'
        f'<table style="min-width:{first + others * len(classes)}ch"><caption>{title}</caption>'
        f'<colgroup><col style="width:{first}ch"></colgroup>'
        f'<thead><tr><th scope="col" class="first">{CORNER}</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def heat_scale(largest: int, screen: Screen = LIGHT) -> str:
    """The colours from one image to the most, with a mark for each power of ten."""
    most = max(largest, 10)
    stops = ",".join(back for back, _ in _palette(screen)[:: (SHADES - 1) // 9])
    ticks = "".join(
        f'<span style="position:absolute;left:{100 * decade / np.log10(most):.1f}%">{10**decade:,}</span>'
        for decade in range(int(np.log10(most)) + 1)
    )
    return (
        f'<div style="display:flex;gap:1.2em;font-size:12px;line-height:16px;color:{screen.ink}">'
        f'<div style="width:260px"><div style="height:12px;background:linear-gradient(to right,{stops})"></div>'
        f'<div style="position:relative;height:16px">{ticks}</div></div>images</div>'
    )


def _row(screen: Screen, classes: list[str], client: str, values: list[int], shades: list[int]) -> str:
    palette = _palette(screen)
    cells = (
        f'<td style="background:{palette[shade][0]};color:{palette[shade][1]}" '
        f'title="client {client}, class {name}: {value:,} images">{value}</td>'
        if value
        else "<td></td>"
        for name, value, shade in zip(classes, values, shades, strict=True)
    )
    return f'<tr><th scope="row">{client}</th>{"".join(cells)}</tr>'


@cache
def _palette(screen: Screen) -> list[tuple[str, str]]:
    """Colours from few to many, each with a colour of text that can be read on it."""
    known = np.array([hex_to_rgb(colour) for colour in sequential.Viridis], float)
    places = np.linspace(0, len(known) - 1, SHADES)
    mixed = np.stack([np.interp(places, np.arange(len(known)), part) for part in known.T], axis=1)
    # Black and white have the same contrast on a luminance of 0.18.
    luminance = (mixed / 255) ** 2.2 @ np.array([0.2126, 0.7152, 0.0722])
    texts = np.where(luminance > 0.18, "#000000", "#ffffff").tolist()
    colours = (f"#{np.rint(colour).astype(np.uint8).tobytes().hex()}" for colour in mixed)
    found = list(zip(colours, texts, strict=True))
    return found if screen == DARK else found[::-1]
