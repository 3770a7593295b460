"""Texts selected on a map, and their nearest neighbors in embedding space."""

import base64
import hashlib
from typing import Any

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.data.load import DatasetSplits
from bsc_core.data.text_normalization import find_words
from bsc_core.projection import count_shared_neighbors, sample_rows
from pages.ui.components import display, page_layout, turns, url
from pages.ui.embeddings import text_attributes
from pages.ui.embeddings.frames import CACHE_KEY, SEED, MapData

MAX_FIND = 200  # characters of the words to find, which a link may also contain
TEXT_WIDTH, NEIGHBOR_WIDTH = 250, 380  # pixels of a column with texts
MAX_TITLE_WORDS = 40  # characters of the words to find in a title
MAX_LISTED = 200
MAX_COMPARISONS = 50_000_000  # pairs of texts whose cosines the two models compute
MAX_CHANGED = 20
NEIGHBORS = 10
SHARED = f"Shared neighbors (of {NEIGHBORS})"
NO_TEXTS = np.empty(0, dtype=np.int32)
SELECTED = "embeddings.selected"  # parameter of the URL
PAIR = "embeddings.pair"  # parameter of the URL: the ids of a query and a document, see `pair_matrix`
TEXT = "embeddings.text"  # parameter of the URL: the text whose neighbors are listed
PARAMETERS = SELECTED, PAIR, TEXT
MAX_IN_URL = 4000  # characters
MAX_ID = 2**31 - 1


def load(data: MapData) -> np.ndarray:
    """Return the ids of the texts that were selected on the map, from the URL or, if there are many, the session."""
    linked, _, packed = st.query_params.get(SELECTED, "").partition("-")
    if not packed:
        stored: np.ndarray = st.session_state.get(f"{SELECTED}.{data.key}", NO_TEXTS)
        return stored
    ids = unpack_ids(packed) if linked == digest(data) else None
    if ids is None:
        url.report(SELECTED, "The texts that were selected are not those of this dataset.")
    return NO_TEXTS if ids is None else ids


def save(data: MapData, ids: np.ndarray) -> None:
    """Store the ids of the selected texts; call it before the map is drawn again."""
    packed, key = pack_ids(ids), f"{SELECTED}.{data.key}"
    fits = len(packed) <= MAX_IN_URL
    selected = {SELECTED: f"{digest(data)}-{packed}"} if packed and fits else {}
    display.write_url(selected, PARAMETERS)
    st.session_state[key] = NO_TEXTS if fits else ids


def digest(data: MapData) -> str:
    """Return a short hash of the texts, by which a link is checked."""
    return data.dataset.texts.digest[:6]


def pack_ids(ids: np.ndarray) -> str:
    """Return ids as text for a URL: the gaps between them, of 7 bits a byte, in base64."""
    packed = bytearray()
    for gap in np.diff(np.unique(ids), prepend=0).tolist():
        while gap > 127:
            packed.append(gap % 128 + 128)
            gap //= 128
        packed.append(gap)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def unpack_ids(text: str) -> np.ndarray | None:
    """Return the ids of `pack_ids`, ascending; None if the text is not such ids."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    ids, gap, shift = [], 0, 0
    for byte in packed:
        gap += (byte % 128) << shift
        shift += 7
        if byte < 128:
            ids.append(gap + (ids[-1] if ids else 0))
            gap, shift = 0, 0
        elif shift > 28 or (ids and ids[-1] > MAX_ID):
            return None
    return np.array(ids, dtype=np.int32) if ids and ids[-1] <= MAX_ID else None


def find_texts(data: DatasetSplits, rows: np.ndarray, words: str) -> np.ndarray:
    """Return the texts among `rows` with all words of the first MAX_FIND characters; see `find_words`."""
    return rows[find_words(data.texts.take(rows), words[:MAX_FIND])]


def found_sentence(found: np.ndarray, words: str) -> str:
    """Return how many texts contain the words to find: `12 texts contain all words of "water tap".`"""
    noun = "all words of" if len(words.split()) > 1 else ""
    verb = f"{'contains' if len(found) < 2 else 'contain'} {noun}".rstrip()
    number = formatting.plural(len(found), "text") if len(found) else "No text"
    return f'{number} {verb} "{formatting.shorten(words, MAX_TITLE_WORDS)}".'


def selected_title(ids: np.ndarray, words: str, lassoed: np.ndarray) -> str:
    """Return the number of selected texts and, with words to find, by what they are selected."""
    title = f"{formatting.plural(len(ids), 'text')} selected"
    if not words:
        return title
    quoted = f'with "{formatting.shorten(words, MAX_TITLE_WORDS)}"'
    return f"{title}: {'in the lasso and ' if len(lassoed) else ''}{quoted}"


def draw_clear_buttons(data: MapData, words: str, lassoed: np.ndarray) -> None:
    """Draw a button for the lasso, and one for the words to find, if these select texts."""
    row = st.container(horizontal=True)
    if len(lassoed) and row.button("Clear the lasso", key="embeddings.clear", icon=":material/deselect:"):
        save(data, NO_TEXTS)
        st.rerun()
    if words:
        row.button("Clear the words", key="embeddings.clear_words", icon=":material/search_off:", on_click=_clear_words)


def _clear_words() -> None:
    st.session_state["embeddings.find"] = ""


def compared_texts(data: MapData, rows: np.ndarray) -> np.ndarray:
    """Return the texts among `rows` whose neighbors are compared: all, or a sample in a large dataset."""
    count = len(data.dataset.texts) if data.common_texts is None else len(data.common_texts)
    sample: np.ndarray = rows[sample_rows(len(rows), MAX_COMPARISONS // max(1, count), seed=SEED)]
    return sample


@turns.cached(max_entries=16, show_spinner="Comparing neighbors …", hash_funcs=CACHE_KEY)
def most_changed_texts(data: MapData, rows: np.ndarray) -> np.ndarray:
    """Return the texts whose neighbors differ most between the first and the last model, see `compared_texts`."""
    compared = compared_texts(data, rows)
    return compared[np.argsort(shared_neighbors(data, compared), kind="stable")[:MAX_CHANGED]]


def changed_title(data: MapData, rows: np.ndarray) -> str:
    """Return the title of the table of `most_changed_texts`."""
    count = len(compared_texts(data, rows))
    sample = f", of a sample of {count:,}" if count < len(rows) else ""
    return f"Texts whose neighbors changed most{sample}"


def shared_neighbors(data: MapData, ids: np.ndarray) -> np.ndarray:
    """Return (R,) how many of the 10 nearest texts the first and the last model share."""
    first, last = (data.nearest(one, ids, NEIGHBORS)[0] for one in data.ends)
    return count_shared_neighbors(first, last)


def selected_text(data: MapData, ids: np.ndarray) -> int | None:
    """Return the id of the text that is selected in the table of `ids`, before it is drawn; None if none is."""
    ids = ids[:MAX_LISTED]
    rows = _selected_rows(data, ids)
    return int(ids[rows[0]]) if rows else None


def _selected_rows(data: MapData, ids: np.ndarray) -> list[int]:
    key, names = _table_key(data, ids), _names(data, ids)
    if key in st.session_state:
        return [row for row in st.session_state[key]["selection"]["rows"] if row < len(ids)]
    linked = st.query_params.get(TEXT)
    return [names.index(linked)] if linked in names else []


def _table_key(data: MapData, ids: np.ndarray) -> str:
    return f"embeddings.texts.{data.key}.{hashlib.sha256(ids.tobytes()).hexdigest()[:12]}.{url.revision()}"


def _names(data: MapData, ids: np.ndarray) -> list[str]:
    """Return the texts as the URL names them."""
    return [f"{digest(data)}-{row}" for row in ids.tolist()]


def draw_texts(data: MapData, ids: np.ndarray, heading: str) -> None:
    """Draw texts with their nearest neighbors in embedding space; `selected_text` returns the one that is selected."""
    first = f", the first {MAX_LISTED} are shown" if len(ids) > MAX_LISTED else ""
    ids = ids[:MAX_LISTED]
    sides = text_attributes.sides(data.dataset)
    columns: dict[str, list[Any]] = {
        "Text": [display.fitted(data.dataset.texts[int(row)], TEXT_WIDTH) for row in ids],
        "Side": [sides[int(row)] for row in ids],
    }
    if len(data.ends) == 2:
        columns[SHARED] = shared_neighbors(data, ids).tolist()
    for one in data.ends:
        closest, _ = data.nearest(one, ids, 1)
        texts = [display.fitted(data.dataset.texts[int(row)], TEXT_WIDTH) for row in closest[:, 0]]
        columns[f"Nearest, {one.name.lower()}"] = texts
    widths = {name: TEXT_WIDTH if name == "Text" or name.startswith("Nearest") else 104 for name in columns}
    config = {name: st.column_config.Column(width=width) for name, width in widths.items()}
    about = f"How many of the {NEIGHBORS} nearest neighbors of a text are the same with both models."
    config[SHARED] = st.column_config.Column(width=176, help=about)
    st.header(display.escaped(heading + first), anchor=False)
    names, rows = _names(data, ids), _selected_rows(data, ids)
    linked = st.query_params.get(TEXT)
    if linked and linked not in names and page_layout.arrived():
        url.report(TEXT, "The text that was selected is not in the table.")
    st.dataframe(
        columns,
        key=_table_key(data, ids),
        selection_default={"selection": {"rows": rows}},
        on_select="rerun",
        selection_mode="single-row",
        hide_index=True,
        alt=heading,
        height=390,
        row_height=display.TEXT_ROW,
        column_config=config,
    )
    display.write_url({TEXT: names[rows[0]]} if rows else {}, (TEXT,))


def find_neighbors(data: MapData, text_id: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ids and cosines, (10,) each, of the nearest texts of one text, for the first and the last model."""
    found = (data.nearest(one, np.array([text_id]), NEIGHBORS) for one in data.ends)
    return [(ids[0], cosines[0]) for ids, cosines in found]


def neighbor_lines(text_id: int, nearest: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return (P, 2) ids of a text and of those of its nearest texts that are among `rows`."""
    others = nearest[np.isin(nearest, rows)].astype(np.int32)
    return np.stack([np.full_like(others, text_id), others], axis=1)


def draw_neighbors(data: MapData, text_id: int, neighbors: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Draw the nearest texts of one text, as `find_neighbors` returns them."""
    display.plain_text("Nearest in embedding space to", data.dataset.texts[text_id])
    for cell, one, (ids, cosines) in zip(display.columns(len(data.ends)), data.ends, neighbors, strict=True):
        columns = {
            "Cosine": [f"{cosine:.3f}" for cosine in cosines],
            one.name: [display.fitted(data.dataset.texts[int(row)], NEIGHBOR_WIDTH) for row in ids],
        }
        with cell:
            key = f"embeddings.nearest.{data.key}.{one.key}.{text_id}"
            config = {
                "Cosine": st.column_config.Column(width=80),
                one.name: st.column_config.Column(width=NEIGHBOR_WIDTH),
            }
            st.dataframe(
                columns,
                hide_index=True,
                key=key,
                alt=f"Nearest, {one.name}",
                row_height=display.TEXT_ROW,
                column_config=config,
            )
