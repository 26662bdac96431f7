"""The planner as a page in the browser; Streamlit comes with ``pip install 'fedeas[web]'``."""

FOLDER_VARIABLE = "FEDEAS_PLANNER_RUNS"
"""Tells the page, which Streamlit starts, the folder of runs."""

MAX_MEGABYTES = 20
"""Of an upload."""
