"""Navigation of the app, and links that earlier versions wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from bsc_core import formatting
from bsc_core.config import setting_name
from pages.ui.components import config_form, turns, users

THROUGH_APP = "through_app"  # session key: app.py runs the current page
LOGO = Path(__file__).parents[1] / "logo.svg"
PAGE_CONFIG: dict[str, Any] = {
    "page_icon": str(LOGO.with_name("icon.svg")),
    "layout": "wide",
    "initial_sidebar_state": 236,  # pixels
}
PARAMETERS = {  # old name -> current name
    "batches.by": "batches.group_by",
    "batches.forbid_collisions": "batches.no_duplicates",
    "batches.labelled": "batches.labeled",
    "batches.neighbours": "batches.neighbors",
    "batches.reverse": "batches.easy_first",
    "batches.shingle_neighbours": "batches.shingle_neighbors",
    "embeddings.colour": "embeddings.color",
    "labelled_negatives": "labeled_negatives",
    "b_labelled_negatives": "b_labeled_negatives",
}
LESSONS = {"labelled-negatives": "labeled-negatives"}
VALUES = {  # current parameter -> its old values -> current values
    "batches.strategies": {"examples": "nearest", "neighbours": "neighbors"},
    "retrieval.part": {
        "Where it fails": "Errors",
        "Your own queries": "Your queries",
        "Gold by cut-off": "HasPositive@k by k",
        "Hits by cutoff": "HasPositive@k by k",
        "Win and loss": "Results",
        "Ten sentences": "Similarity of ten sentences",
    },
    "train.tab": {"Seeds and checkpoints": "Checkpoints"},
    "runs.sweep.part": {"Parallel coordinates": "Metric by setting"},
    "batches.measure": {"groups in a single batch": "groups that are complete in one batch"},
    "embeddings.way": {"Beside": "Side by side", "Moving": "Animated"},
    "embeddings.color": {"Error": "Search result"},
    "seeds": {"as runs of their own": "as separate runs"},
    "lesson": LESSONS,
    "done": LESSONS,
}

CAUSES = {  # old cause of a retrieval error -> current cause
    "the relevant document is not in the corpus": "relevant document missing from the corpus",
    "labeled negative of this query": "labeled negative ranked first",
    "nearly the same text as the relevant document, may be relevant": "near duplicate of the relevant document "
    "ranked first",
    "relevant to a nearly equal query, may be relevant": "relevant document of a nearly equal query ranked first",
    "shares more words with the query than the relevant document": "document with more words of the query ranked first",
    "the top document has no label for this query": "first document has no label for this query",
    "unlabeled document ranked first": "first document has no label for this query",
}


def run(pages: Mapping[str, Sequence[StreamlitPage]]) -> None:
    """Draw the logo and the menu, and run the selected page."""
    st.session_state[THROUGH_APP] = True
    st.set_page_config("BSC Lab", **PAGE_CONFIG)
    st.logo(LOGO, size="large")
    opened = {
        section: [page for page in group if users.may_open(page.url_path or "start")]
        for section, group in pages.items()
    }
    page = st.navigation({section: group for section, group in opened.items() if group}, expanded=True)
    _redirect_old_link(page)
    with turns.script():
        page.run()


def _redirect_old_link(page: StreamlitPage) -> None:
    """Open the page again when the URL has old parameters or values."""
    given = {name: st.query_params.get_all(name) for name in st.query_params}
    current = {name: [_current_value(name, value) for value in values] for name, values in given.items()}
    for old, new in PARAMETERS.items():
        if old in current:
            values = current.pop(old)
            current.setdefault(new, values)
    if current != given:
        st.switch_page(page, query_params=current)


def _current_value(name: str, value: str) -> str:
    if name == "metric":
        return formatting.metric_name(value)  # such as MRR for mrr
    if name in ("filter", "group_by"):  # a config key and perhaps its value
        key, separator, rest = value.partition(": ")
        titled = {"Encoder": "encoder.name", "Loss": "loss.name"}.get(name := setting_name(key), "")
        return f"{name}{separator}{config_form.value_title(titled, rest)}"
    if name.startswith("retrieval.causes."):  # a cause and its number of errors
        cause, separator, count = value.partition(" · ")
        return f"{CAUSES.get(cause, cause)}{separator}{count}"
    renamed = VALUES.get(name, {})
    return ",".join(renamed.get(item, item) for item in value.split(","))
