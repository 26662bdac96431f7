"""The page of ``fedeas planner``: a tab for plans and one for the runs of a folder.

Streamlit runs this file again at every change. The other modules of this package compute; results that do not depend
on the last change are cached, and only the tab that is open is computed.
"""

import os
from pathlib import Path

import streamlit as st

from fedeas.core.foreign_text import for_markdown, printable
from fedeas.views.web import FOLDER_VARIABLE, runs
from fedeas.views.web.plan_page import explaining, screen, show_chart, show_plan_page, show_tabs

REFRESH_SECONDS = 3.0  # while a run is in progress
NARROW = """<style>
.block-container {padding: 2.2rem min(2rem, 4vw) 2rem; max-width: 1500px}
h1 {font-size: 1.9rem !important}
</style>"""


def page() -> None:
    """The whole page."""
    st.set_page_config("FedEAS planner", layout="wide", initial_sidebar_state="collapsed")
    st.html(NARROW)
    st.title("FedEAS planner")
    st.caption("How many synthetic images should each client of a federation generate, and of which classes?")
    folder = Path(os.environ.get(FOLDER_VARIABLE, "runs"))

    def show_runs_page() -> None:
        with explaining(st):
            watching = runs.listed(folder).any_under_way
            st.fragment(show_runs, run_every=REFRESH_SECONDS if watching else None)(folder, watching)

    show_tabs("page", {"Plan": show_plan_page, "Runs": show_runs_page})


def show_runs(folder: Path, watching: bool) -> None:
    """The accuracy of the runs over rounds, and a list; while a run is in progress, this part refreshes by itself."""
    with explaining(st):
        found = runs.listed(folder)
        if found.any_under_way is not watching:
            st.rerun()  # only the whole page can start or stop the refreshing
        st.button("Refresh")
        if not found.runs:
            st.info(f"No run directories below {for_markdown(folder)}; make one with `fedeas run`.")
            return
        words = f"refreshed every {REFRESH_SECONDS:g} seconds" if watching else "none is in progress"
        older = f" The latest {len(found.runs):,} are listed, {found.left_out:,} older ones are not."
        st.caption(f"Run directories below {for_markdown(folder)}; {words}.{older * bool(found.left_out)}")
        wanted = st.text_input("Only runs whose name or policy contains", key="filter")
        shown = [run for run in found.runs if wanted.lower() in f"{run.name} {run.policy}".lower()]
        figure, methods = runs.drawn(shown, screen())
        if figure is not None:
            st.markdown("**Accuracy over rounds**")
            show_chart(st, figure, "accuracy")
        cut = f" Drawn are {runs.MOST_METHODS} of {methods:,} methods; filter the list to see others."
        st.caption(
            "Line: mean over the finished seeds of a method. Band: from the lowest to the highest seed. Dotted: "
            "unfinished runs, which end in a dot if they are in progress and in a cross if they were stopped."
            f"{cut * (methods > runs.MOST_METHODS)}"
        )
        names = ("name", "policy", "algorithm", "seed", "state", "changed", "accuracy", "window", "latest", "seen")
        columns = {name: [getattr(run, name) for run in shown] for name in names}
        table = {name: [printable(v) if isinstance(v, str) else v for v in own] for name, own in columns.items()}
        formats = {
            "changed": st.column_config.DatetimeColumn("last round", format="distance"),
            "accuracy": st.column_config.NumberColumn(format="percent"),
            "window": st.column_config.TextColumn("mean of"),
            "latest": st.column_config.NumberColumn("last evaluation", format="percent"),
            "seen": st.column_config.TextColumn("generator"),
        }
        st.dataframe(table, hide_index=True, column_config=formats)


if __name__ == "__main__":
    page()
