"""Triage of likely false negatives by keyboard: the queue of pairs, and the decisions sent by the browser."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.batching import (
    LikelyFalseNegative,
    PlanStats,
    likely_false_negatives,
    mined_false_negatives,
    nearest_false_negatives,
)
from bsc_core.data.decisions import (
    KINDS,
    Decision,
    TextPair,
    as_text,
    decisions_sentence,
    merge_decisions,
    read_decisions,
    undo_decisions,
)
from bsc_core.errors import BscError
from pages.ui.batches.batch_view import BatchView
from pages.ui.batches.decide import HOW_TO_DECIDE, MEANING, saved_decisions
from pages.ui.batches.source import REVISION, BatchSource, revise
from pages.ui.components import data_cache, display, turns, url, users
from pages.ui.components.browser.mount import mount
from pages.ui.data import uploads

ALL, MINED, BATCH = "All training pairs", "Mined negatives", "This batch"
MAX_NAME = 80  # characters of the name of who decides
MAX_DIGITS = 9  # of the number of a pair
MAX_QUEUE = 100
"""Pairs in the queue of the triage; an update of the plans shows the next ones."""
MAX_CONFLICTS = 50
"""Conflicts of a merge with a choice."""
MAX_SEARCHED = 20_000
"""Training pairs up to which all of them are searched."""
QUEUE, WHO, ERROR = "batches.queue", "batches.who", "batches.triage.error"
UPDATED = "batches.triage.updated"  # session key: the decisions of the last update of the plans, and what it did
UPLOAD, CHOICES = "batches.colleague", "batches.conflicts"
SCOPE = "batches.triage.scope"
ABOUT = (
    "All training pairs: undecided documents that are closer to a query than its positive (those that a mask with this "
    "encoder as guide and margin 0 would exclude), or that nearly repeat the text of a positive pair. "
    "Mined negatives: those most similar to the query compared with its positive. "
    "This batch: the likely false negatives of the batch in the tab One batch."
)

_triage = mount("bsc_lab_triage", "triage", Path(__file__).parent / "triage.js")


@turns.fragment
def draw(batch: BatchView, source: BatchSource, stats: PlanStats) -> None:
    """Draw the triage of the suspected pairs, and the file of decisions. stats: the plan of the batch."""
    path = source.false_negatives
    if path is None:
        st.caption(HOW_TO_DECIDE)
        return
    scopes = [ALL] if len(source.train) <= MAX_SEARCHED else []
    scopes += [*([MINED] if source.mined else []), BATCH]
    with st.container(horizontal=True):
        scope = st.segmented_control(
            "Pairs", scopes, default=scopes[0], required=True, help=ABOUT, **url.bound(SCOPE, scopes)
        )
        st.text_input("Your name (optional)", key=WHO, max_chars=MAX_NAME, persist_state="session", width=220)
    identifier, pairs, more = _queue(scope or scopes[0], batch, source)
    try:
        decided = {decision.pair: decision.decision for decision in saved_decisions(path)}
    except BscError as error:
        display.error_box(error)
        return
    if failed := st.session_state.pop(ERROR, None):
        display.error_box(failed)
    if pairs:
        key = f"batches.triage.{identifier}"
        saved = [decided.get((pair["query"], pair["document"])) for pair in pairs]
        data = {"id": identifier, "pairs": [_shown(pair) for pair in pairs], "saved": saved, "more": more}
        _triage(data=data, key=key, on_decisions_change=lambda: _save(key, path, pairs))
    else:
        st.caption("There are no likely false negatives among these pairs.")
    st.caption(f"Does the suspected document answer the query? {MEANING}")
    _draw_file(path, batch, stats)


def _queue(scope: str, batch: BatchView, source: BatchSource) -> tuple[str, list[dict[str, Any]], int]:
    """Return an identifier, the pairs to decide, unchanged while they are decided, and the number of further suspects.

    The queue is built again for other rows, another scope or other vectors, and when decisions are changed elsewhere.
    """
    rows = batch.rows.tobytes() if scope == BATCH else source.train.line.tobytes()
    named = repr((scope, source.vectors_key, batch.dataset.texts.digest, st.session_state.get(REVISION, 0)))
    identifier = hashlib.sha256(named.encode() + rows).hexdigest()[:16]
    previous = st.session_state.get(QUEUE)
    if previous is None or previous[0] != identifier:
        most = len(batch.dataset) ** 2
        if scope == BATCH:
            suspected = likely_false_negatives(batch.dataset, batch.vectors, batch.rows, top=MAX_QUEUE)
        elif scope == MINED:
            suspected = mined_false_negatives(batch.dataset, batch.vectors, top=most)
        else:
            suspected = nearest_false_negatives(batch.dataset, batch.vectors, top=most)
        side = "negative" if scope == MINED and batch.dataset.negative is not None else "document"
        pairs = [_pair(batch, one, side) for one in suspected[:MAX_QUEUE]]
        previous = st.session_state[QUEUE] = (identifier, pairs, max(0, len(suspected) - MAX_QUEUE))
    identifier, pairs, more = previous
    return identifier, pairs, more


def _pair(batch: BatchView, one: LikelyFalseNegative, side: str = "document") -> dict[str, Any]:
    """Return a pair as the browser gets it. side: column of the suspected document."""
    return {
        "query": batch.text("query", one.query_row),
        "positive": batch.text("document", one.query_row),
        "document": batch.text(side, one.document_row),
        "lines": [int(batch.dataset.line[row]) for row in (one.query_row, one.document_row)],
        "cosine": round(one.similarity, 3),
        "positive_cosine": round(one.positive_similarity, 3),
        "reasons": [str(reason) for reason in one.reasons],
    }


def _shown(pair: dict[str, Any]) -> dict[str, Any]:
    """Return a pair with texts short enough for the browser; decisions are saved with the whole texts."""
    return pair | {name: display.cell(pair[name]) for name in ("query", "positive", "document")}


def _save(key: str, path: Path, pairs: Sequence[dict[str, Any]]) -> None:
    """Save the decisions that the browser has taken since it last sent them; one that it has undone is removed."""
    users.current_user()  # a callback runs before the page, which ends for a removed user
    sent = dict((st.session_state.get(key) or {}).get("decisions") or {})  # all of the queue
    previous: dict[str, Any] = st.session_state.get(f"{key}.saved", {})
    changes = {number: kind for number, kind in sent.items() if number not in previous or previous[number] != kind}
    added, undone = _changes(changes, pairs, str(st.session_state.get(WHO) or "").strip())
    try:
        if added:
            data_cache.save_decisions(path, added)
        if undone:
            undo_decisions(path, undone)
        st.session_state[f"{key}.saved"] = sent
    except (BscError, OSError) as error:
        st.session_state[ERROR] = f"{path}: the decisions were not saved: {error}"


def _changes(
    changes: Mapping[str, Any], pairs: Sequence[dict[str, Any]], who: str
) -> tuple[list[Decision], list[TextPair]]:
    """Return new decisions and the pairs whose decision was undone. changes: number of a pair -> kind or None."""
    added, undone = [], []
    for number, kind in changes.items():
        if not number.isdecimal() or len(number) > MAX_DIGITS or int(number) >= len(pairs):
            continue
        query, document = pairs[int(number)]["query"], pairs[int(number)]["document"]
        if kind in KINDS:
            added.append(Decision(query, document, kind, who[:MAX_NAME]))
        elif kind is None:
            undone.append((query, document))
    return added, undone


def _draw_file(path: Path, batch: BatchView, stats: PlanStats) -> None:
    """Draw the count of decisions, the buttons of the file, and the merge with a colleague's file."""
    decisions = saved_decisions(path)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{decisions_sentence(decisions)}. Saved after each key; new plans and new runs use them.")
        if st.button(
            "Update the plans", key="batches.triage.update", icon=":material/refresh:", disabled=not decisions
        ):
            st.session_state[UPDATED] = decisions, _update_sentence(decisions, batch, stats)
            revise()
            st.rerun()
        display.download(
            "Download decisions",
            lambda: as_text(saved_decisions(path)).encode(),
            type="secondary",
            file_name="decisions.tsv",
            mime="text/tab-separated-values",
            key="batches.triage.download",
            disabled=not decisions,
        )
    updated_with, sentence = st.session_state.get(UPDATED, ([], ""))
    if sentence and updated_with == decisions:
        st.caption(sentence)
    with st.expander("Merge a colleague's decisions", icon=":material/merge:", key="batches.triage.merge"):
        file = st.file_uploader("File of decisions", ["tsv", "csv"], key=UPLOAD)
        if file is not None:
            try:
                _draw_merge(path, decisions, _uploaded(file))
            except BscError as error:
                display.error_box(error)


def _update_sentence(decisions: Sequence[Decision], batch: BatchView, stats: PlanStats) -> str:
    """Return what an update of the plans does: how many new decisions are about texts that share a batch of this plan.

    Args:
        decisions: All decisions that are saved.
        batch: A batch of the plan, whose rows have the decisions before the update.
        stats: The plan before the update.
    """
    rows = batch.dataset
    known = {(query, document) for query, document in rows.marked_pairs.tolist()}
    if rows.decided_negatives is not None:
        known |= {(query, document) for query, document in rows.decided_negatives.tolist()}
    ids = {text: number for number, text in enumerate(rows.texts)}
    of_rows = [one for one in decisions if one.query in ids and one.document in ids]
    new = {(ids[one.query], ids[one.document]) for one in of_rows} - known
    if not new:
        return "The plans had all decisions already."
    number_of = np.full(len(rows), -1)  # row -> its batch
    for number, in_batch in enumerate(stats.batches):
        number_of[in_batch] = number
    of_query = _rows_of_texts(rows.query, number_of, {query for query, _ in new})
    of_document = _rows_of_texts(rows.document, number_of, {document for _, document in new})
    shared = sum(
        any(
            len(of_query[query][number] | of_document[document][number]) > 1  # rows, not one row with both texts
            for number in of_query[query].keys() & of_document[document].keys()
        )
        for query, document in new
    )
    number = formatting.plural(len(new), "new decision")
    return (
        f"Plans updated with {number}. Before, {formatting.count(shared)} of these pairs shared a batch of "
        f"{batch.strategy}. The new batches have other pairs, so they can have more likely false negatives."
    )


def _rows_of_texts(texts: np.ndarray, number_of: np.ndarray, wanted: set[int]) -> dict[int, dict[int, set[int]]]:
    """Return the rows of some texts by their batch, given the (N,) text and batch of each row; -1 is no batch."""
    rows: dict[int, dict[int, set[int]]] = {text: {} for text in wanted}
    for row in np.flatnonzero(np.isin(texts, list(wanted)) & (number_of >= 0)).tolist():
        rows[int(texts[row])].setdefault(int(number_of[row]), set()).add(row)
    return rows


def _uploaded(file: Any) -> list[Decision]:
    """Read the uploaded decisions; an error names the file as the user knows it."""
    import tempfile

    ending = re.sub(r"[^a-z0-9.]", "", Path(file.name).suffix.lower())[:20]
    uploads.check_content(f"decisions{ending}", file.getvalue())
    with tempfile.TemporaryDirectory(dir=data_cache.run_store().root) as folder:
        copy = Path(folder) / f"decisions{ending}"
        copy.write_bytes(file.getvalue())
        try:
            return read_decisions(copy)
        except BscError as error:
            raise type(error)(str(error).replace(str(copy), file.name)) from None


def _draw_merge(path: Path, decisions: Sequence[Decision], theirs: Sequence[Decision]) -> None:
    """Draw what a merge adds and the conflicts, each with a choice."""
    merged = merge_decisions(decisions, theirs)
    conflicts = formatting.plural(len(merged.conflicts), "conflict")
    st.markdown(f"**{formatting.plural(merged.added, 'new decision')}, {conflicts}**")
    if len(merged.conflicts) > MAX_CONFLICTS:
        st.caption(f"The first {MAX_CONFLICTS} are shown; in the others, your decision remains.")
    shown = merged.conflicts[:MAX_CONFLICTS]
    keys = [f"{CHOICES}.{hashlib.sha256(repr(conflict).encode()).hexdigest()[:16]}" for conflict in shown]
    for key, (mine, other) in zip(keys, shown, strict=True):
        with st.container(border=True, key=key):
            display.plain_text("Query", mine.query)
            display.plain_text("Document", mine.document)
            names = {"mine": mine, "theirs": other}
            st.radio(
                "Decision",
                list(names),
                format_func=lambda name, names=names: _choice(name, names[name]),
                key=f"{key}.choice",
                horizontal=True,
                label_visibility="collapsed",
            )
    changed = merged.added or merged.conflicts
    if st.button("Merge decisions", key="batches.triage.apply", icon=":material/merge:", disabled=not changed):
        known = {decision.pair for decision in decisions}
        new = [decision for decision in merged.decisions if decision.pair not in known]
        choices = [st.session_state.get(f"{key}.choice") for key in keys]
        chosen = [pair[1] for pair, name in zip(shown, choices, strict=True) if name == "theirs"]
        users.record("upload", path.stem, decisions=len(new) + len(chosen))
        data_cache.save_decisions(path, [*new, *chosen])
        revise()
        st.rerun()


def _choice(name: str, decision: Decision) -> str:
    """Return the label of one side of a conflict, such as `theirs: drop (Ada)`."""
    who = f" ({display.escaped(decision.who)})" if decision.who else ""
    return f"{name}: {decision.decision.replace('_', ' ')}{who}"
