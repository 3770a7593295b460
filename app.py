"""Page list of the app. The pages are in pages/."""

import streamlit as st

from pages.ui.components import navigation

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
    "Evaluate": [
        st.Page("pages/embeddings.py", title="Embeddings", icon=":material/bubble_chart:"),
        st.Page("pages/retrieval.py", title="Retrieval", icon=":material/search:"),
        st.Page("pages/findings.py", title="Findings", icon=":material/fact_check:"),
    ],
}

navigation.run(PAGES)
