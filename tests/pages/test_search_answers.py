"""What is searched again and what is not, and answers that fit the documents that were searched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bsc_core.data.asked import pasted_queries
from bsc_core.evaluation import retrieval, search
from bsc_core.runs import Run
from pages.ui import own_queries, run_data, searching


def searched(run: Run, split: str = "dev", **parts: object) -> searching.Search:
    before, after = run_data.models(run)
    return searching.searched(replace(run_data.rows_of(run), **parts), (before, after), split)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The documents of each pass over a corpus."""
    made: list[int] = []
    blocks = retrieval._blocks

    def counted(units, corpus, progress):
        made.append(len(corpus))
        return blocks(units, corpus, progress)

    monkeypatch.setattr(retrieval, "_blocks", counted)
    return made


def test_answers_of_a_query_are_those_of_the_whole_order(finished: Run) -> None:
    found = searched(finished)
    task = found.task
    whole = []
    for model in found.models:
        vectors = np.asarray(model.vectors())
        whole.append(search(vectors[task.query[1]][None], vectors[task.corpus], top=len(task.corpus)))
    answers = searching.answers(found, found.text(task.query[1]))
    for hits, own, other in zip((answers.left, answers.right), whole, whole[::-1], strict=True):
        order = other[0][0].tolist()
        assert [hit.document for hit in hits] == own[0][0, : searching.TOP].tolist()
        assert [hit.score for hit in hits] == own[1][0, : searching.TOP].tolist()
        assert [hit.other_rank for hit in hits] == [order.index(hit.document) + 1 for hit in hits]
        assert [hit.gold for hit in hits] == [hit.document in task.relevant(1) for hit in hits]


def test_the_same_query_is_searched_once(pages: type, finished: Run, passes: list[int]) -> None:
    app = pages.closed("retrieval", run=finished.id)
    app.session_state["retrieval.query"] = "snow at the train door"  # which no other test asks
    app.run()
    assert not app.exception
    assert passes
    passes.clear()
    app.run()
    assert not app.exception
    assert passes == []
    app.text_input(key="retrieval.query").set_value("rain at the garden door").run()
    documents = len(searched(finished).task.corpus)
    assert passes == [documents, documents]


def test_own_queries_are_asked_anew_of_other_documents(finished: Run) -> None:
    asked = pasted_queries("soup of the day\na rose in the garden")
    data = run_data.rows_of(finished)
    few = data.dev.take(data.dev.document == data.dev.document[0])
    for made in (searched(finished), searched(finished, "test", test=data.train), searched(finished, dev=few)):
        answers = own_queries.answered(made, asked)
        first = [
            search(run_data.encode_texts(model, list(asked.texts)), np.asarray(model.vectors())[made.task.corpus])[0]
            for model in made.models
        ]
        assert answers.first.tolist() == [top[:, 0].tolist() for top in first]
        assert len(own_queries.table(made, asked, answers)) == 2


def test_two_splits_of_the_same_rows_stay_two_searches(finished: Run) -> None:
    dev = run_data.rows_of(finished).dev
    assert [searched(finished, split, test=dev).split for split in ("dev", "test")] == ["dev", "test"]


def test_a_small_corpus_is_shared_whole_and_counted_as_it_is(finished: Run) -> None:
    dev = run_data.rows_of(finished).dev
    made = searched(finished, dev=dev.take(np.isin(dev.document, np.unique(dev.document)[:3])))
    asked = pasted_queries("soup\nbread")
    lines = own_queries.table(made, asked, own_queries.answered(made, asked))
    assert [line["Shared"] for line in lines] == ["3 of 3", "3 of 3"]


def test_right_documents_that_the_corpus_lacks_are_told(pages: type, finished: Run) -> None:
    app = pages.closed("retrieval", run=finished.id)
    app.session_state["retrieval.part"] = "Your own queries"
    app.run()
    known = searched(finished).text(searched(finished).task.corpus[0])
    told = {f"soup\t{known}": "", "soup\tno such text": "1 right document is not in the corpus"}
    for lines, words in told.items():
        app.text_area(key="retrieval.own.lines").set_value(lines).run()
        assert not app.exception
        captions = [caption.value for caption in app.caption if "not in the corpus" in caption.value]
        assert len(captions) == bool(words)
        assert all(caption.startswith(words) for caption in captions)
