"""The frame of the app: which pages there are, under which heading. The pages themselves live in pages/."""

from pathlib import Path

import streamlit as st

PAGES = {
    "": [st.Page("pages/start.py", title="Start", icon=":material/home:", default=True)],
    "Learn": [
        st.Page("pages/learn.py", title="Loss lab", icon=":material/science:"),
        st.Page("pages/lessons.py", title="Lessons", icon=":material/school:"),
    ],
    "Prepare": [
        st.Page("pages/data.py", title="Data", icon=":material/table_view:"),
        st.Page("pages/batches.py", title="Batches", icon=":material/grid_view:"),
    ],
    "Train": [
        st.Page("pages/train.py", title="New run", icon=":material/rocket_launch:"),
        st.Page("pages/runs.py", title="Runs", icon=":material/monitoring:"),
    ],
    "Look": [
        st.Page("pages/embeddings.py", title="Embeddings", icon=":material/bubble_chart:"),
        st.Page("pages/retrieval.py", title="Retrieval", icon=":material/search:"),
        st.Page("pages/findings.py", title="Findings", icon=":material/fact_check:"),
    ],
}
UI = Path(__file__).parent / "pages" / "ui"
st.set_page_config("BSC Lab", page_icon=str(UI / "icon.svg"), layout="wide", initial_sidebar_state=236)
st.logo(UI / "logo.svg", size="large")
st.navigation(PAGES, expanded=True).run()
