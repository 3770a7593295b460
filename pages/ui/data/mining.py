"""Preview of mined negatives: scores with the limits, negatives per query, queries without, and likely false ones."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core import background_task, formatting
from bsc_core.config import DataConfig, NegativesConfig
from bsc_core.figures.batches import mining as figures
from bsc_core.paths import cache_folder
from pages.ui.components import config_form, data_cache, display, turns, url, users

if TYPE_CHECKING:
    from bsc_core.preparation.mining import MiningPreview, MiningSearch

SECTION = "data.negatives"
MAX_TEXTS_INLINE = 3000
"""Texts that are encoded and searched while the page waits; more in a background task."""
MAX_FOLDERS = 6
POLL_INTERVAL = "1s"
LOWEST_MARGIN = -0.5  # of the slider, where it means no margin
REASONS = {
    "positive": "positives or copies of one",
    "absolute_margin": "inside the absolute margin",
    "relative_margin": "inside the relative margin",
    "max_score": "above the maximum score",
    "second_opinion": "left out by the second opinion",
    "min_score": "below the minimum score",
    "range_min": "among the skipped ranks",
}
FORMATS = {".tsv": "text/tab-separated-values", ".parquet": "application/octet-stream"}


def draw(config: DataConfig, *, key: str) -> None:
    """Draw the preview of the method window below its settings; the limits can be moved without another search.

    Args:
        config: The data with the settings in `negatives`.
        key: Prefix of the widget keys of the form.
    """
    settings = config.negatives
    if settings is None or settings.method != "window":
        return
    about = "Searches the nearest documents of each query and shows what the limits select, before rows are made."
    if st.toggle("Preview", help=about, persist_state="session", **url.flag(f"{key}.preview")):
        with display.show_errors(stop=False):
            search = _search(config, settings)
            if search is None:
                return
            preview = search.preview(settings)
            _draw_figures(preview, settings, key)
            _draw_yield(preview)
            _draw_suspicious(preview, key)
            _draw_downloads(search, preview, key)


def _search(config: DataConfig, settings: NegativesConfig) -> MiningSearch | None:
    """Return the search of these data and this encoder, a deeper one where the settings need it.

    None while a background task searches; its progress is drawn, and the page reruns when it is done.
    """
    source = config.model_copy(update={"negatives": None})
    models = (settings.encoder, settings.second_opinion)
    stamps = data_cache.file_stamps(*config.files, config.false_negatives, *models)
    cache_key = (source.model_dump_json(), models, stamps)
    search = _load_or_start(cache_key, source, settings)
    if search is None or search.covers(settings):
        return search
    depth = (settings.range_min, settings.range_max, settings.count, settings.has_limits)
    return _load_or_start((*cache_key, *depth), source, settings)


def _load_or_start(cache_key: Hashable, source: DataConfig, settings: NegativesConfig) -> MiningSearch | None:
    """Return the search with this key, or start its task and draw the progress."""
    data = data_cache.load_splits(source)
    for model in (data_cache.encoder_config(settings.encoder).name, settings.second_opinion):
        if model is not None:
            data_cache.confirm_download(model)
    if len(data.texts) <= MAX_TEXTS_INLINE:
        return data_cache.shared_value("mining", cache_key, lambda: _new_search(source, settings))
    from bsc_core.preparation.mining import MiningSearch
    from bsc_core.preparation.mining_task import search_file

    folder = cache_folder() / "mining" / hashlib.sha256(repr(cache_key).encode()).hexdigest()[:24]
    if search_file(folder).is_file():
        load = MiningSearch.load
        return data_cache.shared_value("mining", cache_key, lambda: load(search_file(folder), data))
    if not folder.is_dir():
        background_task.remove_oldest(folder.parent, f"*/{background_task.REQUEST}", MAX_FOLDERS - 1)
    encoder = data_cache.encoder_config(settings.encoder)
    request = {
        "data": source.model_copy(update={"negatives": settings}).model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
    }
    background_task.start(folder, "bsc_core.preparation.mining_task", request, user=users.task_user())
    turns.fragment(_draw_progress, run_every=POLL_INTERVAL)(folder, search_file(folder))
    return None


def _draw_progress(folder: Path, result: Path) -> None:
    """Draw the progress of the task; rerun the page when the search is done."""
    if result.is_file():
        st.rerun(scope="app")
    key = f"mining.again.{folder.name}"
    display.task_progress(folder, "Searching negatives", failed="The negatives could not be searched", key=key)


def _new_search(source: DataConfig, settings: NegativesConfig) -> MiningSearch:
    from bsc_core.preparation.mining import MiningSearch

    data = data_cache.load_splits(source)
    vectors = data_cache.text_vectors(data_cache.encoder_config(settings.encoder), data.texts)
    with st.spinner("Searching the nearest documents …"), turns.turn():
        return MiningSearch(data, vectors, settings)


def _draw_figures(preview: MiningPreview, settings: NegativesConfig, key: str) -> None:
    """Draw the histograms, and the sliders that move the limits of the form."""
    left, right = display.columns(2, min_width=320)
    low, high = _ends(preview)
    with left:
        limits = [limit for limit in (settings.min_score, settings.max_score) if limit is not None]
        table = figures.score_table(preview.scores)
        figure = figures.score_figure(table, axis="cosine to the query", limits=limits)
        name, title = f"{key}.scores.figure", "Cosine of the negatives to the query"
        display.figure(figure, name="mining.scores", alt=_alt(preview), title=title, data=table, key=name)
        widget = f"{key}.scores"
        chosen = (settings.min_score, settings.max_score)
        st.session_state[widget] = (_inside(chosen[0], low, high, low), _inside(chosen[1], low, high, high))
        st.slider("Scores of negatives", low, high, step=0.01, key=widget, on_change=_set_scores, args=(key, low, high))
    with right:
        limits = [] if settings.absolute_margin is None else [-settings.absolute_margin]
        table = figures.score_table(preview.gaps)
        figure = figures.score_figure(table, axis="cosine minus that of the positive", limits=limits)
        name, title = f"{key}.gaps.figure", "The same compared with the positive"
        display.figure(figure, name="mining.gaps", alt=_alt(preview), title=title, data=table, key=name)
        widget = f"{key}.margin"
        st.session_state[widget] = _inside(settings.absolute_margin, LOWEST_MARGIN, 0.5, LOWEST_MARGIN)
        about = f"Minimum difference to the least similar positive of the query; {LOWEST_MARGIN:g}: any."
        st.slider(
            "Absolute margin", LOWEST_MARGIN, 0.5, step=0.01, key=widget, help=about, on_change=_set_margin, args=(key,)
        )


def _draw_yield(preview: MiningPreview) -> None:
    """Draw the numbers of negatives by query, what the limits dropped, and the queries without negatives."""
    report = preview.report
    parts = [
        f"{formatting.plural(number, 'query', 'queries')} with {count}" for count, number in report["per_query"].items()
    ]
    st.markdown(
        f"**{formatting.plural(report['negatives'], 'negative')}** for {formatting.count(report['queries'])} queries: "
        f"{', '.join(parts)}."
    )
    dropped = [f"{count:,} {REASONS[name]}" for name, count in report["dropped"].items() if count]
    if dropped:
        st.caption(f"Left out of the nearest documents: {'; '.join(dropped)}.")
    if report["without"]:
        rows = [
            {"query": display.cell(one["query"]), "reason": f"documents {REASONS[one['reason']]}"}
            for one in report["without"]
        ]
        number = report["per_query"].get("0", 0)
        st.markdown(f"**Queries without negatives** ({number:,})")
        st.dataframe(rows, hide_index=True, alt="Queries without negatives and the reasons")


def _draw_suspicious(preview: MiningPreview, key: str) -> None:
    """Draw the negatives that are closest to being positives."""
    rows = [
        {
            "difference": round(one["cosine"] - one["positive_cosine"], 4),
            "cosine": one["cosine"],
            "of the positive": one["positive_cosine"],
            **{name: display.cell(one[name]) for name in ("query", "negative", "positive")},
        }
        for one in preview.report["likely_false_negatives"]
    ]
    if rows:
        st.markdown("**Most likely false negatives**, by the difference of the cosines")
        widths = {name: st.column_config.NumberColumn(width="small", format="%.3f") for name in list(rows[0])[:3]}
        about = "Selected negatives, the most similar first"
        st.dataframe(rows, hide_index=True, key=f"{key}.suspicious", alt=about, column_config=widths)


def _draw_downloads(search: MiningSearch, preview: MiningPreview, key: str) -> None:
    from bsc_core.preparation.mining import LAYOUTS

    if not preview.report["negatives"]:
        st.caption("These limits select no negative; widen them.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        bound = url.bound(f"{key}.layout", LAYOUTS)
        layout = st.segmented_control("Layout", LAYOUTS, default=LAYOUTS[0], required=True, **bound)
        for ending, mime in FORMATS.items():
            display.download(
                f"Save as {ending}",
                lambda ending=ending: search.file(preview.mined, ending, layout),
                file_name=f"negatives{ending}",
                mime=mime,
                key=f"{key}.save{ending}",
            )


def _ends(preview: MiningPreview) -> tuple[float, float]:
    """Return the range of all scores, in steps of 0.01."""
    values = [values for values in preview.scores.values() if len(values)]
    low, high = min(float(one.min()) for one in values), max(float(one.max()) for one in values)
    return round(low - 0.005, 2), round(high + 0.005, 2)


def _inside(value: float | None, low: float, high: float, default: float) -> float:
    return default if value is None else min(max(value, low), high)


def _set_scores(key: str, low: float, high: float) -> None:
    chosen_low, chosen_high = st.session_state[f"{key}.scores"]
    _set(
        key, min_score=None if chosen_low <= low else chosen_low, max_score=None if chosen_high >= high else chosen_high
    )


def _set_margin(key: str) -> None:
    margin = st.session_state[f"{key}.margin"]
    _set(key, absolute_margin=None if margin <= LOWEST_MARGIN else margin)


def _set(key: str, **values: Any) -> None:
    for field, value in values.items():
        st.session_state[config_form.key(key, SECTION, field)] = value


def _alt(preview: MiningPreview) -> str:
    counts = ", ".join(f"{len(values):,} {kind}s" for kind, values in preview.scores.items())
    return f"Histograms of cosines: {counts}"
