"""Retrieval where there is little to search: no positive, one query, few documents, damaged or useless vectors."""

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
from pages.ui import metric_cards, searching

PARTS = ("Where it fails", "Your own queries", "Scores and labels", "Gold by cut-off")


def shown(app: AppTest) -> str:
    return "\n".join(str(element.value) for kind in ("markdown", "text", "caption") for element in app.get(kind))


@pytest.fixture
def run_on(runs: RunStore, trained: Run, tmp_path: Path) -> Callable[..., Run]:
    """Trains the tiny encoder for one epoch on changed rows of the trained run's data."""
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
        run = runs.create(make_config(values), "20260101-000000-little-0001")
        advance(run, "running")
        run_experiment(run.config(), run)
        advance(run, "done", exit_code=0)
        return run

    return train


def calm_in_every_part(pages: type, run: Run) -> AppTest:
    """The page, after it was opened with each of its parts and no exception."""
    for part in PARTS:
        app = pages.closed("retrieval", run=run.id)
        app.session_state["retrieval.part"] = part
        assert not app.run().exception
    return app


def test_pairs_without_a_positive_are_told_of_and_can_be_searched(pages: type, run_on: Callable[..., Run]) -> None:
    def grade(rows: list[dict[str, Any]]) -> None:
        for place, row in enumerate(rows):
            row["label"] = 0.1 * (place % 4)

    app = calm_in_every_part(pages, run_on(grade))
    assert "No dev pair is positive" in shown(app)
    assert [card.label for card in app.metric] == ["Spearman"]
    app.text_input(key="retrieval.query").set_value("soup and bread").run()
    assert not app.exception
    assert "no gold is known" in shown(app)


def test_one_query_with_three_documents_has_values_and_no_verdict(pages: type, run_on: Callable[..., Run]) -> None:
    def one_dev_query(rows: list[dict[str, Any]]) -> None:
        for place, row in enumerate(rows):
            row["split"] = "train" if place < 36 else "dev"
        rows.pop()

    columns = {"query": "query", "document": "document", "label": "label", "query_id": "query_id", "split": "split"}
    app = calm_in_every_part(pages, run_on(one_dev_query, columns=columns))
    assert [card.label for card in app.metric] == list(metric_cards.RANKED.values())
    assert "One query: nothing can be told" in shown(app)


def test_vectors_that_are_no_numbers_are_a_calm_box(pages: type, finished: Run) -> None:
    path = finished.folder / "embeddings_after.npy"
    vectors = np.load(path)
    vectors[:] = np.nan
    np.save(path, vectors)
    app = pages.alone("retrieval", run=finished.id)
    assert not app.exception
    assert "is not finite; train again" in shown(app)


def test_a_damaged_run_beside_is_not_offered_and_a_damaged_run_is_told_of(
    pages: type, finished: Run, runs: RunStore
) -> None:
    shutil.copytree(finished.folder, runs.root / "other-run")
    (runs.root / "other-run" / "embeddings_after.npy").write_bytes(b"cut off")
    assert [model.run.id for model in searching.models_of(finished)] == [finished.id] * 2
    app = pages.alone("retrieval", run="other-run")
    assert not app.exception
    assert "embeddings_after.npy is damaged" in "".join(element.value for element in app.text)
