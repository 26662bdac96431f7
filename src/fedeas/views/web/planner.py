"""The page of ``fedeas planner``: a tab for plans and one for runs.

Streamlit runs this file again at every change. The other modules of this package compute; results that do not depend
on the last change are cached, and only the tab that is open is computed.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import streamlit as st

from fedeas.views.web.page_parts import show_tabs
from fedeas.views.web.plan_page import show_plan_page
from fedeas.views.web.runs import FOLDER_VARIABLE
from fedeas.views.web.runs_page import show_runs_page

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
    show_tabs("page", {"Plan": show_plan_page, "Runs": partial(show_runs_page, folder)})


if __name__ == "__main__":
    page()
