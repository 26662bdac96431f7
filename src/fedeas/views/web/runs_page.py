"""The page with the runs of a folder: their accuracy over rounds, and a list that refreshes by itself."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from fedeas.core.foreign_text import for_markdown, printable
from fedeas.views.web import charts, runs
from fedeas.views.web.page_parts import explaining, screen, show_chart

REFRESH_SECONDS = 3.0  # while a run is in progress


def show_runs_page(folder: Path) -> None:
    """The runs, watched as long as one of them is in progress."""
    with explaining(st):
        watching = runs.any_under_way(runs.listed(folder).runs)
        st.fragment(_show_runs, run_every=REFRESH_SECONDS if watching else None)(folder, watching)


def _show_runs(folder: Path, watching: bool) -> None:
    """Show the runs; this part of the page refreshes by itself while a run is in progress."""
    with explaining(st):
        found = runs.listed(folder)
        if runs.any_under_way(found.runs) is not watching:
            st.rerun()  # only the whole page can start or stop the refreshing
        _list_runs(folder, found, watching)


def _list_runs(folder: Path, found: runs.Listing, watching: bool) -> None:
    st.button("Refresh")
    if not found.runs:
        st.info(f"No run directories below {for_markdown(folder)}; make one with `fedeas run`.")
        return
    words = f"refreshed every {REFRESH_SECONDS:g} seconds" if watching else "none is in progress"
    older = f" The latest {len(found.runs):,} are listed, {found.left_out:,} older ones are not." * bool(found.left_out)
    st.caption(f"Run directories below {for_markdown(folder)}; {words}.{older}")
    wanted = st.text_input("Only runs whose name or policy contains", key="filter")
    shown = [run for run in found.runs if wanted.lower() in f"{run.name} {run.policy}".lower()]
    methods = runs.drawn_methods(shown)
    show_chart(st, charts.accuracy(methods, screen()), "accuracy")
    cut = f" Drawn are {charts.MOST_METHODS} of {len(methods):,} methods; filter the list to see others."
    st.caption(
        "Line: mean over the finished seeds of a method. Band: from the lowest to the highest seed. Dotted: unfinished "
        "runs, which end in a dot if they are in progress and in a cross if they were stopped."
        + cut
        * (len(methods) > charts.MOST_METHODS)
    )
    names = ("name", "policy", "algorithm", "seed", "state", "changed", "accuracy", "window", "latest", "seen")
    columns = {name: [getattr(run, name) for run in shown] for name in names}
    table = {
        name: [printable(value) if isinstance(value, str) else value for value in values]
        for name, values in columns.items()
    }
    formats = {
        "changed": st.column_config.DatetimeColumn("last round", format="distance"),
        "accuracy": st.column_config.NumberColumn(format="percent"),
        "window": st.column_config.TextColumn("mean of"),
        "latest": st.column_config.NumberColumn("last evaluation", format="percent"),
        "seen": st.column_config.TextColumn("generator"),
    }
    st.dataframe(table, hide_index=True, column_config=formats)
