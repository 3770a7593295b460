"""Search with one or two models: their selection, and their results for one query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core import formatting
from bsc_core.config import EncoderConfig
from bsc_core.data import PairDataset
from bsc_core.data.load import DatasetSplits
from bsc_core.data.quality.audit import query_word_shares
from bsc_core.data.text_normalization import shared_words
from bsc_core.errors import BscError
from bsc_core.evaluation import RetrievalResult, RetrievalTask, rank, retrieval_task
from bsc_core.evaluation.retrieval.adhoc_queries import Answer, compare_answers
from bsc_core.figures.evaluation import ranks
from bsc_core.neighbors import TextRows
from bsc_core.runs import Run
from bsc_core.types import Ids
from pages.ui.components import config_form, data_cache, display, page_layout, run_data, turns, url

TOP, TOP_OF_EXAMPLE = 10, 4
WIDE_ROW = 48  # pixels: height of a table row with two lines of text
RESULTS = "Results"  # first part of the page
QUERY, SPLIT, PART = "retrieval.query", "retrieval.split", "retrieval.part"
SAVED_QUERY, LONG_QUERY = "retrieval.query.saved", "retrieval.query.long"  # session keys
MAX_IN_URL = 1500  # characters of a query, or of pasted queries
SECOND = "second"
LINES = "retrieval.own.lines"  # pasted queries
PARAMETERS = (
    QUERY,
    SPLIT,
    PART,
    SECOND,
    LINES,
    *(f"retrieval.{name}.*" for name in ("left", "right", "causes", "maps")),
)
ModelPair = tuple[run_data.AnyModel, run_data.AnyModel]
LINES_HELP = "A line connects the same document in both lists. A number is its rank where the other list lacks it."
LABELED_NEGATIVE = "✗: labeled as not relevant."
MARKS = f"★: relevant document. {LABELED_NEGATIVE}"
RATIO = "The largest win and the largest loss are the queries whose rank changed by the largest factor."
LIST_LENGTH = 160  # characters of a document in a list
SHORT_QUERY = 38  # characters that the search box shows
MAX_CHANGED = 100  # listed queries whose rank changed
CARD_LENGTH = 110  # characters of a text in a card
# Document texts have the color of texts, not of axis labels, also right after the theme has changed. Two lists replace
# the figure where it is too narrow for its texts.
STYLE = f"""<style>[class*='st-key-figure-answers'] .main-svg text {{ fill: currentColor !important; }}
[class*='st-key-both-answers'] {{ container-type: inline-size; width: 100%; }}
@container (max-width: {ranks.MIN_WIDTH - 1}px) {{
  [class*='st-key-lines-answers'], [class*='st-key-figure-answers'] div:has(.stPlotlyChart) {{ display: none; }} }}
@container (min-width: {ranks.MIN_WIDTH}px) {{ div:has(> [class*='st-key-list-answers']) {{ display: none; }} }}
</style>"""


@dataclass(frozen=True)
class Search:
    """A retrieval task, the queries of a split, ranked by the left and the right model, which may be the same one.

    `vectors` (U, D) and `stamps` of both models are those of the results, also if a run that trains has replaced them.
    """

    data: DatasetSplits
    split: str
    task: RetrievalTask
    models: ModelPair
    stamps: tuple[str, str]
    vectors: tuple[np.ndarray, np.ndarray]
    results: tuple[RetrievalResult, RetrievalResult]

    @property
    def dataset(self) -> PairDataset:
        """The pairs of the split."""
        return self.data.splits[self.split]

    @property
    def single(self) -> bool:
        """Whether there is only one model."""
        return self.models[0] == self.models[1]

    @property
    def cache_key(self) -> tuple[str, ...]:
        """Key that changes with the models, the queries or the documents."""
        corpus = "" if self.data.corpus is None else self.data.corpus.digest
        return (*self.stamps, self.split, *(part.digest for part in self.data.splits.values()), corpus)

    @cached_property
    def documents(self) -> Ids:
        """Text ids that a query outside the split searches: the corpus, or without one all documents of all splits."""
        if self.data.corpus is not None:
            return self.task.corpus
        columns = [column for part in self.data.splits.values() for column in part.text_columns[1:]]
        return np.unique(np.concatenate(columns))

    def text(self, text_id: int) -> str:
        """Return a text by its id."""
        return self.data.texts[int(text_id)]


CACHE_KEY = {Search: lambda search: search.cache_key}


@dataclass(frozen=True)
class Results:
    """Top documents of both models for one query."""

    left: list[ranks.Hit]
    right: list[ranks.Hit]
    relevant: frozenset[int]  # positions in the searched documents
    queries: int  # number of queries in the data with this text
    first_ranks: tuple[int, ...] = ()  # of the first relevant document for each model; 0 if there is none
    missing: str = ""  # text of a relevant document, if no list contains one


def query_box(cell: DeltaGenerator) -> str:
    """Draw the search box and return its query: that of the URL, or of an earlier visit to the page.

    Streamlit removes the parameters of bound widgets from the URL when a page is left, and Back then shows them empty;
    so the box is not bound.
    """
    if page_layout.arrived() and QUERY not in st.query_params:
        _write_query(st.session_state.get(SAVED_QUERY, ""))
    query = st.query_params.get(QUERY) or st.session_state.get(LONG_QUERY, "")
    st.session_state[QUERY] = st.session_state[SAVED_QUERY] = query
    hint = "Type a query, or select an error below"
    cell.text_input("Search", type="search", placeholder=hint, key=QUERY, on_change=_query_changed)
    if query and QUERY not in st.query_params:
        st.caption("This query is too long for the link; it opens the page without it.")
    return query


def _query_changed() -> None:
    """Show that a query was received, before the page is drawn again, and search for it."""
    st.toast("Searching …", icon=":material/search:")
    search_for(st.session_state[QUERY])


def search_for(query: str) -> None:
    """Search for a query and open its results; call it in a callback."""
    _write_query(query)
    url.open_tab(PART, RESULTS)


def search_selected(key: str, queries: Sequence[str]) -> None:
    """Search for the query of the selected row of a table."""
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        search_for(queries[rows[0]])


def _write_query(query: str) -> None:
    """Write a query into the URL, from where the search box reads it, unless it is too long."""
    is_long = len(query) > MAX_IN_URL
    st.session_state[LONG_QUERY] = query if is_long else ""
    display.write_url({QUERY: query} if query and not is_long else {}, [QUERY])


def select_models(run: Run, cells: Sequence[DeltaGenerator]) -> ModelPair | None:
    """Select two models of the run, or of runs on the same texts, in two cells; None if the run has no embeddings."""
    models = available_models(run)
    if not models:
        return None
    labels = data_cache.unique_labels({model.key: _label(model, run) for model in models})
    by_key = {model.key: model for model in models}
    default_right = 1 if len(models) > 1 and models[1].run.id == run.id else 0
    selected = []
    for cell, name, index in zip(cells, ("Left", "Right"), (0, default_right), strict=True):
        key = cell.selectbox(
            f"{name} model",
            list(labels),
            index=index,
            format_func=lambda key: labels.get(key, key),
            **url.bound(f"retrieval.{name.lower()}.{run.id}", labels.values()),
        )
        selected.append(by_key[key])
    return selected[0], selected[1]


def select_encoders(context: page_layout.Context, cell: DeltaGenerator) -> ModelPair:
    """Return the encoder of the context bar and another one that is selected in a cell, or twice the same."""
    names = [name for name in config_form.ENCODERS if name != context.encoder]
    other = cell.selectbox(
        "Compare with",
        names,
        index=None,
        format_func=lambda name: config_form.ENCODERS.get(name, name),
        accept_new_options=True,
        placeholder="No second encoder",
        help="A folder, a Hugging Face ID, or run:ID for the model of a run.",
        **url.bound(SECOND),
    )
    first, second = (
        run_data.EncoderModel(context.dataset_key, name, config_form.ENCODERS.get(name, name))
        for name in (context.encoder, other or context.encoder)
    )
    for model in (first, second):
        model.vectors()  # draws its progress, which a cached function may not do
    return first, second


def available_models(run: Run) -> list[run_data.Model]:
    """Return the models that can search the run's texts: its models first, then those of runs on the same texts.

    The untrained encoder of another run is included if it differs. Empty if the run has no embeddings.
    """
    models = run_data.models(run)
    if not models:
        return []
    encoder = run.config().encoder
    return models + [one for other in run_data.runs_on_same_texts(run) for one in _models_of_other_run(other, encoder)]


def _models_of_other_run(run: Run, encoder: EncoderConfig) -> list[run_data.Model]:
    """Return the models of another run, the untrained one if it differs from `encoder`; none if files are damaged."""
    try:
        is_same = run.config().encoder == encoder
        return [one for one in run_data.models(run) if one.part == "after" or not is_same]
    except BscError:
        return []


def _label(model: run_data.AnyModel, run: Run | None) -> str:
    if isinstance(model, run_data.Model) and run is not None and model.run.id == run.id:
        return model.when.capitalize()
    return model.name


def model_names(search: Search) -> tuple[str, str]:
    """Return the names of the two models, with their runs if these differ."""
    left, right = search.models
    runs = [model.run if isinstance(model, run_data.Model) else None for model in search.models]
    return _label(left, runs[1]), _label(right, runs[0])


DATA_KEY = run_data.STAMPS | {
    DatasetSplits: lambda data: [part.digest for part in (*data.splits.values(), data.corpus) if part is not None],
}


def search_split(data: DatasetSplits, models: ModelPair, split: str) -> Search:
    """Rank the corpus for every query of a split with both models, cached across sessions."""
    run_data.encode_texts(models)
    left, right = map(run_data.stamped_vectors, models)
    search = _search_split(data, models, (left[0], right[0]), (left[1], right[1]), split)
    return replace(search, data=data, models=models)  # those of this user


@turns.cached(max_entries=8, show_spinner="Searching with both models …", hash_funcs=DATA_KEY)
def _search_split(
    data: DatasetSplits,
    _models: ModelPair,
    stamps: tuple[str, str],
    _vectors: tuple[np.ndarray, np.ndarray],
    split: str,
) -> Search:
    task = retrieval_task(data.splits[split], data.corpus)
    first, second = (rank(one[task.query], TextRows(one, task.corpus), task, top=TOP) for one in _vectors)
    return Search(data, split, task, _models, stamps, _vectors, (first, second))


def example_queries(search: Search) -> dict[str, int]:
    """Return positions of up to two queries by their title: the largest win and the largest loss of the right model.

    Without wins and losses, as with a single model, the query whose relevant document has the largest rank. Changes of
    ranks are compared as ratios.
    """
    first, last = _ranks(search)
    gain = np.log(first) - np.log(last)
    examples = {}
    if len(gain) and gain.max() > 0:
        examples["Largest win"] = int(gain.argmax())
    if len(gain) and gain.min() < 0:
        examples["Largest loss"] = int(gain.argmin())
    if len(gain) and not examples:
        examples["Example: the query with the worst rank"] = int(last.argmax())
    return examples


def _ranks(search: Search) -> list[np.ndarray]:
    """Return, for each model, (Q,) the rank of the first relevant document; behind all documents if none is found."""
    not_found = len(search.task.corpus) + 1
    return [np.where(one.first_rank > 0, one.first_rank, not_found) for one in search.results]


def draw_lists(search: Search, query: str) -> Results:
    """Draw the results of the query and return them."""
    if len(query) > SHORT_QUERY:  # the search box cuts it
        display.plain_text("Query", query)
    if not query_positions(search, query):
        queries = formatting.plural(len(search.task.query), f"{search.split} query", f"{search.split} queries")
        others = [name for name in search.data.splits if name != search.split and _has_query(search, name, query)]
        about = (
            f"belongs to the {others[0]} queries, so no document is marked as relevant here."
            if others
            else f"is not among the {queries} of the dataset, so its relevant documents are unknown."
        )
        st.container(border=True).markdown(
            f":material/info: This query {about} It searches {searched_documents(search)}; the metrics are those of "
            f"the {search.split} queries only."
        )
    if not search.single and (note := words_note(search, query, answer(search, query, None))):
        st.caption(note)
    results = _draw_query(search, query, "answers", TOP)
    summary = _summary(results, single=search.single)
    if results.queries and search.data.corpus is None:
        documents = formatting.plural(len(search.task.corpus), "document")
        summary += f" The {documents} of {search.split} are searched, as for the metrics."
    if any(hit.negative for hit in (*results.left, *results.right)):
        summary += f" {LABELED_NEGATIVE}"
    st.caption(display.escaped(summary))
    return results


def searched_documents(search: Search) -> str:
    """Return which documents a query outside the split searches: `all 1,234 documents of the dataset`."""
    if search.data.corpus is not None:
        return f"the {formatting.plural(len(search.documents), 'document')} of the corpus"
    return f"all {formatting.plural(len(search.documents), 'document')} of the dataset"


def words_note(search: Search, query: str, results: Results) -> str:
    """Return how many words of the query the documents of both lists contain, and a reason if the right list has fewer.

    Empty for a query without words.
    """
    left, right = (
        shared_words([query] * len(hits), [hit.text for hit in hits]) for hits in (results.left, results.right)
    )
    if left is None or right is None:
        return ""
    note = (
        f"How many of the query's words a document contains, on average: {formatting.percent(left)} in the left list, "
        f"{formatting.percent(right)} in the right list."
    )
    shares = _training_word_shares(search.data.train)
    if right < left and shares is not None and shares[0] < shares[1]:
        note += (
            f" In the training rows, negatives contain more words of their query ({formatting.percent(shares[1])}) "
            f"than positives ({formatting.percent(shares[0])}). A model can learn from this to rank documents with "
            "words of the query lower."
        )
    return note


@turns.cached(max_entries=8, show_spinner=False, hash_funcs={PairDataset: lambda dataset: dataset.digest})
def _training_word_shares(train: PairDataset) -> tuple[float, float] | None:
    return query_word_shares(train)


def _has_query(search: Search, split: str, query: str) -> bool:
    """Whether a split has a query with this text, apart from spaces and case."""
    return _same_text(search, search.data.splits[split].distinct_queries.tolist(), query) is not None


def query_of_dataset(search: Search, query: str) -> str | None:
    """Return the query of the dataset with this text, apart from spaces and case; None if there is none."""
    others = (part.distinct_queries.tolist() for part in search.data.splits.values())
    text_ids = (_same_text(search, ids, query) for ids in (search.task.query.tolist(), *others))
    found = next((text_id for text_id in text_ids if text_id is not None), None)
    return None if found is None else search.text(found)


def draw_examples(search: Search) -> None:
    """Draw the largest win and the largest loss of the right model, and all queries with another rank."""
    examples = example_queries(search)
    if not examples:
        st.caption(f"No {search.split} pair is positive, so there is no example query. Type a query above.")
        return
    cells = display.columns(2, min_width=300)
    for cell, (title, position) in zip(cells, examples.items(), strict=False):
        with cell, st.container(border=True, height="stretch", gap="xxsmall"):
            _draw_card(search, title, position)
    if search.single:
        [position] = examples.values()
        with cells[1]:
            _draw_query(search, search.text(search.task.query[position]), "answers.example", TOP_OF_EXAMPLE, position)
        return
    if len(examples) == 1:
        missing = {"Largest win": "No query is worse", "Largest loss": "No query is better"}
        cells[1].caption(f"{missing.get(next(iter(examples)), 'No query changed its rank')} on the right.")
    for title, position in examples.items():
        query = search.text(search.task.query[position])
        display.plain_text(_card_title(search, title, position), query)
        _draw_query(search, query, f"answers.{title}", TOP_OF_EXAMPLE, position)
    st.caption(f"The first {TOP_OF_EXAMPLE} documents. {MARKS} {RATIO}")
    _draw_changed_queries(search)


def _draw_card(search: Search, title: str, position: int) -> None:
    """Draw a query of the data, its relevant document, and a button that shows its results."""
    query, relevant = search.text(search.task.query[position]), search.task.relevant(position)
    document = search.text(search.task.corpus[relevant[0]]) if len(relevant) else "not in the corpus"
    with st.container(horizontal=True, vertical_alignment="center"):
        heading = _card_title(search, f"**{title}**", position)
        st.caption(heading, help=RATIO if title.startswith("Largest") else None, width="stretch")
        key = f"retrieval.example.{title}"
        st.button(f"All {TOP} results", key=key, type="tertiary", on_click=search_for, args=(query,))
    st.text(formatting.shorten(query, CARD_LENGTH))
    st.text(f"★ Relevant: {formatting.shorten(document, CARD_LENGTH)}")


def _draw_changed_queries(search: Search) -> None:
    """Draw the queries whose relevant document has another rank with the right model, the largest win first."""
    first, last = _ranks(search)
    gain = np.log(first) - np.log(last)
    changed = np.flatnonzero(gain)
    if not len(changed):
        return
    order = changed[np.argsort(-gain[changed], kind="stable")]
    if len(order) > MAX_CHANGED:  # as many wins as losses
        order = np.concatenate([order[: MAX_CHANGED // 2], order[-MAX_CHANGED // 2 :]])
    better, worse = formatting.plural(int((gain > 0).sum()), "query", "queries"), int((gain < 0).sum())
    st.header(f"{better} with a better rank, {worse:,} with a worse one", anchor=False)
    left, right = model_names(search)
    queries = [search.text(search.task.query[position]) for position in order.tolist()]
    rows = [
        {
            "Query": display.cell(query),
            f"Rank, {left}": rank_text(search.results[0].first_rank[position]),
            f"Rank, {right}": rank_text(search.results[1].first_rank[position]),
        }
        for position, query in zip(order.tolist(), queries, strict=True)
    ]
    key = f"answers.changed.{search.models[1].key}.{search.models[0].key}.{search.split}"
    st.dataframe(
        rows,
        key=key,
        on_select=lambda: search_selected(key, queries),
        selection_mode="single-row",
        hide_index=True,
        column_config={name: st.column_config.Column(width=160) for name in list(rows[0])[1:]},
        alt="Queries with another rank, the largest win first",
    )
    half = MAX_CHANGED // 2
    most = f"The {half} largest wins and the {half} largest losses are shown. " if len(order) < len(changed) else ""
    st.caption(f"{most}Select a row to search for its query.")


def rank_text(rank: int) -> str:
    """Format a rank; 0 means none."""
    return str(int(rank)) if rank else "none"


def _card_title(search: Search, title: str, position: int) -> str:
    """Return `Largest loss: rank 3 → 61`: the ranks of the relevant document with both models."""
    ranks_ = [rank_text(one.first_rank[position]) for one in search.results]
    return f"{title}: rank {' → '.join(dict.fromkeys(ranks_) if search.single else ranks_)}"


def _draw_query(search: Search, query: str, name: str, top: int, position: int | None = None) -> Results:
    """Draw the first `top` documents of both models side by side, or a table of those of a single model."""
    results, names = answer(search, query, position), model_names(search)
    if search.single:
        rows = [
            {
                "Rank": rank,
                "Cosine": f"{hit.score:.3f}",
                "Relevant": hit.mark,
                "Document": display.cell(hit.text),
            }
            for rank, hit in enumerate(results.left[:top], 1)
        ]
        widths = {"Rank": 60, "Cosine": 80, "Relevant": 80} | ({"Document": 280} if top < TOP else {})
        config = {column: st.column_config.Column(width=width) for column, width in widths.items()}
        config["Relevant"] = st.column_config.Column(width=widths["Relevant"], help=MARKS)
        st.dataframe(
            rows,
            hide_index=True,
            key=f"table.{name}",
            column_config=config,
            alt=f"Documents of {names[0]}",
            height="content",
            row_height=WIDE_ROW,
        )
        return results
    shown = replace(results, left=results.left[:top], right=results.right[:top])
    figure = ranks.rank_lines(shown.left, shown.right, names)
    st.html(STYLE)
    alt = f"First {top} documents of {names[0]} and {names[1]}; lines connect a document's ranks"
    title = f"First {top} documents of each model"
    with st.container(key=f"both.{name}"):
        display.figure(figure, alt=alt, name=name, title=title, data=_rows(results, names))
        with st.container(key=f"lines.{name}"):
            st.caption(LINES_HELP)
        with st.container(key=f"list.{name}"):
            for model, hits in zip(names, (shown.left, shown.right), strict=True):
                display.plain_text(display.escaped(model), list_text(hits))
    return results


def list_text(hits: Sequence[ranks.Hit]) -> str:
    """Return a line for each document, the best first, such as `1. 0.685 (other rank 11) ★ It is free.`."""
    return "\n".join(
        f"{rank}. {hit.score:.3f} (other rank {hit.other_rank or '?'}) "
        + f"{hit.mark} {formatting.shorten(hit.text, LIST_LENGTH)}".lstrip()
        for rank, hit in enumerate(hits, 1)
    )


@st.cache_resource(max_entries=64, show_spinner=False, hash_funcs=CACHE_KEY)
def answer(search: Search, query: str, position: int | None = None) -> Results:
    """Return the results of both models for a query, cached across sessions.

    Args:
        search: The search.
        query: Text of a query of the data, or a typed one.
        position: Position of the query in the task; None for every query with this text.

    Queries of the split search the documents that the metrics are about, others `search.documents`.
    """
    task = search.task
    positions = query_positions(search, query) if position is None else [position]
    if positions:
        left, right = (one[task.query[positions[0]]] for one in search.vectors)
    else:
        left, right = (run_data.encode_queries(model, [query])[0] for model in search.models)
    vectors = np.asarray(left), np.asarray(right)
    documents = task.corpus if positions else search.documents
    corpora = TextRows(search.vectors[0], documents), TextRows(search.vectors[1], documents)
    relevant = frozenset(document for one in positions for document in task.relevant(one).tolist())
    with turns.turn(draw=False):
        answers = compare_answers(vectors, corpora, top=TOP)
    negative = _labeled_negatives(search.dataset, [int(task.query[one]) for one in positions])
    left_hits, right_hits = (_hits(search, documents, one, relevant, negative) for one in answers)
    found = any(hit.gold for hit in (*left_hits, *right_hits))
    missing = "" if found or not relevant else search.text(task.corpus[min(relevant)])
    ranks_of = ([int(one.first_rank[position]) for position in positions] for one in search.results)
    first_ranks = tuple(min((rank for rank in known if rank), default=0) for known in ranks_of)
    return Results(left_hits, right_hits, relevant, len(positions), first_ranks, missing)


def query_positions(search: Search, query: str) -> list[int]:
    """Return the positions in the task of the queries with a text; if none has it, ignore spaces, then case.

    Several queries of the data can have the same text, with different ids.
    """
    text_ids = search.task.query
    match = _same_text(search, text_ids.tolist(), query)
    positions: list[int] = [] if match is None else np.flatnonzero(text_ids == match).tolist()
    return positions


def _same_text(search: Search, text_ids: list[int], query: str) -> int | None:
    """Return the first text that equals the query, or that does so apart from spaces, or from spaces and case."""
    for normalize in (str, _single_spaced, _case_folded):
        wanted = normalize(query)
        if (match := next((one for one in text_ids if normalize(search.text(one)) == wanted), None)) is not None:
            return match
    return None


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _case_folded(text: str) -> str:
    return _single_spaced(text).casefold()


def _labeled_negatives(dataset: PairDataset, queries: list[int]) -> frozenset[int]:
    """Return the text ids of the documents that are labeled, or decided to be, irrelevant to one of the queries."""
    rows = np.isin(dataset.query, queries)
    columns = [dataset.document[rows & ~dataset.positive]]
    if dataset.negative is not None:
        columns.append(dataset.negative[rows])
    if (decided := dataset.decided_negatives) is not None:
        columns.append(decided[np.isin(decided[:, 0], queries), 1])
    return frozenset(np.concatenate(columns).tolist())


def _hits(
    search: Search, documents: Ids, answer: Answer, relevant: frozenset[int], negative: frozenset[int]
) -> list[ranks.Hit]:
    lines = zip(answer.positions.tolist(), answer.cosines.tolist(), answer.other_ranks.tolist(), strict=True)
    return [
        ranks.Hit(
            position,
            search.text(documents[position]),
            score,
            position in relevant,
            other_rank,
            int(documents[position]) in negative,
        )
        for position, score, other_rank in lines
    ]


def _summary(results: Results, *, single: bool = False) -> str:
    if not results.queries:
        return "No document is marked as relevant."
    if not results.relevant:
        return "The relevant document of this query is not in the corpus."
    positions = []
    sides = ("on the left", results.left), ("on the right", results.right)
    for (side, hits), first in zip(sides, results.first_ranks, strict=True):
        rank = next((rank for rank, hit in enumerate(hits, 1) if hit.gold), first)
        place = f"rank {rank}" if rank else f"not in the top {len(hits)}"
        positions.append(place if single else f"{place} {side}")
    several = f" {results.queries} queries have this text; ★: a document relevant to any of them."
    shown = ", ".join(positions[:1] if single else positions)
    text = f" Its text: {formatting.shorten(results.missing, LIST_LENGTH)}" if results.missing else ""
    return f"★ relevant document: {shown}.{several if results.queries > 1 else ''}{text}"


def _rows(results: Results, names: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "model": name,
            "rank": rank,
            "cosine": hit.score,
            "relevant": hit.gold,
            "rank in the other list": hit.other_rank,
            "document": hit.text,
        }
        for name, hits in zip(names, (results.left, results.right), strict=True)
        for rank, hit in enumerate(hits, 1)
    ]
