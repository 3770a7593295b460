"""Similarity of the article's ten sentences, for any models."""

import streamlit as st

from bsc_core import formatting
from bsc_core.evaluation import GOLD_PAIRS, TEN_SENTENCES, SentenceMap, sentence_map
from bsc_core.figures.evaluation import sentence_map as figures
from bsc_core.runs import Run
from pages.ui.components import data_cache, display, glossary, run_data
from pages.ui.retrieval.search import Search

MAX_MODELS = 4
MAX_RUNS = 40


def draw(search: Search) -> None:
    """Draw a similarity matrix for each selected model."""
    models = {model.key: model for model in [*search.models, *_other_models(search.models[0].run)]}
    selected = st.multiselect(
        "Models",
        list(models),
        default=list(dict.fromkeys(model.key for model in search.models)),
        format_func=lambda key: _label(models[key]) if key in models else key,
        max_selections=MAX_MODELS,
        key=f"retrieval.maps.{search.models[0].key}.{search.models[1].key}",
        help=glossary.help_text("sentence_map"),
    )
    if not selected:
        st.caption("Select a model.")
        return
    for cell, key in zip(display.columns(len(selected), min_width=440), selected, strict=True):
        with cell, display.show_errors(stop=False):
            _draw_map(models[key])
    st.caption(
        "Framed: the three pairs of paraphrases. Margin: their lowest cosine minus the highest cosine of all other "
        "pairs; above 0 the paraphrases are separated."
    )


def _draw_map(model: run_data.Model) -> None:
    result = _sentence_map(model)
    st.text(_label(model))
    table = figures.cells(result.cosines, TEN_SENTENCES, GOLD_PAIRS)
    title = f"{result.matches} of the 3 paraphrase pairs are among the 3 most similar pairs"
    display.figure(
        figures.sentence_map(table, TEN_SENTENCES, title=title),
        alt=f"Cosines of ten sentences, {_label(model)}",
        name=f"ten_sentences.{model.key.replace(':', '.')}",
        data=table,
    )
    st.caption(
        f"margin {formatting.signed(result.margin)} · AUC {formatting.metric(result.auc)} · mean of the other pairs "
        f"{formatting.metric(result.others)}"
    )


MODEL_KEY = {run_data.Model: lambda model: (model.key, model.run.status().finished)}


@st.cache_resource(max_entries=64, show_spinner="Encoding ten sentences …", hash_funcs=MODEL_KEY)
def _sentence_map(model: run_data.Model) -> SentenceMap:
    return sentence_map(run_data.encode_queries(model, list(TEN_SENTENCES)))


def _other_models(run: Run) -> list[run_data.Model]:
    """Return the models of this run and the trained models of other runs, newest first."""
    runs = [other for other in data_cache.run_store().list() if other.id != run.id and other.model_folder.is_dir()]
    return run_data.models(run) + [run_data.Model(other, "after") for other in runs[:MAX_RUNS]]


def _label(model: run_data.Model) -> str:
    return f"{run_data.PARTS[model.part].capitalize()} · {data_cache.short_id(model.run.id)}"
