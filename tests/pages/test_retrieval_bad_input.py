"""Retrieval page with little or damaged data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import make_config
from bsc_core.runs import Run, RunStore
from pages.ui.retrieval import metric_cards, search
from tests.helpers.pages import open_page, page_text, prepare_page

PARTS = ("Errors", "Your queries", "Scores and labels", "HasPositive@k by k", "Results")


@pytest.fixture
def run_on(runs: RunStore, trained: Run, tmp_path: Path) -> Callable[..., Run]:
    """Function that trains the tiny encoder for one epoch on changed rows of the trained run's data."""
    from bsc_core.jobs.states import advance
    from bsc_core.pipeline import run_experiment

    def train(change: Callable[[list[dict[str, Any]]], None], **data: Any) -> Run:
        values = trained.config().model_dump(mode="json")
        rows = [json.loads(line) for line in Path(values["data"]["train"]).read_text(encoding="utf-8").splitlines()]
        change(rows)
        path = tmp_path / "pairs.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
        values["data"] |= {"train": str(path), **data}
        values["loss"] = {"name": "mse"}
        values["training"]["epochs"] = 1
        run = runs.create(make_config(values), "20260101-000000-changed-0001")
        advance(run, "running")
        run_experiment(run.config(), run)
        advance(run, "done", exit_code=0)
        return run

    return train


def open_every_tab(run: Run) -> AppTest:
    """Open the page with each of its tabs, and check that there is no exception."""
    for part in PARTS:
        app = prepare_page("retrieval", run=run.id)
        app.session_state["retrieval.part"] = part
        assert not app.run().exception
    return app


def test_pairs_without_a_positive_can_be_searched(run_on: Callable[..., Run]) -> None:
    def grade(rows: list[dict[str, Any]]) -> None:
        for index, row in enumerate(rows):
            row["label"] = 0.1 * (index % 4)

    app = open_every_tab(run_on(grade))
    assert "No dev pair is positive" in page_text(app)
    assert [card.label for card in app.metric] == ["Spearman"]
    app.text_input(key="retrieval.query").set_value("soup and bread").run()
    assert not app.exception
    assert "its relevant documents are unknown" in page_text(app)


def test_one_query_has_metrics_but_no_significance(run_on: Callable[..., Run]) -> None:
    def one_dev_query(rows: list[dict[str, Any]]) -> None:
        for index, row in enumerate(rows):
            row["split"] = "train" if index < 36 else "dev"
        rows.pop()

    columns = {"query": "query", "document": "document", "label": "label", "query_id": "query_id", "split": "split"}
    app = open_every_tab(run_on(one_dev_query, columns=columns))
    labels = [f"{label}, candidates" for label in metric_cards.RANKED.values() if label != "MAP"]  # equal to MRR here
    assert [card.label for card in app.metric] == labels
    assert "Not tested: one query" in page_text(app)


def test_vectors_that_are_not_finite_are_reported(finished: Run) -> None:
    path = finished.folder / "embeddings_after.npy"
    vectors = np.load(path)
    vectors[:] = np.nan
    np.save(path, vectors)
    app = open_page("retrieval", run=finished.id)
    assert not app.exception
    assert "is not finite; train again" in page_text(app)


def test_a_damaged_run_is_reported_and_not_offered_elsewhere(finished: Run, runs: RunStore) -> None:
    shutil.copytree(finished.folder, runs.root / "other-run")
    (runs.root / "other-run" / "embeddings_after.npy").write_bytes(b"cut off")
    assert [model.run.id for model in search.available_models(finished)] == [finished.id] * 2
    app = open_page("retrieval", run="other-run")
    assert not app.exception
    assert "embeddings_after.npy is damaged" in "".join(element.value for element in app.text)


def test_a_run_whose_labels_have_changed_shows_no_metrics_of_the_old_ones(run_on: Callable[..., Run]) -> None:
    run = run_on(lambda rows: None)
    assert open_page("retrieval", run=run.id).metric
    path = Path(run.config().data.train)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    flipped = [row | {"label": 1.0 - float(row["label"])} for row in rows]
    path.write_text("\n".join(map(json.dumps, flipped)) + "\n", encoding="utf-8")
    app = open_page("retrieval", run=run.id)
    assert not app.metric
    assert "its data files have changed since it was evaluated" in page_text(app)
