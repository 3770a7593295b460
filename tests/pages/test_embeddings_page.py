"""Embeddings page: maps of a run, selected texts, and their neighbors in embedding space."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import background_task, formatting
from bsc_core.config import DataConfig
from bsc_core.data import load_data
from bsc_core.evaluation.retrieval import search_errors
from bsc_core.figures.evaluation.maps import pack
from bsc_core.neighbors import nearest_others
from bsc_core.runs import Run, RunStore
from pages.ui.components import run_data
from pages.ui.components.browser import mount
from pages.ui.embeddings import frames, geometry, map_task, map_view, pair_matrix, selection, text_attributes
from tests.helpers.pages import PCA, figure_titles, open_page, page_text, prepare_page
from tests.pages.mapped_runs import map_data

MARKUP = "<b>bread</b> **bake** $x$ 0"


def picture(app: AppTest) -> dict[str, Any]:
    [canvas] = [one for one in app.main.get("bidi_component") if one.proto.component_name.endswith("text_map")]
    sent: dict[str, Any] = json.loads(canvas.proto.mixed.json)
    return sent


def test_a_run_shows_two_maps_and_the_neighbors_they_preserve(visit: Callable[..., AppTest], mapped: Run) -> None:
    app = visit("embeddings", run=mapped.id)
    assert not app.exception
    assert picture(app)["names"] == ["Before training", "After training"]
    assert not picture(app)["moving"]
    assert "are also among its 10 nearest on the map" in page_text(app)
    assert "neighbors changed most" in page_text(app)
    data = map_data(mapped)
    pairs = geometry.ten_pairs(data, data.sample(map_view.TEXT_LIMITS[0]))
    assert picture(app)["pairs"] == pairs.tolist()  # all texts are on the map
    assert picture(app)["pairs_name"] == "texts of a positive pair"
    distances = [np.median([1 - float(left @ right) for left, right in one.vectors(None)[pairs]]) for one in data.ends]
    expected = " and ".join(
        f"{distance:.3f} ({when} training)" for distance, when in zip(distances, ("before", "after"), strict=True)
    )
    assert f"The median cosine distance of only these pairs is {expected}." in page_text(app)


def test_the_text_whose_neighbors_are_listed_is_marked_on_the_map(visit: Callable[..., AppTest], mapped: Run) -> None:
    data = map_data(mapped)
    changed = selection.most_changed_texts(data, data.sample(map_view.TEXT_LIMITS[0]))
    app = visit("embeddings", run=mapped.id, **{selection.TEXT: f"{selection.digest(data)}-{changed[3]}"})
    assert data.dataset.texts[int(changed[3])] in page_text(app)
    assert picture(app)["selected"] == pack(np.arange(len(data.dataset.texts)) == changed[3])


def test_a_single_selected_text_is_connected_with_its_neighbors_which_are_listed(mapped: Run) -> None:
    data = map_data(mapped)
    link = {selection.SELECTED: f"{selection.digest(data)}-{selection.pack_ids([3])}"}
    app = open_page("embeddings", run=mapped.id, **link)
    assert not app.exception
    nearest, _ = data.nearest(data.ends[-1], np.array([3]), 10)
    assert picture(app)["pairs"] == [[3, other] for other in nearest[0].tolist()]  # all texts are on the map
    assert picture(app)["pairs_name"] == "nearest neighbors of the selected text"
    assert "Nearest in embedding space to" in page_text(app)
    assert "Cosine similarities of" not in page_text(app)


def test_the_maps_of_all_models_together_have_a_limit(mapped: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    dimensions = map_data(mapped).ends[0].dimensions
    monkeypatch.setattr(map_view, "MAX_NUMBERS", 2 * dimensions * 7 + 1)
    app = open_page("embeddings", run=mapped.id, **PCA)
    assert len(picture(app)["names"]) == 2
    assert picture(app)["count"] == 7


def test_only_the_first_characters_of_words_to_find_are_compared(mapped: Run) -> None:
    data = run_data.load_splits(mapped)
    rows = np.arange(len(data.texts), dtype=np.int32)
    few = selection.find_texts(data, rows, "How")
    assert len(few)
    assert selection.find_texts(data, rows, "how" + " " * selection.MAX_FIND + "absent").tolist() == few.tolist()


def test_pca_needs_no_background_task(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_task, "start", lambda *arguments: pytest.fail("a task was started"))
    app = prepare_page("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.run()
    assert not app.exception
    assert picture(app)["count"] == len(run_data.load_splits(finished).texts)


def test_matching_texts_are_listed_with_their_neighbors(mapped: Run) -> None:
    app = open_page("embeddings", run=mapped.id)
    app.text_input(key="embeddings.find").set_value("bake").run()
    assert not app.exception
    assert "1 text selected" in page_text(app)
    assert '1 text contains "bake".' in page_text(app)
    table = app.dataframe[0].value
    assert table["Text"].tolist() == [MARKUP]
    data = run_data.load_splits(mapped)
    text_id = data.texts.texts.index(MARKUP)
    for column, part in (("Nearest, before training", "before"), ("Nearest, after training", "after")):
        ids, _ = nearest_others(np.asarray(mapped.array(f"embeddings_{part}")), np.array([text_id]), 1)
        assert table[column].tolist() == [data.texts[int(ids[0, 0])]]


def test_a_text_that_looks_like_markup_stays_text(mapped: Run) -> None:
    app = open_page("embeddings", run=mapped.id)
    assert not any(
        "<b>bread" in element.value for kind in ("markdown", "caption", "subheader") for element in app.get(kind)
    )


@pytest.mark.parametrize("color", ["side", "label", "topic", "split", "group", "error"])
def test_each_coloring_draws(mapped: Run, color: str) -> None:
    app = open_page("embeddings", run=mapped.id)
    app.selectbox(key="embeddings.color").set_value(color).run()
    assert not app.exception


def test_the_selection_can_be_cleared(mapped: Run) -> None:
    digest = run_data.load_splits(mapped).texts.digest[:6]
    app = open_page("embeddings", run=mapped.id, **{selection.SELECTED: f"{digest}-{selection.pack_ids([3, 0])}"})
    assert "2 texts selected" in page_text(app)
    app.button(key="embeddings.clear").click().run()
    assert "texts selected" not in page_text(app)
    assert selection.SELECTED not in app.query_params
    app.query_params[selection.SELECTED] = "000000-AAM"
    assert "are not those of this dataset" in page_text(app.run())


def test_words_to_find_and_a_lasso_select_the_texts_of_both(mapped: Run) -> None:
    data = run_data.load_splits(mapped)
    match = data.texts.texts.index(MARKUP)
    packed = selection.pack_ids([0, 3, match])
    link = {selection.SELECTED: f"{data.texts.digest[:6]}-{packed}", "embeddings.find": "bake"}
    app = open_page("embeddings", run=mapped.id, **link)
    assert not app.exception
    assert '1 text selected: in the lasso and with "bake"' in page_text(app)
    assert any(title.endswith("; 1 selected") for title in figure_titles(app))
    assert app.dataframe[0].value["Text"].tolist() == [MARKUP]
    app.text_input(key="embeddings.find").set_value("absent words").run()
    assert '0 texts selected: in the lasso and with "absent words"' in page_text(app)
    app.button(key="embeddings.clear").click().run()
    assert '0 texts selected: with "absent words"' in page_text(app)
    assert 'No text contains all words of "absent words".' in page_text(app)
    app.button(key="embeddings.clear_words").click().run()
    assert not app.exception
    assert app.text_input(key="embeddings.find").value == ""
    assert "neighbors changed most" in page_text(app)


def test_the_title_says_that_the_pca_map_is_shown_while_umap_is_computed(
    finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_task, "start", lambda *arguments: None)
    monkeypatch.setattr(background_task, "elapsed_seconds", lambda folder: 1.0)
    app = open_page("embeddings", run=finished.id)
    assert not app.exception
    assert any("(PCA; UMAP is being computed)" in title for title in figure_titles(app))
    app.segmented_control(key="embeddings.method").set_value("pca").run()
    assert any("before training and after training (PCA); " in title for title in figure_titles(app))


def test_a_umap_map_that_becomes_ready_does_not_replace_the_map_with_a_selection(
    finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_task, "start", lambda *arguments: None)
    monkeypatch.setattr(background_task, "elapsed_seconds", lambda folder: 1.0)
    data = run_data.load_splits(finished)
    link = {selection.SELECTED: f"{data.texts.digest[:6]}-{selection.pack_ids([0, 3])}"}
    app = open_page("embeddings", run=finished.id, **link)
    rows, points = np.arange(len(data.texts), dtype=np.int32), np.zeros((len(data.texts), 2))
    monkeypatch.setattr(map_task, "is_ready", lambda folder: True)
    monkeypatch.setattr(map_task, "load_maps", lambda folder: map_task.Maps(rows, [points, points], [0.5, 0.5]))
    app.run()
    assert any("(PCA; UMAP is ready)" in title for title in figure_titles(app))
    assert "The UMAP map is ready" in page_text(app)
    app.button(key="embeddings.show_umap").click().run()
    assert any("(UMAP)" in title for title in figure_titles(app))
    assert "2 texts selected" in page_text(app)
    assert "embeddings.show_umap" not in [button.key for button in app.button]


def test_a_selection_on_a_umap_map_keeps_it(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_task, "start", lambda *arguments: None)
    monkeypatch.setattr(background_task, "elapsed_seconds", lambda folder: 1.0)
    data = run_data.load_splits(finished)
    app = open_page("embeddings", run=finished.id)
    assert any("(PCA; UMAP is being computed)" in title for title in figure_titles(app))
    rows, points = np.arange(len(data.texts), dtype=np.int32), np.zeros((len(data.texts), 2))
    monkeypatch.setattr(map_task, "is_ready", lambda folder: True)
    monkeypatch.setattr(map_task, "load_maps", lambda folder: map_task.Maps(rows, [points, points], [0.5, 0.5]))
    app.run()
    assert any("(UMAP)" in title for title in figure_titles(app))
    app.query_params[selection.SELECTED] = f"{data.texts.digest[:6]}-{selection.pack_ids([0, 3])}"
    app.run()
    assert "2 texts selected" in page_text(app)
    assert any("(UMAP)" in title for title in figure_titles(app))


def test_the_title_states_how_the_distance_of_positive_pairs_changed(mapped: Run) -> None:
    data = map_data(mapped)
    dev = data.dataset.dev
    pairs = np.unique(np.stack([dev.query[dev.positive], dev.document[dev.positive]], axis=1), axis=0)
    medians = [
        np.median([1 - left @ right for left, right in zip(*(one.vectors(side) for side in pairs.T), strict=True)])
        for one in data.ends
    ]
    number = formatting.plural(len(pairs), "positive pair")
    change = f"median cosine distance of {number} of dev: {medians[0]:.3f} → {medians[1]:.3f}"
    assert any(title.endswith(f"); {change}") for title in figure_titles(open_page("embeddings", run=mapped.id)))


def test_the_title_of_the_matrices_has_the_number_of_pairs_that_are_shown(mapped: Run, monkeypatch) -> None:
    monkeypatch.setattr(pair_matrix, "MAX_PAIRS", 2)
    data = map_data(mapped)
    packed = selection.pack_ids(np.unique(data.dataset.train.query).tolist())
    app = open_page("embeddings", run=mapped.id, **{selection.SELECTED: f"{selection.digest(data)}-{packed}"})
    assert f"Cosine similarities of 2 of {len(data.dataset.train)} pairs" in page_text(app)


def test_selected_texts_show_their_pairs_as_matrices_and_a_cell_as_a_line(mapped: Run) -> None:
    data = map_data(mapped)
    train, digest = data.dataset.train, selection.digest(data)
    query, document = int(train.query[2]), int(train.document[0])
    packed = selection.pack_ids([query, int(train.document[2])])
    link = {selection.SELECTED: f"{digest}-{packed}", selection.PAIR: f"{digest}-{query}-{document}"}
    app = open_page("embeddings", run=mapped.id, **link)
    assert not app.exception
    rows = np.flatnonzero((train.query == query) | (train.document == train.document[2]))
    assert f"Cosine similarities of {formatting.plural(len(rows), 'pair')}" in page_text(app)
    titles = [title for title in figure_titles(app) if f"{formatting.plural(len(rows), 'pair')}, " in title]
    assert [title.split(":")[0] for title in titles] == ["Before training", "After training"]
    assert picture(app)["pairs"] == [[query, document]]  # all texts are on the map
    assert picture(app)["pairs_name"] == "texts of the selected cell"
    cosines = [float(left @ right) for left, right in (one.vectors(np.array([query, document])) for one in data.ends)]
    assert f"their cosine is {cosines[0]:.3f} (before training) and {cosines[1]:.3f} (after training)" in page_text(app)
    app.button(key="embeddings.clear").click().run()
    assert selection.PAIR not in app.query_params
    assert picture(app)["pairs"] != [[query, document]]


def test_the_matrix_prefers_pairs_of_two_selected_texts_then_positive_ones(
    mapped: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, every = map_data(mapped), np.arange(len(map_data(mapped).dataset.texts))
    train = data.dataset.train
    both = pair_matrix.selected_pairs(data, np.array([train.query[1], train.document[1]]))
    assert both is not None
    monkeypatch.setattr(pair_matrix, "MAX_PAIRS", 1)
    first = pair_matrix.selected_pairs(data, np.array([train.query[1], train.document[1]]))
    assert first is not None
    assert (first.split, first.rows.tolist(), first.total) == ("train", [1], both.total)
    monkeypatch.setattr(pair_matrix, "MAX_PAIRS", int(train.positive.sum()))
    whole = pair_matrix.selected_pairs(data, every)
    assert whole is not None
    assert whole.rows.tolist() == np.flatnonzero(train.positive).tolist()
    assert pair_matrix.selected_pairs(data, selection.NO_TEXTS) is None
    cells = pair_matrix._cells(data.ends[-1], both)
    vectors = data.ends[-1].vectors(None)
    expected = vectors[train.query[both.rows]] @ vectors[train.document[both.rows]].T
    np.testing.assert_allclose(cells.similarity, expected, atol=1e-6)
    assert cells.positive.tolist() == train.positive[both.rows].tolist()


@pytest.mark.parametrize("pair", ["000000-0-1", "{digest}-0", "{digest}-0-99999", "{digest}-0-x", "{digest}-0-1-2"])
def test_a_pair_that_is_not_on_the_map_is_reported(mapped: Run, pair: str) -> None:
    data = map_data(mapped)
    app = open_page("embeddings", run=mapped.id, **{selection.PAIR: pair.format(digest=selection.digest(data))})
    assert not app.exception
    assert "The texts of the pair are not on this map." in page_text(app)


def test_selected_texts_are_short_in_a_url() -> None:
    sampled = np.random.default_rng(0).choice(100_000, 2000, replace=False)
    for ids in (sampled, np.array([0]), np.array([2**31 - 1]), np.arange(5, 600)):
        packed = selection.pack_ids(ids)
        assert selection.unpack_ids(packed).tolist() == sorted(ids.tolist())
        assert len(packed) <= selection.MAX_IN_URL
    assert [selection.unpack_ids(text) for text in ("", "?", "A", "_____w", "____________AA")] == [None] * 5


def test_topics_come_from_columns_without_a_role(finished: Run) -> None:
    data = run_data.load_splits(finished)
    topics = text_attributes.topics(data)
    assert list(topics) == ["topic"]
    assert set(topics["topic"]) <= {"soup", "bread", "salt"}


def test_topics_of_several_files_are_those_of_each_row(tmp_path: Path) -> None:
    files = []
    for name, topics in {"a": ("cats", "dogs"), "b": ("planes", "ships")}.items():
        rows = [f"question {row} about {topics[row % 2]}\tanswer {row} about {topics[row % 2]}" for row in range(10)]
        lines = ["query\tdocument\ttopic", *(f"{row}\t{row.rpartition(' ')[2]}" for row in rows)]
        files.append(tmp_path / f"{name}.tsv")
        files[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = load_data(DataConfig(train=str(files[0]), mix=(str(files[1]),)))
    topics = text_attributes.topics(data)["topic"]
    assert set(topics) == {"cats", "dogs", "planes", "ships"}
    assert all(text.endswith(topic) for text, topic in zip(data.texts.texts, topics, strict=True))


def test_sides_labels_and_splits_agree_with_the_rows(finished: Run) -> None:
    data = run_data.load_splits(finished)
    sides, labels, splits = text_attributes.sides(data), text_attributes.labels(data), text_attributes.splits(data)
    for name, part in data.splits.items():
        for query, document, positive in zip(part.query, part.document, part.positive, strict=True):
            assert sides[query] in ("query", "both")
            assert sides[document] in ("document", "both")
            assert labels[document] == "positive" if positive else labels[document] in ("positive", "negative")
            assert splits[query] == name


def test_changed_files_are_refused(finished: Run) -> None:
    from bsc_core.errors import RunError

    finished.write_json("texts", {"digest": "other", "count": 1})
    with pytest.raises(RunError, match="changed since"):
        run_data.load_splits(finished)


def test_a_run_without_embeddings_links_to_the_run(runs: RunStore, trained: Run) -> None:
    runs.create(trained.config(), "fresh")
    app = open_page("embeddings", run="fresh")
    assert not app.exception
    assert app.button(key="embeddings.wait").label == "Open the run"


def test_a_run_with_embeddings_before_training_shows_one_map(finished: Run) -> None:
    (finished.folder / "embeddings_after.npy").unlink()
    app = prepare_page("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.run()
    assert not app.exception
    assert picture(app)["names"] == ["Before training"]


def test_without_a_run_the_encoder_is_mapped(
    runs: RunStore, tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BSC_CACHE", str(tmp_path / "cache"))
    app = prepare_page("embeddings")
    app.session_state["context"] = {"encoder": str(tiny_encoder)}
    app.session_state["embeddings.method"] = "pca"
    app.run()
    assert not app.exception
    assert len(picture(app)["names"]) == 1
    assert [group.proto.label for group in app.get("button_group")] == ["Map", "Show"]
    assert "Draw a lasso" in page_text(app)


def test_an_animated_map_has_a_frame_per_epoch(mapped: Run) -> None:
    app = prepare_page("embeddings", run=mapped.id)
    app.session_state["embeddings.way"] = map_view.ANIMATED
    app.run()
    assert not app.exception
    sent = picture(app)
    best = mapped.read_json("result")["best_epoch"]
    names = [f"Epoch {epoch}{' (best)' if epoch == best else ''}" for epoch in (1, 2)]
    assert sent["names"] == ["Before training", *names]
    assert sent["moving"]
    assert len(sent["frames"]) == 3
    assert sent["trails"]
    assert f"Nearest, {names[-1].lower()}" in app.dataframe[0].value.columns


def test_another_run_on_the_same_texts_shares_the_layout(finished: Run, runs: RunStore) -> None:
    shutil.copytree(finished.folder, runs.root / "other")
    app = prepare_page("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.session_state[f"embeddings.models.beside.{finished.id}"] = ["before", "after", "other"]
    app.run()
    assert not app.exception
    first, last, other = (
        np.frombuffer(base64.b64decode(one), dtype="<u2").astype(int) for one in picture(app)["frames"]
    )
    assert np.abs(last - other).max() <= 2
    assert np.abs(first - last).max() > 100


def test_a_run_without_epoch_vectors_is_animated_from_before_to_after(finished: Run) -> None:
    shutil.rmtree(finished.folder / "vectors")
    app = prepare_page("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.session_state["embeddings.way"] = map_view.ANIMATED
    app.run()
    assert not app.exception
    assert picture(app)["names"] == ["Before training", "After training"]


def test_search_results_differ_by_model(mapped: Run) -> None:
    app = prepare_page("embeddings", run=mapped.id)
    app.session_state["embeddings.color"] = map_view.SEARCH_RESULT
    app.run()
    assert not app.exception
    assert len(picture(app)["values"]) == 2
    data = map_data(mapped)
    colorings = map_view.color_texts(data, map_view.SEARCH_RESULT, np.arange(len(data.dataset.texts), dtype=np.int32))
    vectors = np.asarray(mapped.array("embeddings_after"))
    assert colorings[1].values == search_errors.search_errors([data.dataset.dev], None, vectors)


def test_colors_follow_the_threshold_and_the_split(mapped: Run) -> None:
    data = map_data(mapped)
    dataset, rows = data.dataset, np.arange(len(data.dataset.texts), dtype=np.int32)
    strict = replace(dataset, **{name: replace(part, threshold=1.0) for name, part in dataset.splits.items()})
    swapped = replace(dataset, train=dataset.dev, dev=dataset.train)
    search_results = []
    for changed in (dataset, strict, swapped):
        changed_data = replace(data, dataset=changed)
        names = ("label", "split", map_view.SEARCH_RESULT)
        values = {name: map_view.color_texts(changed_data, name, rows)[0].values for name in names}
        assert values["label"] == text_attributes.labels(changed)
        assert values["split"] == text_attributes.splits(changed)
        vectors = data.frames[0].vectors(None)
        assert values[map_view.SEARCH_RESULT] == text_attributes.errors(changed, vectors, None).values
        search_results.append(tuple(values[map_view.SEARCH_RESULT]))
    assert len(set(search_results)) == 3


def test_neighbors_are_searched_among_common_texts(mapped: Run) -> None:
    mapped.write_array("vectors/texts", np.arange(0, 30, dtype=np.int32))
    for epoch in (1, 2):
        mapped.write_array(f"vectors/epoch-00{epoch}", np.asarray(mapped.array(f"vectors/epoch-00{epoch}"))[:30])
    data = map_data(mapped)
    data = data.with_frames(frames.animated_frames(data))
    assert data.sample(1000).tolist() == list(range(30))
    for one, array in zip(data.ends, ("embeddings_before", "vectors/epoch-002"), strict=True):
        ids, _ = data.nearest(one, np.array([4, 9]), 5)
        assert np.array_equal(ids, nearest_others(np.asarray(mapped.array(array))[:30], np.array([4, 9]), 5)[0])
    assert selection.shared_neighbors(data, np.array([4, 9])).tolist() == [
        len(set(one) & set(two))
        for one, two in zip(*(data.nearest(end, np.array([4, 9]), 10)[0].tolist() for end in data.ends), strict=True)
    ]


def test_a_link_restores_layout_and_color(mapped: Run) -> None:
    app = open_page("embeddings", run=mapped.id, **{"embeddings.way": "Animated", "embeddings.color": "Split"})
    assert not app.exception
    assert picture(app)["moving"]
    assert "train" in [category[0] for category in picture(app)["categories"]]


def test_a_selection_of_another_map_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {"id": "old", "mask": pack(np.array([True, False, True]))}
    monkeypatch.setattr(mount, "_MAP", lambda **_: {"selected": sent})
    picture_of = {"id": "new", "count": 3, "names": ["Before"]}
    texts = pd.DataFrame({"text": ["a", "b", "c"]})
    assert mount.map_canvas(picture_of, texts, key="k", label="l", moving=False) is None
    selected = mount.map_canvas({**picture_of, "id": "old"}, texts, key="k", label="l", moving=False)
    assert selected is not None
    assert selected.tolist() == [0, 2]
