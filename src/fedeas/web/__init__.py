"""The planner as a page in the browser; Streamlit and Plotly come with ``pip install 'fedeas[web]'``."""
