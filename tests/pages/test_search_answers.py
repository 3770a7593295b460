"""Search results: exact ranks, caching, and user-supplied queries on other documents."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bsc_core import neighbors
from bsc_core.config import DataConfig, EncoderConfig
from bsc_core.data.dataset import TextTable
from bsc_core.data.queries import parse_queries
from bsc_core.encoders import encode, load_encoder, tokenize
from bsc_core.encoders.layers import reinit_layers
from bsc_core.errors import InputError
from bsc_core.evaluation.retrieval import rank
from bsc_core.figures.evaluation import ranks
from bsc_core.neighbors import top_k
from bsc_core.runs import Run, RunStore
from pages.ui.components import data_cache, display, run_data
from pages.ui.data import uploads
from pages.ui.retrieval import custom_queries, errors
from pages.ui.retrieval import search as search_ui
from tests.helpers.pages import open_page, page_text, prepare_page


def searched(run: Run, split: str = "dev", **parts: object) -> search_ui.Search:
    before, after = run_data.models(run)
    return search_ui.search_split(replace(run_data.load_splits(run), **parts), (before, after), split)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of documents in each pass over a corpus."""
    passes: list[int] = []
    cosine_blocks = neighbors.cosine_blocks

    def counted(units, documents, progress=None):
        passes.append(len(documents))
        return cosine_blocks(units, documents, progress)

    for module in (neighbors, rank):
        monkeypatch.setattr(module, "cosine_blocks", counted)
    return passes


def test_queries_before_training_are_encoded_with_the_random_layers_of_the_run(finished: Run) -> None:
    config = finished.config().model_dump(mode="json")
    config["encoder"]["reinit_layers"] = 1
    before = run_data.encode_queries(run_data.Model(finished, "before"), ["how do i bake bread"])
    finished.write_json("config", config)
    model = load_encoder(finished.config().encoder)
    reinit_layers(model, 1, finished.config().training.seed)
    texts, _ = TextTable.from_texts(["how do i bake bread"])
    expected = encode(model, tokenize(model, texts, finished.config().encoder.max_seq_length))
    found = run_data.encode_queries(run_data.Model(finished, "before"), ["how do i bake bread"])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(found - before).max() > 0.01


def test_a_query_asks_before_it_downloads_the_encoder_of_a_run(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(name: str) -> None:
        assert name == "somebody/model"
        raise InputError("asked")

    values = finished.config().model_dump(mode="json")
    finished.write_json("config", values | {"encoder": {"name": "somebody/model"}})
    monkeypatch.setattr(data_cache, "confirm_download", ask)
    with pytest.raises(InputError, match="asked"):
        run_data.encode_queries(run_data.Model(finished, "before"), ["how do i bake bread"])


def test_queries_are_encoded_with_the_saved_model_after_its_folder_has_changed(
    runs: RunStore, tiny_encoder: Path, tmp_path: Path
) -> None:
    folder, texts = shutil.copytree(tiny_encoder, tmp_path / "model"), ["how do i bake bread"]
    encoder = run_data.EncoderModel("sample", str(folder), "model")
    before = run_data.encode_queries(encoder, texts)
    model = load_encoder(EncoderConfig(name=str(tiny_encoder)))
    reinit_layers(model, 1, seed=1)
    shutil.rmtree(folder)
    model.save(str(folder))
    after = run_data.encode_queries(encoder, texts)
    np.testing.assert_allclose(after, encode(model, tokenize(model, texts, 256)), rtol=1e-5, atol=1e-6)
    assert np.abs(after - before).max() > 0.01


def test_the_model_of_a_run_with_prompts_is_refused_for_texts_without_sides(finished: Run) -> None:
    config = finished.config().model_dump(mode="json")
    config["encoder"]["query_prompt"] = "question: "
    finished.write_json("config", config)
    app = prepare_page("retrieval", encoder=f"run:{finished.id}").run()
    assert not app.metric
    assert "has prompts of queries and documents" in page_text(app)


def test_results_have_exact_ranks_in_both_lists(finished: Run) -> None:
    result = searched(finished)
    task = result.task
    rankings = []
    for model in result.models:
        vectors = np.asarray(model.vectors())
        rankings.append(top_k(vectors[task.query[1]][None], vectors[task.corpus], len(task.corpus)))
    answers = search_ui.answer(result, result.text(task.query[1]))
    for hits, ranking, other in zip((answers.left, answers.right), rankings, rankings[::-1], strict=True):
        order = other[0][0].tolist()
        assert [hit.document for hit in hits] == ranking[0][0, : search_ui.TOP].tolist()
        assert [hit.score for hit in hits] == ranking[1][0, : search_ui.TOP].tolist()
        assert [hit.other_rank for hit in hits] == [order.index(hit.document) + 1 for hit in hits]
        assert [hit.gold for hit in hits] == [hit.document in task.relevant(1) for hit in hits]


def test_queries_with_similar_or_equal_texts_have_their_own_relevant_documents(
    runs: RunStore, tiny_encoder: Path
) -> None:
    rows = ["query_id\tquery\tdocument\tsplit", "train\twhat is soup\ta warm meal\ttrain"]
    rows += ["upper\tWhat does Book sell\ta song\tdev", "lower\twhat does book sell\ta train ticket\tdev"]
    rows += ["first\thow to bake\tbread in the rain\tdev", "second\thow to bake\tsalt in the garden\tdev"]
    file = uploads.save_file("pairs.tsv", "\n".join(rows).encode())
    columns = {"query_id": "query_id", "query": "query", "document": "document", "split": "split"}
    key = uploads.register(file.parent, "pairs.tsv", DataConfig(train=str(file), columns=columns))
    model = run_data.EncoderModel(key, str(tiny_encoder), "tiny")
    search = search_ui.search_split(data_cache.dataset_splits(key), (model, model), "dev")

    def relevant(query: str, position: int | None = None) -> set[str]:
        results = search_ui.answer(search, query, position)
        return {search.text(search.task.corpus[document]) for document in results.relevant}

    assert relevant("what does book sell") == {"a train ticket"}
    assert relevant("What does Book  sell") == relevant("WHAT DOES BOOK SELL") == {"a song"}
    assert relevant("how to bake") == {"bread in the rain", "salt in the garden"}
    assert [relevant("how to bake", position) for position in (2, 3)] == [{"bread in the rain"}, {"salt in the garden"}]
    app = prepare_page("retrieval", dataset=key, encoder=str(tiny_encoder), **{"retrieval.query": "how to bake"}).run()
    assert "2 queries have this text" in page_text(app)


def test_a_long_query_of_the_errors_is_saved_and_searched_for_as_a_whole(runs: RunStore, tiny_encoder: Path) -> None:
    long = " ".join(["how do i bake bread in the garden"] * 80)
    rows = ["query\tdocument\tsplit", "what is soup\ta warm meal\ttrain", f"{long}\tsalt\tdev", "bread\tbread\tdev"]
    file = uploads.save_file("long.tsv", "\n".join(rows).encode())
    columns = {"query": "query", "document": "document", "split": "split"}
    key = uploads.register(file.parent, "long.tsv", DataConfig(train=str(file), columns=columns))
    app = prepare_page("retrieval", dataset=key, encoder=str(tiny_encoder)).run()
    model = run_data.EncoderModel(key, str(tiny_encoder), "tiny")
    search = search_ui.search_split(data_cache.dataset_splits(key), (model, model), "dev")
    [row] = errors.error_rows(search)
    assert row["Query"] == long
    assert long in display.table_csv([row]).decode()

    app.text_input(key=search_ui.QUERY).set_value(row["Query"]).run()
    assert "★ relevant document: rank 2." in page_text(app)
    assert "too long for the link" in page_text(app)
    assert search_ui.QUERY not in app.query_params
    app.text_input(key=search_ui.QUERY).set_value("").run()
    assert "★ relevant document" not in page_text(app)


def test_a_saved_table_with_very_many_characters_has_its_texts_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"Query": "word " * 1000, "Rank": number} for number in range(3)]
    assert display.table_csv(rows).count(b"word") == 3000
    monkeypatch.setattr(display, "MAX_CSV", 10_000)
    for table in (rows, pd.DataFrame(rows)):
        assert display.table_csv(table).count(b"word") == 3 * display.MAX_CELL // len("word ")


def test_the_same_query_is_searched_once(finished: Run, passes: list[int]) -> None:
    query = "snow at the train door"  # no other test uses it
    app = prepare_page("retrieval", run=finished.id, **{"retrieval.query": query})
    app.run()
    assert not app.exception
    assert passes
    passes.clear()
    app.run()
    assert not app.exception
    assert passes == []
    app.text_input(key="retrieval.query").set_value("rain at the garden door").run()
    documents = len(searched(finished).documents)
    assert passes == [documents, documents]


def test_user_queries_are_searched_again_for_other_documents(finished: Run) -> None:
    queries = parse_queries("soup of the day\na rose in the garden")
    data = run_data.load_splits(finished)
    few = data.dev.take(data.dev.document == data.dev.document[0])
    one_split = {"train": few, "dev": few}
    for search in (searched(finished), searched(finished, "test", test=data.train), searched(finished, **one_split)):
        answers = custom_queries.answer_queries(search, queries)
        first = [
            top_k(
                run_data.encode_queries(model, list(queries.texts)), np.asarray(model.vectors())[search.documents], 10
            )[0]
            for model in search.models
        ]
        assert answers.first.tolist() == [top[:, 0].tolist() for top in first]
        assert len(custom_queries.answer_rows(search, queries, answers)) == 2


def test_a_search_with_many_queries_lets_the_others_take_turns(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "QUERIES_AT_ONCE", 2)
    model, texts = run_data.models(finished)[1], ["rain", "snow and ice", "a storm", "wind", "fog"]
    alone = np.concatenate([run_data.encode_queries(model, [text]) for text in texts])
    turns, turn = [], run_data.turns.turn

    @contextmanager
    def counted(*, draw: bool) -> Iterator[None]:
        with turn(draw=draw):
            turns.append(draw)
            yield

    monkeypatch.setattr(run_data.turns, "turn", counted)
    np.testing.assert_allclose(run_data.encode_queries(model, texts), alone, atol=1e-6)
    assert turns == [False] * 3


def test_two_splits_of_the_same_rows_stay_two_searches(finished: Run) -> None:
    dev = run_data.load_splits(finished).dev
    assert [searched(finished, split, test=dev).split for split in ("dev", "test")] == ["dev", "test"]


def test_a_small_corpus_is_shared_completely(finished: Run) -> None:
    dev = run_data.load_splits(finished).dev
    few = dev.take(np.isin(dev.document, np.unique(dev.document)[:3]))
    search = searched(finished, train=few, dev=few)
    queries = parse_queries("soup\nbread")
    lines = custom_queries.answer_rows(search, queries, custom_queries.answer_queries(search, queries))
    assert [line["Shared"] for line in lines] == ["3 of 3", "3 of 3"]


def test_relevant_documents_missing_from_the_corpus_are_reported(finished: Run) -> None:
    app = prepare_page("retrieval", run=finished.id)
    app.session_state["retrieval.part"] = "Your queries"
    app.run()
    known = searched(finished).text(searched(finished).task.corpus[0])
    expected = {f"soup\t{known}": "", "soup\tno such text": "1 relevant document is not in the corpus"}
    for lines, message in expected.items():
        app.text_area(key="retrieval.own.lines").set_value(lines).run()
        assert not app.exception
        captions = [caption.value for caption in app.caption if "not in the corpus" in caption.value]
        assert len(captions) == bool(message)
        assert all(caption.startswith(message) for caption in captions)


def test_a_typed_query_finds_documents_of_all_splits_and_one_of_the_data_those_of_its_metrics(finished: Run) -> None:
    search = searched(finished)
    assert search.data.corpus is None
    others = np.setdiff1d(search.data.train.document, search.task.corpus)
    text = search.text(others[0])
    typed = search_ui.answer(search, text)
    assert [typed.left[0].text, typed.right[0].text] == [text, text]
    queries = parse_queries(text)
    answers = custom_queries.answer_queries(search, queries)
    assert custom_queries.answer_rows(search, queries, answers)[0]["Top document, left"] == text
    known = search_ui.answer(search, search.text(search.task.query[0]))
    assert {hit.text for hit in known.left} <= {search.text(one) for one in search.task.corpus}
    app = open_page("retrieval", run=finished.id)
    app.text_input(key="retrieval.query").set_value(text).run()
    assert f"It searches all {len(search.documents)} documents of the dataset" in page_text(app)
    app.text_input(key="retrieval.query").set_value(search.text(search.task.query[0])).run()
    assert f"The {len(search.task.corpus)} documents of dev are searched, as for the metrics." in page_text(app)


def test_a_list_has_the_ranks_the_cosines_and_the_start_of_long_texts() -> None:
    hits = [ranks.Hit(1, "one", 0.9, True, 11), ranks.Hit(2, "word " * 100, 0.8, False)]
    hits.append(ranks.Hit(3, "three", 0.7, False, 1, True))
    first, second, third = search_ui.list_text(hits).split("\n")
    assert third == "3. 0.700 (other rank 1) ✗ three"
    assert first == "1. 0.900 (other rank 11) ★ one"
    assert second.startswith("2. 0.800 (other rank ?) word word")
    assert second.endswith("word…")
    assert len(second) < search_ui.LIST_LENGTH + len("2. 0.800 (other rank ?) ") + 1
