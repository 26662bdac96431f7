"""The planner as a page in the browser; Streamlit comes with ``pip install 'fedeas[web]'``."""
