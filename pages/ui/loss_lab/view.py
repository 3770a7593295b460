"""Loss lab: state from a link, batch selection, panels, toy training and next steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.config import LOSS_CONFIGS, EncoderConfig, LossConfig, TripletLossConfig
from bsc_core.data.dataset import PairDataset
from bsc_core.errors import InputError
from bsc_core.lab.batch import LARGEST, SMALLEST, LabBatch, circle_batch
from bsc_core.lab.link import MARGIN_LIMITS, SETTING_B, LabLink, lab_parameters, read_link
from bsc_core.lab.presets import GUIDE, PRESETS, preset_batch, rows_batch
from bsc_core.lab.settings import LabSettings
from bsc_core.lab.toy_training import TOY_LOSSES
from bsc_core.losses.explain import Explanation, SameSide, first_largest
from pages.ui.components import data_cache, display, glossary, page_layout, run_data, turns, url
from pages.ui.loss_lab.browser import LabState, lab_component, player
from pages.ui.new_run.config_summary import LOSS_NAMES

TEMPERATURES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
MAX_TYPED = 2_000  # characters of a typed text that are used
MAX_ADDED_ROWS = 100  # of the table of typed texts

SOURCES = {
    "preset": "Example",
    "circle": "Circle",
    "dataset": "Dataset",
    "typed": "Typed texts",
}
TEMPERATURE_LOSSES = [name for name in TOY_LOSSES if "temperature" in LOSS_CONFIGS[name].model_fields]
COMPARES_LABELS = ("pearson", "cosent", "angle")  # of the pairs of a batch
VECTORS = {False: "Vectors of the texts", True: "Word vectors (static encoder)"}
GLOSSARY = (
    *("temperature", "directions", "partition", "effective_negatives", "gradient", "normalization", "duplicates"),
    *("mask", "mask_margin", "mask_margin_kind", "hardness", "hardness_strength", "decoupled", "debiased_prior"),
    *("labeled_negatives", "reduction", "average", "threshold"),
)
HOW_TO_READ = """
- A row is a query, a column a document. The cells on the diagonal are the pairs of the batch. The others are negatives,
  unless their border marks them as another positive or as excluded.
- The **first matrix** has the similarity of each query and document.
- The **second matrix** has the softmax of each row: similarities are divided by the temperature and become
  probabilities. At the same temperature, larger probabilities on the diagonal mean that the encoder fits this batch
  better.
- The **third matrix** is what training does with each cell: green pulls the two texts together, orange pushes them
  apart, and the color shows how strongly.
- If the directions include the other queries or the other documents of the batch as candidates, **further matrices**
  have their cells. All matrices then share one softmax.
- Point at a cell to see its texts and its formula. Lower the temperature to see the push move to the most similar
  negatives.
"""
EXAMPLE = (
    ("How do I keep bread fresh?", "Store the loaf cut side down in a paper bag.", 1.0),
    ("Why is my bike so noisy?", "Clean the chain and put a drop of oil on each link.", 1.0),
    ("When should I water tomatoes?", "Early in the morning, at the roots.", 1.0),
    ("How do I keep bread fresh?", "Bread was first baked in Egypt.", 0.0),
)


def _key(name: str) -> str:
    """Return the session key of a widget; a new link creates new widgets."""
    return f"learn.{st.session_state.get('learn.version', 0)}.{name}"


def read_url() -> None:
    """Apply the state of a link and report what in it is invalid."""
    linked = lab_parameters(st.query_params.to_dict())
    is_link = bool(linked) or url.is_history_navigation()
    if is_link and linked != st.session_state.get("learn.written"):
        st.session_state["learn.version"] = st.session_state.get("learn.version", 0) + 1
        st.session_state["learn.link"], st.session_state["learn.faults"] = read_link(linked)
        for error in st.session_state["learn.faults"]:
            url.report(error, f"{error}.")


def link() -> LabLink:
    """Return the current state."""
    current: LabLink = st.session_state.setdefault("learn.link", LabLink())
    return current


def _update(**changes: Any) -> None:
    st.session_state["learn.link"] = replace(link(), **changes)


def select_batch() -> LabBatch:
    """Draw the batch selection and return the batch.

    Raises:
        InputError: The source has no valid batch.
    """
    source_cell, settings_cell = display.columns(2, min_width=330)
    source = source_cell.segmented_control(
        "Batch", list(SOURCES), format_func=SOURCES.get, default=link().source, required=True, key=_key("source")
    )
    _update(source=source)
    with settings_cell:
        match source:
            case "preset":
                return _preset()
            case "circle":
                return _circle()
            case "typed":
                return _typed()
            case _:
                return _rows(page_layout.context_bar(("dataset", "encoder")))


def _preset() -> LabBatch:
    names, titles = list(PRESETS), {name: preset.title for name, preset in PRESETS.items()}
    index = names.index(link().preset)
    name = st.selectbox("Example", names, index, format_func=titles.get, key=_key("preset"))
    _update(preset=name)
    return preset_batch(name)


def _circle() -> LabBatch:
    state = link()
    pairs, spread, seed = st.columns(3)
    circle = {
        "pairs": pairs.number_input("Pairs", SMALLEST, LARGEST, state.pairs, key=_key("pairs")),
        "spread": spread.number_input(
            "Spread in degrees",
            *(0.0, 180.0, state.spread, 5.0),
            key=_key("spread"),
            help="The angle between a query and its document is random, at most this large.",
        ),
        "seed": seed.number_input("Seed", 0, 9999, state.seed, key=_key("seed")),
    }
    is_same = all(getattr(state, name) == value for name, value in circle.items())
    _update(**circle, angles=state.angles if is_same else None)
    return circle_batch(**circle, angles=link().angles)


def _rows(context: page_layout.Context) -> LabBatch:
    data = data_cache.dataset_splits(context.dataset_key)
    state, last_start = link(), max(1, len(data.train) - SMALLEST + 1)
    first_cell, size_cell = st.columns(2)
    first = first_cell.number_input("First row", 1, last_start, min(state.first, last_start), key=_key("first"))
    size = size_cell.number_input("Pairs", SMALLEST, LARGEST, state.size, key=_key("size"))
    size = min(size, LARGEST)  # a client could send more
    _update(first=first, size=size)
    rows = data.train.take(np.arange(first - 1, min(first - 1 + size, len(data.train)))).compact()
    title = f"Rows {first} to {first - 1 + len(rows)} of {data_cache.datasets()[context.dataset_key].label}"
    return _encoded(title, rows, data_cache.encoder_config(context.encoder))


def _check_added_rows() -> None:
    """Drop the rows that a client added to the table if there are too many, since Streamlit adds them one by one."""
    added = (st.session_state.get(_key("typed")) or {}).get("added_rows") or ()
    if len(added) > MAX_ADDED_ROWS:
        del st.session_state[_key("typed")]
        raise InputError(f"{len(added):,} rows were added to the table; the lab needs {SMALLEST} to {LARGEST}")


def _typed() -> LabBatch:
    rows = link().typed or EXAMPLE
    table = pd.DataFrame(rows, columns=["query", "document", "label"])
    _check_added_rows()
    edited = st.data_editor(
        table,
        num_rows="dynamic",
        hide_index=True,
        column_order=("label", "query", "document"),
        column_config={"label": st.column_config.NumberColumn("label", min_value=0.0, max_value=1.0, width="small")},
        key=_key("typed"),
    )
    st.caption(
        "Label 1: positive pair. Label 0: labeled negative, an irrelevant document; its query appears again, in a row "
        "of its own. **Repeated texts** below sets whether the relevant document of a repeated query is a false "
        "negative. Add rows at the end of the table."
    )
    typed = [
        (
            str(query or "").strip()[:MAX_TYPED],
            str(document or "").strip()[:MAX_TYPED],
            1.0 if pd.isna(label) else float(label),
        )
        for query, document, label in edited.itertuples(index=False)
    ]
    typed = [row for row in typed if row[0] or row[1]]
    _update(typed=tuple(typed))
    for number, (query, document, _) in enumerate(typed, 1):
        if not (query and document):
            raise InputError(
                f"typed row {number} has no {'document' if query else 'query'}; fill it in or delete the row"
            )
    if not SMALLEST <= len(typed) <= LARGEST:
        raise InputError(f"there are {len(typed)} typed rows; the lab needs {SMALLEST} to {LARGEST}")
    if not link().fits_in_link:
        st.caption("These texts are too long for the link; it opens the lab without them.")
    queries, documents, labels = zip(*typed, strict=True)
    if not all(0 <= label <= 1 for label in labels):
        raise InputError("a typed label is outside 0 to 1; use 1 for positive and 0 for negative pairs")
    return _encoded("Typed texts", PairDataset.from_pairs(queries, documents, labels), EncoderConfig())


def _encoded(title: str, rows: PairDataset, encoder: EncoderConfig) -> LabBatch:
    with st.spinner(f"Encoding {len(rows.texts)} texts …"):
        return rows_batch(title, rows, run_data.encode_few_texts(encoder, rows.texts))


def lab(batch: LabBatch) -> LabState:
    """Draw the panels for one or two settings and return the state of their controls."""
    start = link()
    with st.container(horizontal=True, vertical_alignment="center"):
        is_comparison = st.toggle("Compare two settings", start.compare is not None, key=_key("compare"))
        glossary.popover(*GLOSSARY)
        with st.popover("How to read it", icon=":material/visibility:"):
            st.markdown(HOW_TO_READ)
        if start.source == "preset":
            st.caption(PRESETS[start.preset].shows)
    pinned = start.pinned if start.pinned and max(start.pinned[:2]) < len(batch) else None
    second = (start.compare or LabSettings(temperature=0.5)) if is_comparison else None
    if "guide" in (start.settings.mask, second and second.mask) and batch.guide is None:
        st.caption("Only the example batches have vectors of a guide model; the mask `guide` is off for this batch.")
    elif "guide" in (start.settings.mask, second and second.mask):
        st.caption(f"The guide model is `{GUIDE}`.")
    key = _key(f"lab.{st.session_state.get('learn.lab', 0)}")
    state = lab_component(batch, start.settings, key=key, compare=second, pinned=pinned)
    _update(**vars(state))
    return state


def summary(result: Explanation, settings: LabSettings) -> str:
    """Summarize the panels in one or two sentences."""
    anchors = result.row_positives.any(axis=1)
    if not anchors.any():
        return "No pair of this batch is positive, so the loss is 0."
    is_candidate = (result.rows != 0) | result.row_positives  # a decoupled positive has no probability
    scores = np.where(is_candidate, result.similarity, -np.inf)  # weights and temperature do not change ranks
    best = np.take_along_axis(result.row_positives, first_largest(scores)[:, None], axis=1)[:, 0] & anchors
    push = {("query", "document"): np.where(result.row_positives, 0.0, result.gradient)}
    push |= {(kind, kind): side.gradient for kind, side in _same_side(result)}
    largest = {kinds: float(np.abs(values).max()) for kinds, values in push.items()}
    first, second = max(largest, key=lambda kinds: largest[kinds])
    pull = np.abs(push[first, second])
    row, column = np.unravel_index(int(first_largest(pull.ravel())), pull.shape)
    strongest = f" Most strongly pushed apart: {first} {row + 1} and {second} {column + 1}." if pull.max() > 0 else ""
    among = " of the documents that the mask does not exclude" if settings.mask != "none" else ""
    return (
        f"{int(best.sum())} of {int(anchors.sum())} queries rank a positive first{among}. At temperature "
        f"{settings.temperature:g}, the effective number of negatives of a query is {result.effective_negatives:.1f} "
        f"on average.{strongest}"
    )


def toy_training(batch: LabBatch, state: LabState) -> None:
    """Train the vectors of the batch with one or two losses and show the training as an animation."""
    start, names = link(), list(TOY_LOSSES)
    has_texts = start.source != "circle"
    loss_cell, second_cell, more_cell, temperature_cell, button_cell = display.columns(5, min_width=170)
    name = loss_cell.selectbox(
        "Loss", names, names.index(start.watch or "bsc"), format_func=LOSS_NAMES.get, key=_key("watched")
    )
    others = ["", *([SETTING_B] if state.compare and name == "bsc" else []), *(one for one in names if one != name)]
    second = second_cell.selectbox(
        "Compare with",
        others,
        others.index(start.second_loss) if start.second_loss in others else 0,
        format_func=lambda other: {SETTING_B: "setting B", **LOSS_NAMES}.get(other, "no other loss"),
        key=_key("second_loss"),
    )
    words = has_texts and more_cell.selectbox(
        "Trained vectors", list(VECTORS), int(start.words), format_func=VECTORS.get, key=_key("words")
    )
    has_temperature = not {name, second}.isdisjoint(TEMPERATURE_LOSSES)
    if not has_texts:
        with more_cell:
            _select_temperature(state.settings.temperature, disabled=not has_temperature)
    bottom, button_bottom = (
        cell.container(height="stretch", vertical_alignment="bottom") for cell in (temperature_cell, button_cell)
    )
    learn = bottom.toggle(
        "Learn the temperature",
        start.learn_temperature,
        key=_key("learn_temperature"),
        disabled=not has_temperature,
    )
    margin = start.margin
    if "triplet" in (name, second):
        margin = st.number_input(
            "Margin of the triplet loss",
            *MARGIN_LIMITS,
            start.margin,
            0.05,
            key=_key("margin"),
            help="The negative of each query is the most similar other document.",
            width=230,
        )
    _update(learn_temperature=learn and has_temperature, margin=margin)
    is_clicked = button_bottom.button("Train 100 steps", icon=":material/play_arrow:", key=_key("watch"))
    if is_clicked or start.watch:
        _update(watch=name, second_loss=second, words=words)
    if not link().watch and start.source != "circle":
        st.caption("Trains the vectors of this batch for 100 steps and shows the texts as moving points.")
        return
    if state.compare and "bsc" in (name, second) and second != SETTING_B:
        st.caption("The batch softmax is trained with setting A.")
    losses = [_toy_loss(one, state.settings, learn, margin) for one in (name, second) if one not in ("", SETTING_B)]
    titles = [LOSS_NAMES[loss.name] for loss in losses]
    if second == SETTING_B and state.compare:
        losses.append(_toy_loss("bsc", state.compare, learn, margin))
        titles = ["Setting A", "Setting B"]
    if compared := _what_to_compare(losses):
        st.caption(compared)
    for loss in losses:
        if isinstance(loss, TripletLossConfig) and (warning := loss.margin_warning):
            st.caption(warning)
    graded = [LOSS_NAMES[loss.name] for loss in losses if loss.name in COMPARES_LABELS]
    if graded and len(set(batch.labels.tolist())) == 1:
        st.caption(
            f"All pairs of this batch have the same label, so the loss is 0 at each step: {' and '.join(graded)}."
        )
    columns = batch.query_texts, batch.document_texts, batch.queries.tobytes(), batch.labels.tobytes()
    key = f"{batch.title} {hash(columns)}"
    with turns.turn():
        traces = [_train_words(loss.model_dump(), key, _batch=batch) for loss in losses] if words else None
    title = f"100 steps of training: {' and '.join(titles)}"
    with display.figure_frame(
        title, name="toy-training", data=lambda: _steps_table(batch, losses, traces, titles), key=_key("steps")
    ):
        player(batch, losses, traces, key=_key("player"), angles=link().angles, titles=titles, on_move=_move_points)


def _steps_table(
    batch: LabBatch, losses: Sequence[LossConfig], traces: Sequence[Any] | None, titles: Sequence[str]
) -> pd.DataFrame:
    """Return one row per loss and step; what the browser trained is computed again."""
    from bsc_core.lab.toy_training import train_points

    traces = traces or [train_points(batch, loss) for loss in losses]
    columns = ("loss", "temperature", "correct", "gap")
    tables = [pd.DataFrame({name: getattr(trace, name) for name in columns}).round(6) for trace in traces]
    names = {"correct": "queries_with_the_positive_first", "gap": "smallest_gap"}
    table = pd.concat(tables, keys=titles, names=["training", "step"])
    return table.rename(columns=names).dropna(axis="columns", how="all").reset_index()


def _what_to_compare(losses: Sequence[LossConfig]) -> str:
    """Return what the animation of these losses shows."""
    names = {loss.name for loss in losses}
    sentences = []
    if "bsc" in names:
        sentences.append(
            "With the batch softmax, a text of a positive pair is pulled by its partner and pushed by other pairs."
        )
    if "mse" in names:
        sentences.append("The squared error trains only the cosines of the pairs, on the diagonal.")
    if len(losses) > 1:
        sentences.append("The losses can have different scales, so compare the smallest gap, which has one scale.")
    if any(getattr(loss, "learn_temperature", False) for loss in losses):
        sentences.append(
            "A learned temperature changes the scale of the loss: a lower loss need not mean a larger gap."
        )
    return " ".join(sentences)


def _select_temperature(value: float, *, disabled: bool) -> None:
    """Draw a slider of the temperature of the lab, next to the figure of the training."""
    key = _key("toy_temperature")
    st.session_state[key] = min(TEMPERATURES, key=lambda option: abs(np.log(option / value)))
    st.select_slider(
        "Temperature",
        TEMPERATURES,
        format_func=lambda option: f"{option:g}",
        key=key,
        disabled=disabled,
        on_change=_use_temperature,
        args=(key,),
    )


def _use_temperature(key: str) -> None:
    _update(settings=replace(link().settings, temperature=st.session_state[key]))
    st.session_state["learn.lab"] = st.session_state.get("learn.lab", 0) + 1


def _toy_loss(name: str, settings: LabSettings, learn_temperature: bool, margin: float) -> LossConfig:
    config = {"name": name} | (settings.loss_values() if name == "bsc" else {})
    if name in TEMPERATURE_LOSSES:
        config |= {"temperature": settings.temperature, "learn_temperature": learn_temperature}
    config |= {"margin": margin} if name == "triplet" else {}
    return LOSS_CONFIGS[name].model_validate(config)  # type: ignore[return-value]


def _move_points() -> None:
    """Use the points that were dragged on the circle as the batch."""
    player_state = st.session_state.get(_key("player")) or {}
    angles = player_state.get("angles") or ()  # none when Streamlit draws the player again between two moves
    if len(angles) == 2 * link().pairs and all(isinstance(angle, int) and 0 <= angle < 360 for angle in angles):
        _update(angles=tuple(angles))


@st.cache_data(max_entries=16, show_spinner="Training the toy batch …")
def _train_words(config: dict[str, Any], batch_key: str, _batch: LabBatch) -> Any:
    from bsc_core.lab.toy_training import train_tokens

    return train_tokens(_batch, LOSS_CONFIGS[config["name"]].model_validate(config))  # type: ignore[arg-type]


def write_link(state: LabState) -> None:
    """Write the state into the URL."""
    values = link().to_query()
    display.write_url(values, lab_parameters(st.query_params.to_dict()))
    st.session_state["learn.written"] = values


def next_steps(state: LabState) -> None:
    """Draw the buttons that open a new run with these settings, or with the triplet loss of the toy training."""
    losses = {"Use in a run": state.settings}
    if state.compare:
        losses = {"Use setting A in a run": state.settings, "Use setting B in a run": state.compare}
    with page_layout.action_bar():
        for number, (label, settings) in enumerate(losses.items()):
            loss = {"name": "bsc", **settings.loss_values(), "learn_temperature": link().learn_temperature}
            if link().watch == "triplet":
                loss = {"name": "triplet", "margin": link().margin}
            key, sent = f"learn.run{number or ''}", {"loss": loss}
            page_layout.next_step_button(label, "train", key=key, settings=sent, primary=number == 0)


def cells(batch: LabBatch, result: Explanation) -> pd.DataFrame:
    """Return one row per cell: texts, similarity, probabilities and gradient."""
    rows, columns = np.indices(result.similarity.shape).reshape(2, -1)
    table = {
        "query": [batch.query_texts[row] for row in rows],
        "document": [batch.document_texts[column] for column in columns],
        "similarity": result.similarity.ravel(),
        "p_document_given_query": result.rows.ravel(),
        "gradient": result.gradient.ravel(),
    }
    if result.columns is not None:
        table["p_query_given_document"] = result.columns.ravel()
    tables = [pd.DataFrame(table)]
    for kind, side in _same_side(result):
        texts = {"query": batch.query_texts, "document": batch.document_texts}[kind]
        table = {
            kind: [texts[row] for row in rows],
            f"other_{kind}": [texts[column] for column in columns],
            "similarity": side.similarity.ravel(),
            f"p_other_{kind}_given_{kind}": side.probability.ravel(),
            "gradient": side.gradient.ravel(),
        }
        tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)


def _same_side(result: Explanation) -> list[tuple[str, SameSide]]:
    """Return the cells of the queries and of the documents, as far as they are used."""
    sides = {"query": result.query_query, "document": result.document_document}
    return [(kind, side) for kind, side in sides.items() if side is not None]
