"""What the loss lab's page does: arrive by a link, choose a batch, look, watch it learn, and go on."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.config import LOSS_CONFIGS, EncoderConfig
from bsc_core.data.pairs import PairDataset
from bsc_core.errors import InputError
from bsc_core.lab.batch import LARGEST, SMALLEST, LabBatch
from bsc_core.lab.circle import circle_batch
from bsc_core.lab.link import LabLink, is_told, read_link
from bsc_core.lab.presets import PRESETS, preset_batch, rows_batch
from bsc_core.lab.settings import LabSettings
from bsc_core.losses.explain import Explanation, explain
from pages.ui import frame, show, store
from pages.ui.lab.component import LabState, lab_component
from pages.ui.player.component import player
from pages.ui.words import help_text

SOURCES = {
    "preset": "Shipped batch",
    "circle": "Points on a circle",
    "dataset": "Rows of the dataset",
    "typed": "Typed",
}
WATCHED = ("bsc", "mnrl", "mse", "pearson", "contrastive", "online_contrastive")
EXAMPLE = (
    ("How do I keep bread fresh?", "Store the loaf cut side down in a paper bag.", 1.0),
    ("Why is my bike so noisy?", "Clean the chain and put a drop of oil on each link.", 1.0),
    ("When should I water tomatoes?", "Early in the morning, at the roots.", 1.0),
    ("How do I keep bread fresh?", "Bread was first baked in Egypt.", 0.0),
)


def _key(name: str) -> str:
    """The session key of a widget; a new link makes new widgets."""
    return f"learn.{st.session_state.get('learn.version', 0)}.{name}"


def arrive() -> None:
    """Take over the state of a link that was followed, saying what in it cannot be used."""
    told = is_told(st.query_params.to_dict())
    if told and told != st.session_state.get("learn.written"):
        st.session_state["learn.version"] = st.session_state.get("learn.version", 0) + 1
        st.session_state["learn.link"], st.session_state["learn.faults"] = read_link(told)
        for fault in st.session_state["learn.faults"]:
            show.error(InputError(fault))


def link() -> LabLink:
    """The state as it was last committed."""
    kept: LabLink = st.session_state.setdefault("learn.link", LabLink())
    return kept


def _keep(**changes: Any) -> None:
    st.session_state["learn.link"] = replace(link(), **changes)


def choose_batch(context: frame.Context) -> LabBatch:
    """The batch to look at. Raises InputError where its source cannot give one."""
    place, settings = show.columns(2, least=330)
    with place:
        names = list(SOURCES)
        source = st.segmented_control(
            "Batch",
            names,
            format_func=SOURCES.__getitem__,
            default=link().source,
            required=True,
            key=_key("source"),
        )
    _keep(source=source)
    with settings:
        return (
            {"preset": _preset, "circle": _circle, "typed": _typed}[source]() if source != "dataset" else _rows(context)
        )


def _preset() -> LabBatch:
    names = list(PRESETS)
    name = st.selectbox(
        "Shipped batch",
        names,
        index=names.index(link().preset),
        format_func=lambda preset: PRESETS[preset].title,
        key=_key("preset"),
    )
    _keep(preset=name)
    st.caption(PRESETS[name].shows)
    return preset_batch(name)


def _circle() -> LabBatch:
    now = link()
    pairs, spread, seed = st.columns(3)
    chosen = {
        "pairs": pairs.number_input("Pairs", SMALLEST, LARGEST, now.pairs, key=_key("pairs")),
        "spread": spread.number_input("Spread in degrees", 0.0, 180.0, now.spread, 5.0, key=_key("spread")),
        "seed": seed.number_input("Seed", 0, 9999, now.seed, key=_key("seed")),
    }
    _keep(**chosen)
    return circle_batch(**chosen)


def _rows(context: frame.Context) -> LabBatch:
    data = store.experiment_data(context.dataset_key)
    now, most = link(), max(1, len(data.train) - SMALLEST + 1)
    first, size = st.columns(2)
    start = first.number_input("First row", 1, most, min(now.first, most), key=_key("first"))
    number = size.number_input("Pairs", SMALLEST, LARGEST, now.size, key=_key("size"))
    _keep(first=start, size=number)
    rows = data.train.take(np.arange(start - 1, min(start - 1 + number, len(data.train)))).compact()
    title = f"Rows {start} to {start - 1 + len(rows)} of {store.datasets()[context.dataset_key].label}"
    return _encoded(title, rows, store.encoder_config(context.encoder))


def _typed() -> LabBatch:
    rows = link().typed or EXAMPLE
    table = pd.DataFrame(rows, columns=["query", "document", "label"])
    edited = st.data_editor(
        table,
        num_rows="dynamic",
        hide_index=True,
        column_order=("label", "query", "document"),
        column_config={"label": st.column_config.NumberColumn("label", min_value=0.0, max_value=1.0, width="small")},
        key=_key("typed"),
    )
    st.caption("A label of 1 marks a right pair, 0 a labelled negative. Rows can be added at the foot of the table.")
    given = [(str(q or "").strip(), str(d or "").strip(), label) for q, d, label in edited.itertuples(index=False)]
    given = [row for row in given if row[0] or row[1]]
    _keep(typed=tuple((query, document, 1.0 if pd.isna(label) else float(label)) for query, document, label in given))
    for number, (query, document, _) in enumerate(given, 1):
        if not (query and document):
            raise InputError(
                f"typed row {number} has no {'document' if query else 'query'}; fill it in or remove the row"
            )
    if not SMALLEST <= len(given) <= LARGEST:
        raise InputError(f"{len(given)} typed rows; the lab shows {SMALLEST} to {LARGEST}: add or remove rows")
    if not link().fits_in_link:
        st.caption("These texts are too long for a link; the link opens the rest of the lab without them.")
    queries, documents, labels = zip(*link().typed, strict=True)
    if not all(0 <= label <= 1 for label in labels):
        raise InputError("a typed label is outside 0 to 1; 1 is right, 0 is wrong")
    return _encoded("Typed by hand", PairDataset.from_pairs(queries, documents, labels), EncoderConfig())


def _encoded(title: str, rows: PairDataset, encoder: EncoderConfig) -> LabBatch:
    with st.spinner(f"Encoding {len(rows.texts)} texts …"):
        from bsc_core.encoders import embed

        return rows_batch(title, rows, embed(encoder, rows.texts))


def lab(batch: LabBatch) -> LabState:
    """The three panels, once or with a second setting, and what was last committed in them."""
    now = link()
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        comparing = st.toggle("Compare with a second setting", now.compare is not None, key=_key("compare"))
        _words()
    pinned = now.pinned if now.pinned and max(now.pinned) < len(batch) else None
    second = (now.compare or LabSettings(temperature=0.5)) if comparing else None
    state = lab_component(batch, now.settings, key=_key("lab"), compare=second, pinned=pinned)
    _keep(settings=state.settings, compare=state.compare, pinned=state.pinned)
    return state


def _words() -> None:
    """What the words of the lab mean."""
    with st.popover("What the words mean", icon=":material/help:"):
        for word in ("temperature", "symmetric", "effective_negatives", "gradient", "normalization", "duplicates"):
            st.markdown(f"**{word.replace('_', ' ').capitalize()}**. {help_text(word)}")


def explained(batch: LabBatch, settings: LabSettings) -> Explanation:
    """What the core computes for the batch and the settings in view."""
    return explain(
        batch.queries,
        batch.documents,
        batch.labels,
        config=settings.config(),
        query_ids=batch.query_ids,
        document_ids=batch.document_ids,
    )


def sentence(found: Explanation, settings: LabSettings) -> str:
    """What is to be seen, with its numbers."""
    anchors = found.row_positives.any(axis=1)
    if not anchors.any():
        return "No pair of this batch is positive, so there is nothing to learn from it: the loss is 0."
    best = np.take_along_axis(found.row_positives, found.rows.argmax(axis=1)[:, None], axis=1)[:, 0] & anchors
    pull = np.abs(np.where(found.row_positives, 0.0, found.gradient))
    row, column = np.unravel_index(int(pull.argmax()), pull.shape)
    strongest = f" The strongest push is on query {row + 1} and document {column + 1}." if pull.max() > 0 else ""
    return (
        f"At temperature {settings.temperature:g}, {int(best.sum())} of {int(anchors.sum())} queries would choose a "
        f"right document, and each one's wrong choices weigh like {found.effective_negatives:.1f} equal negatives."
        + strongest
    )


def watch(batch: LabBatch, state: LabState) -> None:
    """Train the batch's vectors under a loss and play what happens."""
    now = link()
    loss, space, learned, button = show.columns(4, least=190)
    with loss:
        names = list(WATCHED)
        name = st.selectbox("Loss", names, names.index(now.watch) if now.watch in names else 0, key=_key("watched"))
    with space:
        words = st.selectbox("What moves", (False, True), int(now.words), format_func=_space, key=_key("words"))
    with learned:
        learn = st.toggle("Learn the temperature", key=_key("learn_temperature"), disabled=name not in ("bsc", "mnrl"))
    with button:
        if st.button("Watch it learn: 100 steps", icon=":material/play_arrow:", type="primary", key=_key("watch")):
            _keep(watch=name, words=words)
        elif now.watch and (now.watch, now.words) != (name, words):
            _keep(watch="")
    if link().watch:
        with st.spinner("Training the toy batch …"):
            config = _watched_config(name, state.settings, learn)
            watched = _watched(config, words, asdict_of(batch), _batch=batch)
        player(watched, batch, key=_key("player"))
    else:
        st.caption("The texts of the batch become points that move: 100 steps of the loss, played as an animation.")


def _space(words: bool) -> str:
    return "Word vectors (static encoder)" if words else "The points themselves"


def _watched_config(name: str, settings: LabSettings, learn: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"name": name}
    if name == "bsc":
        values |= asdict(settings)
    if name in ("bsc", "mnrl"):
        values["learn_temperature"] = learn
    return LOSS_CONFIGS[name].model_validate(values).model_dump()


def asdict_of(batch: LabBatch) -> str:
    """What tells one batch from another."""
    return f"{batch.title} {hash((batch.query_texts, batch.document_texts, batch.queries.tobytes()))}"


@st.cache_data(max_entries=16, show_spinner=False)
def _watched(config: dict[str, Any], words: bool, name: str, _batch: LabBatch) -> Any:
    from bsc_core.lab.watch import watch_points, watch_words

    loss = LOSS_CONFIGS[config["name"]].model_validate(config)
    return (watch_words if words else watch_points)(_batch, loss)  # type: ignore[arg-type]


def write_link(state: LabState) -> None:
    """Put the whole state into the URL."""
    wanted = link().to_query()
    for name in set(is_told(st.query_params.to_dict())) - set(wanted):
        del st.query_params[name]
    for name, value in wanted.items():
        if st.query_params.get(name) != value:
            st.query_params[name] = value
    st.session_state["learn.written"] = wanted


def onward(batch: LabBatch, found: Explanation, state: LabState) -> None:
    """The cells as a file, and the button that carries the settings to a run."""
    show.table_download(cells(batch, found), name="loss-lab", key="learn.data")
    if st.button(
        "Use in a run", key="learn.run", type="primary", icon=":material/arrow_forward:", icon_position="right"
    ):
        store.keep_plan({"loss": {"name": "bsc", **asdict(state.settings)}})
        frame.go("train")


def cells(batch: LabBatch, found: Explanation) -> pd.DataFrame:
    """One line a cell: its texts, similarity, probabilities and gradient."""
    rows, columns = np.indices(found.similarity.shape).reshape(2, -1)
    table = {
        "query": [batch.query_texts[row] for row in rows],
        "document": [batch.document_texts[column] for column in columns],
        "similarity": found.similarity.ravel(),
        "query_chooses": found.rows.ravel(),
        "gradient": found.gradient.ravel(),
    }
    if found.columns is not None:
        table["document_chooses"] = found.columns.ravel()
    return pd.DataFrame(table)
