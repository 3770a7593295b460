"""Damaged files of a run folder: the Runs page reports the run and shows the others."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsc_core.errors import RunError
from bsc_core.jobs.actions import trash
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import GROUP
from pages.ui.components import page_layout
from pages.ui.embeddings import frames
from pages.ui.retrieval import search
from pages.ui.runs import detail, model_export, table
from tests.helpers.pages import open_page, page_text

DOCUMENTS = (
    "status.json",
    "config.json",
    "result.json",
    "evaluation/before.json",
    "evaluation/after.json",
    "evaluation/intervals.json",
    "evaluation/results.json",
    "evaluation/best_epoch.json",
    "first_batch.json",
    "texts.json",
    "metrics.jsonl",
)


def each_value(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Apply a function to every scalar of a JSON document, or of each line of one."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: changed(entry) for key, entry in value.items()}
        return [changed(entry) for entry in value] if isinstance(value, list) else change(value)

    return lambda data: b"\n".join(json.dumps(changed(json.loads(line))).encode() for line in lines_of(data)) + b"\n"


def lines_of(data: bytes) -> list[bytes]:
    """Return a document as one line, or the lines of a file of several documents."""
    try:
        return [json.dumps(json.loads(data)).encode()]
    except ValueError:
        return data.splitlines()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "list": lambda data: b"[]\n",
    "null": lambda data: b"null\n",
    "nested": lambda data: b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n",
    "trailing": lambda data: data.rstrip() + b" {} trailing\n",
    "not UTF-8": lambda data: data.replace(b'"', b'"\xff\xfe', 3),
    "texts for numbers": each_value(lambda value: str(value) if isinstance(value, int | float) else value),
    "numbers for texts": each_value(lambda value: 7 if isinstance(value, str) else value),
    "objects": each_value(lambda value: {"a": value}),
    "nulls": each_value(lambda value: None),
    "huge numbers": each_value(lambda value: 10**300 if isinstance(value, int | float) else value),
    "not finite": each_value(lambda value: float("nan") if isinstance(value, int | float) else value),
}


STRUCTURAL = ("list", "null", "nested", "trailing", "not UTF-8")
SHOWN = ("status.json", "config.json", "evaluation/after.json", "metrics.jsonl")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_damaged_file_leaves_the_page_and_the_other_runs(
    finished: Run, runs: RunStore, document: str, damage: str
) -> None:
    damaged = Run(finished.folder.with_name("20260102-000000-damaged-0002"))
    shutil.copytree(finished.folder, damaged.folder)
    path = damaged.folder / document
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    app = open_page("runs", run=damaged.id)
    rows = next(table.value for table in app.dataframe if "State" in table.value)
    states = {name.rpartition("-")[0]: state for name, state in zip(rows["Run"], rows["State"], strict=True)}
    assert set(states) == {"tiny", "damaged"}
    assert states["tiny"].endswith(" done")
    if document in SHOWN and damage in STRUCTURAL:
        assert re.search("damaged|cannot be read|has no", page_text(app))


@pytest.mark.parametrize("file", ["embeddings_after.npy", "config.json"])
def test_a_damaged_run_on_the_same_texts_does_not_affect_the_pages_of_others(finished: Run, file: str) -> None:
    damaged = Run(finished.folder.with_name("20260102-000000-damaged-0002"))
    shutil.copytree(finished.folder, damaged.folder)
    path = damaged.folder / file
    path.write_bytes(path.read_bytes()[:100])
    assert {model.run.id for model in search.available_models(finished)} == {finished.id}
    data = frames.load_map_data(page_layout.Context("sample", "bundled", finished.id))
    assert damaged.id not in {frame.key for frame in data.frames}


def test_metrics_with_other_cutoffs_are_ordered_last() -> None:
    assert sorted(["other@x", "mrr", "other@5"], key=table.metric_order) == ["mrr", "other@x", "other@5"]


def test_a_first_batch_without_its_fields_is_reported(finished: Run) -> None:
    finished.write_json("first_batch", {"pairs": [{}]})
    with pytest.raises(RunError, match=r"first_batch\.json is damaged"):
        detail._draw_first_batch(finished, finished.status())


def test_a_link_of_a_model_folder_to_another_file_is_not_exported(finished: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    number = len(model_export.model_files(finished))
    (finished.model_folder / "README.txt").symlink_to(tmp_path / "secret")
    assert len(model_export.model_files(finished)) == number > 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_group_leaves_the_page_and_the_other_runs(finished: Run, runs: RunStore, damage: str) -> None:
    damaged = Run(finished.folder.with_name("20260102-000000-damaged-0002"))
    finished.write_json(GROUP, {"group": "g", "setting": {"loss.temperature": 0.1}, "seed": 0})
    finished.update_status(group="g")
    shutil.copytree(finished.folder, damaged.folder)
    path = damaged.folder / f"{GROUP}.json"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert not open_page("runs", group="g").exception
    assert not open_page("runs").exception


@pytest.mark.parametrize("when", ["1" + "0" * 400, "-1", "NaN", "[]", "1e300"])
def test_a_deleted_run_with_a_damaged_time_can_be_restored(finished: Run, runs: RunStore, when: str) -> None:
    trash.trash(runs, finished)
    deleted = trash.list_trash(runs)[0].run
    (deleted.folder / "trashed.json").write_text(f'{{"when": {when}}}')
    (runs.root / ".trash" / ".looks.json").write_text(f'{{"last": {when}, "ages": {{}}}}')
    assert not open_page("runs").exception
    assert [one.id for one in trash.list_trash(runs)] == [finished.id]
