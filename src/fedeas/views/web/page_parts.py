"""What the pages of the planner share: errors in one line, tabs, caches, and figures in the colours of the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import streamlit as st

from fedeas.core.errors import FedEASError
from fedeas.core.foreign_text import for_markdown
from fedeas.core.log import log
from fedeas.planning.counts import LabelCounts
from fedeas.views.charts import Spec
from fedeas.views.figures import DARK, LIGHT, Screen
from fedeas.views.web import html_plot
from fedeas.views.web.html_plot import Plot

QUIET: dict[str, Any] = {"displayModeBar": False, "scrollZoom": False}

cached: Callable[..., Any] = st.cache_data(
    show_spinner=False,
    max_entries=32,
    hash_funcs={LabelCounts: lambda counts: (counts.n.shape, counts.n.tobytes(), counts.clients, counts.classes)},
)
"""Keep the results of a function, since Streamlit runs the page again at every change."""


@contextmanager
def explaining(place: Any) -> Iterator[None]:
    """Show an error as one line on the page, and in full only in the server's log."""
    try:
        yield
    except FedEASError as error:
        place.error(for_markdown(error))
    except Exception as error:
        log.exception("the page could not be shown")
        place.error(for_markdown(f"this cannot be shown ({type(error).__name__}); the server's log says more"))


def show_tabs(key: str, tabs: Mapping[str, Callable[[], None]]) -> None:
    """Tabs by their names, of which only the open one is computed."""
    for tab, show in zip(st.tabs(list(tabs), key=key, on_change="rerun"), tabs.values(), strict=True):
        if tab.open:
            with tab:
                show()


def screen() -> Screen:
    """The colours of the user's screen."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def show_plot(place: Any, plot: Plot) -> None:
    """Show a plot that is HTML."""
    st.html(html_plot.STYLE)
    place.html(html_plot.plot_html(plot, screen()))


def show_chart(place: Any, figure: Spec, key: str) -> None:
    """Show a figure of Plotly."""
    font = {**figure["layout"]["font"], "family": '"Source Sans", sans-serif'}  # the page's own
    figure["layout"] |= {"template": "none", "dragmode": False, "font": font}
    place.plotly_chart(figure, theme=None, config=QUIET, key=f"chart {key}")
