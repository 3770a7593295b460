"""Similarity of the article's ten sentences, for any models."""

import streamlit as st

from bsc_core import formatting
from bsc_core.evaluation import GOLD_PAIRS, TEN_SENTENCES, SentenceMap, sentence_map
from bsc_core.figures.evaluation import sentence_map as figures
from pages.ui.components import data_cache, display, glossary, run_data, url
from pages.ui.retrieval.search import Search

MAX_MODELS = 4
MAX_RUNS = 40


def draw(search: Search) -> None:
    """Draw a similarity matrix for each selected model."""
    models = {model.key: model for model in [*search.models, *_other_models(search.models[0])]}
    selected = st.multiselect(
        "Models",
        list(models),
        default=list(dict.fromkeys(model.key for model in search.models)),
        format_func=lambda key: models[key].name if key in models else key,
        max_selections=MAX_MODELS,
        help=glossary.help_text("sentence_map"),
        **url.bound(
            f"retrieval.maps.{search.models[0].key}.{search.models[1].key}", [one.name for one in models.values()]
        ),
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


def _draw_map(model: run_data.AnyModel) -> None:
    result = _sentence_map(model)
    st.text(model.name)
    table = figures.cells(result.cosines, TEN_SENTENCES, GOLD_PAIRS)
    title = f"{result.matches} of the 3 paraphrase pairs are among the 3 most similar pairs"
    display.figure(
        figures.sentence_map(table, TEN_SENTENCES, title=title),
        alt=f"Cosines of ten sentences, {model.name}",
        name=f"ten_sentences.{model.key.replace(':', '.')}",
        data=table,
    )
    st.caption(
        f"margin {formatting.signed(result.margin)} · AUC {formatting.metric(result.auc)} · mean of the other pairs "
        f"{formatting.metric(result.others)}"
    )


MODEL_KEY = run_data.STAMPS | {run_data.Model: lambda model: (model.key, model.run.status().finished)}


@st.cache_resource(max_entries=64, show_spinner="Encoding ten sentences …", hash_funcs=MODEL_KEY)
def _sentence_map(model: run_data.AnyModel) -> SentenceMap:
    return sentence_map(run_data.encode_queries(model, list(TEN_SENTENCES)))


def _other_models(model: run_data.AnyModel) -> list[run_data.Model]:
    """Return the models of the same run and the trained models of other runs, newest first."""
    run = model.run if isinstance(model, run_data.Model) else None
    runs = [other for other in data_cache.run_store().list() if other != run and other.model_folder.is_dir()]
    own = run_data.models(run) if run is not None else []
    return own + [run_data.Model(other, "after") for other in runs[:MAX_RUNS]]
