"""The article's ten sentences as any models see them, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from bsc_core.figures import sentence_map as picture
from bsc_core.figures import theme
from bsc_core.runs import Run
from pages.ui import run_data, run_list, show, store, words
from pages.ui.searching import Search

if TYPE_CHECKING:
    from bsc_core.evaluation import SentenceMap

MOST_MAPS = 4
MOST_RUNS = 40


def draw(search: Search) -> None:
    """Choose models of any runs; a map for each."""
    offered = {model.key: model for model in [*search.models, *_others(search.models[0].run)]}
    chosen = st.multiselect(
        "Models",
        list(offered),
        default=list(dict.fromkeys(model.key for model in search.models)),
        format_func=lambda key: _label(offered[key]) if key in offered else key,
        max_selections=MOST_MAPS,
        key=f"retrieval.maps.{search.models[0].key}.{search.models[1].key}",
        help=words.help_text("sentence_map"),
    )
    if not chosen:
        st.caption("Choose a model to see its map.")
        return
    for place, key in zip(show.columns(len(chosen), least=440), chosen, strict=True):
        with place, show.calm_errors(stop=False):
            _map(offered[key])
    st.caption(
        "Framed: the three pairs that say the same in other words. Margin: their lowest cosine less the highest of all "
        "others; above 0 the three are told apart."
    )


def _map(model: run_data.Model) -> None:
    from bsc_core.evaluation import GOLD_PAIRS, TEN_SENTENCES

    found = _seen(model.key, _stamp(model), model)
    st.text(_label(model))
    figure = picture.sentence_map(
        found.cosines, TEN_SENTENCES, GOLD_PAIRS, title=f"{found.found} of the 3 pairs that say the same come first"
    )
    show.figure(
        figure,
        alt=f"Cosines of ten sentences as {_label(model)} sees them",
        name=f"ten_sentences.{model.key.replace(':', '.')}",
        data=picture.data(found.cosines, TEN_SENTENCES, GOLD_PAIRS),
    )
    st.caption(
        f"margin {theme.change(found.margin)} · AUC {theme.metric(found.auc)} · mean of the other pairs "
        f"{theme.metric(found.others)}"
    )


@st.cache_resource(max_entries=64, show_spinner="Encoding ten sentences …")
def _seen(key: str, stamp: float, _model: run_data.Model) -> SentenceMap:
    from bsc_core.evaluation import TEN_SENTENCES, sentence_map

    return sentence_map(run_data.encode_texts(_model, list(TEN_SENTENCES)))


def _stamp(model: run_data.Model) -> float:
    return float(model.run.status().finished or 0.0)


def _others(run: Run) -> list[run_data.Model]:
    """The models of this run and what other runs made of theirs, newest first."""
    runs = [other for other in store.run_store().list() if other.id != run.id and other.model_folder.is_dir()]
    return run_data.models(run) + [run_data.Model(other, "after") for other in runs[:MOST_RUNS]]


def _label(model: run_data.Model) -> str:
    return f"{run_data.PARTS[model.part].capitalize()} · {run_list.name(model.run)}"
