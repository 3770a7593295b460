"""Run folders: atomic writes, reading, ids, and confinement to the runs folder."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import DataConfig, MSELossConfig, RunConfig
from bsc_core.errors import RunError, RunNotFoundError
from bsc_core.files import to_jsonable
from bsc_core.runs import Run, RunStatus, RunStore
from bsc_core.runs.ids import new_run_id, short_id

CONFIG = RunConfig(data=DataConfig(train="pairs.tsv"))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs", clock=lambda: 1000.0)


@pytest.fixture
def run(store: RunStore) -> Run:
    return store.create(CONFIG, "one")


def test_a_new_run_is_queued_and_keeps_its_config(store: RunStore) -> None:
    run = store.create(CONFIG, "one")
    assert run.status() == RunStatus(state="queued", created=1000.0, updated=1000.0)
    assert run.config() == CONFIG
    assert store.get("one").config() == CONFIG


def test_creating_an_id_again_returns_the_existing_run(store: RunStore, run: Run) -> None:
    run.update_status(state="running", step=7)
    again = store.create(RunConfig(name="other", data=DataConfig(train="other.tsv")), "one")
    assert again.config() == CONFIG
    assert again.status().step == 7
    assert [known.id for known in store.list()] == ["one"]


def test_many_threads_creating_one_id_create_one_run(store: RunStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: store.create(CONFIG, "same"), range(32)))
    assert {run.folder for run in runs} == {store.root / "same"}
    assert sorted(path.name for path in store.root.iterdir()) == ["same"]


@pytest.mark.parametrize(
    "name", ["..", ".", "a/b", "../one", "/etc", "", " ", "a\\b", "-one", "one.", "uploads", "x" * 101]
)
def test_an_id_outside_the_runs_folder_is_refused(store: RunStore, run: Run, name: str) -> None:
    with pytest.raises(RunNotFoundError):
        store.get(name)


def test_the_error_for_an_unknown_run_lists_the_known_ones(store: RunStore, run: Run) -> None:
    with pytest.raises(RunNotFoundError, match=r"run two: not in .*; list the ids with `bsc runs`"):
        store.get("two")


def test_runs_are_listed_newest_first_and_other_folders_are_not(tmp_path: Path) -> None:
    for seconds, name in ((10.0, "old"), (30.0, "new"), (20.0, "middle")):
        RunStore(tmp_path, clock=lambda seconds=seconds: seconds).create(CONFIG, name)
    store = RunStore(tmp_path)
    store.uploads_folder.mkdir()
    (tmp_path / "notes").mkdir()
    assert [run.id for run in store.list()] == ["new", "middle", "old"]


def test_a_store_without_a_folder_has_no_runs(tmp_path: Path) -> None:
    assert RunStore(tmp_path / "none").list() == []
    assert not (tmp_path / "none").exists()


def test_the_environment_names_the_runs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BSC_RUNS", str(tmp_path / "there"))
    assert RunStore().root == tmp_path / "there"
    monkeypatch.delenv("BSC_RUNS")
    monkeypatch.chdir(tmp_path)
    assert RunStore().root == tmp_path / "runs"


def test_ids_sort_by_time_and_say_what_the_run_is() -> None:
    named = CONFIG.model_copy(update={"name": "Größe & τ = 0.05 / hard"})
    first, second = new_run_id(CONFIG, now=0.0), new_run_id(named, now=1.0)
    assert first.startswith("19700101-000000-bsc-nearest-")
    assert second.startswith("19700101-000001-gr-e-0.05-hard-")
    assert new_run_id(CONFIG, now=0.0) != first


@pytest.mark.parametrize(
    ("run_id", "short"),
    [
        ("20260101-000000-bsc-nearest-t0.05-12ab", "bsc-nearest-t0.05-12ab"),
        ("20260101-000000-my-name-8305", "my-name-8305"),
        ("20260101-000000-my-name-8305-001-seed-1", "my-name-8305 001 seed-1"),
        ("20260101-000000-my-name-8305-001-seed-1-ab12", "my-name-8305 001 seed-1-ab12"),
    ],
)
def test_the_short_id_of_a_run_of_a_group_has_the_name_of_the_group(run_id: str, short: str) -> None:
    assert short_id(run_id) == short


def test_the_id_of_a_group_has_what_is_equal_in_all_its_runs() -> None:
    other = CONFIG.model_copy(update={"batching": CONFIG.batching.model_copy(update={"strategy": "random"})})
    assert new_run_id(CONFIG, CONFIG, now=0.0).startswith("19700101-000000-bsc-nearest-t0.1-")
    lower = CONFIG.model_copy(update={"loss": CONFIG.loss.model_copy(update={"temperature": 0.05})})
    assert re.fullmatch(r"19700101-000000-bsc-nearest-[0-9a-f]{4}", new_run_id(CONFIG, lower, now=0.0))
    assert new_run_id(CONFIG, other, now=0.0).startswith("19700101-000000-bsc-")
    assert "nearest" not in new_run_id(CONFIG, other, now=0.0)
    different = other.model_copy(update={"loss": MSELossConfig()})
    assert new_run_id(CONFIG, different, now=0.0).startswith("19700101-000000-sweep-")


def test_an_update_keeps_the_other_fields_of_a_status(run: Run) -> None:
    run.update_status(state="running", steps=40)
    status = run.update_status(step=10)
    assert (status.state, status.step, status.steps, status.updated) == ("running", 10, 40, 1000.0)
    assert run.status() == status
    assert status.progress == 0.25
    assert not status.is_finished


def test_an_unknown_status_field_is_refused_and_changes_nothing(run: Run) -> None:
    before = run.status()
    with pytest.raises(TypeError):
        run.update_status(stepp=1)
    assert run.status() == before


def test_unknown_fields_of_a_status_file_are_ignored(run: Run) -> None:
    path = run.folder / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "from_the_future": 1, "step": 3}))
    assert run.status().step == 3


def test_a_damaged_status_shows_as_lost_and_says_so(store: RunStore, run: Run) -> None:
    (run.folder / "status.json").write_text('{"state": "runn')
    assert run.status().state == "lost"
    assert "status.json cannot be read" in (run.status().error or "")
    assert [known.id for known in store.list()] == ["one"]


COUNT_UP = """
import sys
from dataclasses import replace
from pathlib import Path
from bsc_core.runs import Run
run = Run(Path(sys.argv[1]))
for _ in range(25):
    run.change_status(lambda status: replace(status, step=status.step + 1))
"""


def test_a_status_with_text_for_numbers_is_damaged_and_hides_no_other_run(store: RunStore, run: Run) -> None:
    store.create(run.config(), "other")
    (run.folder / "status.json").write_text('{"state": "done", "created": "yesterday"}', encoding="utf-8")
    assert {result.status().is_readable for result in store.list()} == {True, False}


def test_changes_by_several_processes_are_all_written(run: Run) -> None:
    command = [sys.executable, "-c", COUNT_UP, str(run.folder)]
    processes = [subprocess.Popen(command, cwd=Path(__file__).parents[2]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert run.status().step == 75
    assert not [path.name for path in run.folder.iterdir() if path.name.startswith(".status.json")]


def test_metrics_are_read_from_a_position(run: Run) -> None:
    assert run.metrics() == ([], 0)
    run.append_metrics({"step": 1, "loss": 0.5})
    first, position = run.metrics()
    run.append_metrics({"step": 2, "loss": 0.25})
    second, end = run.metrics(position)
    assert (first, second) == ([{"step": 1, "loss": 0.5}], [{"step": 2, "loss": 0.25}])
    assert run.metrics(end) == ([], end)


def test_a_half_written_line_waits_for_its_end(run: Run) -> None:
    run.append_metrics({"step": 1})
    with run.metrics_file.open("a") as file:
        file.write('{"step": 2, "lo')
    lines, position = run.metrics()
    assert lines == [{"step": 1}]
    with run.metrics_file.open("a") as file:
        file.write('ss": 1.0}\n')
    assert run.metrics(position)[0] == [{"step": 2, "loss": 1.0}]


def test_a_damaged_line_between_complete_ones_is_an_error(run: Run) -> None:
    run.metrics_file.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged"):
        run.metrics()


def test_non_finite_numbers_are_written_as_null(run: Run) -> None:
    run.append_metrics({"loss": float("nan"), "grad_norm": np.float32("inf"), "step": np.int64(3)})
    assert run.metrics()[0] == [{"loss": None, "grad_norm": None, "step": 3}]
    assert to_jsonable({"a": np.array([1.0, np.nan]), "b": (Path("x"), True, None)}) == {
        "a": [1.0, None],
        "b": ["x", True, None],
    }


def test_json_is_read_by_name_with_or_without_extension(run: Run) -> None:
    run.write_json("evaluation/before", {"dev": {"mrr": 0.5}})
    assert run.read_json("evaluation/before.json") == {"dev": {"mrr": 0.5}}
    assert (run.folder / "evaluation" / "before.json").is_file()
    assert run.read_json("evaluation/after") is None


def test_arrays_are_memory_mapped_and_read_only(run: Run) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    run.write_array("embeddings_before", vectors)
    mapped = run.array("embeddings_before.npy")
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, vectors)
    assert not mapped.flags.writeable
    assert run.array("embeddings_after") is None


def test_an_array_of_objects_is_refused_and_leaves_no_file(run: Run) -> None:
    before = sorted(path.name for path in run.folder.iterdir())
    with pytest.raises(ValueError, match="allow_pickle"):
        run.write_array("objects", np.array([{}], dtype=object))
    assert sorted(path.name for path in run.folder.iterdir()) == before


@pytest.mark.parametrize("name", ["../two", "a/../../two", "/tmp/two"])
def test_a_name_outside_the_run_is_refused(run: Run, name: str) -> None:
    with pytest.raises(RunError, match="outside its folder"):
        run.write_json(name, 1)


def test_a_stop_is_requested_by_a_flag(run: Run) -> None:
    assert not run.stop_requested()
    run.request_stop()
    run.request_stop()
    assert Run(run.folder).stop_requested()


def test_the_log_shows_its_last_lines_and_the_last_state_of_a_progress_bar(run: Run) -> None:
    assert run.log_tail() == []
    run.log_file.write_bytes(b"begin\n10%\r50%\r100%\r\n\nbroken \xff byte\nend\n")
    assert run.log_tail(3) == ["100%", "broken \ufffd byte", "end"]


def test_a_long_log_is_read_from_its_end_only(run: Run) -> None:
    run.log_file.write_text("".join(f"line {number}\n" for number in range(200_000)))
    assert run.log_tail(2) == ["line 199998", "line 199999"]


def test_a_sample_of_very_many_steps_is_read_with_every_evaluation(tmp_path):
    run = RunStore(tmp_path).create(CONFIG)
    lines = [{"kind": "step", "step": step} for step in range(1, 1001)]
    lines.insert(333, {"kind": "evaluation", "epoch": 1, "dev": {"mrr": 0.5}})
    for line in lines:
        run.append_metrics(line)
    every, end = run.metrics()
    assert len(every) == 1001
    sample, sample_end = run.metrics(max_steps=100)
    assert sample_end == end
    assert [line for line in sample if line["kind"] == "evaluation"] == [lines[333]]
    assert 90 <= len(sample) <= 101
    assert run.metrics(max_steps=1001)[0] == every


@pytest.mark.parametrize("name", ["checkpoints", "plans", "model", "merged", "log.txt", "stop", "metrics.jsonl"])
def test_no_file_is_written_through_a_link_of_a_run_folder(run: Run, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (run.folder / name).symlink_to(other)
    paths = {
        "checkpoints": lambda: run.checkpoints_folder,
        "plans": lambda: run.plans_folder,
        "model": lambda: run.model_folder,
        "merged": lambda: run.merged_folder,
        "log.txt": lambda: run.log_file,
        "stop": run.request_stop,
        "metrics.jsonl": lambda: run.append_metrics({"step": 1}),
    }
    with pytest.raises(RunError, match="is a link"):
        paths[name]()
    assert list(other.iterdir()) == []


def test_vectors_of_unknown_texts_are_not_read(run: Run) -> None:
    run.write_embeddings("after", np.ones((2, 3), dtype=np.float32))
    with pytest.raises(RunError, match=r"texts.json is damaged"):
        run.embeddings("after")
    run.write_json("texts", {"digest": "x", "count": 2})
    assert len(run.embeddings("after")) == 2


def test_an_epoch_has_the_negatives_that_were_mined_last_before_it(tmp_path: Path) -> None:
    run = RunStore(tmp_path).create(RunConfig(data=DataConfig(train="pairs.csv")))
    for epoch in (2, 999, 1001):
        run.write_mined_negatives(epoch, np.full(3, epoch, dtype=np.int32))
    known = {epoch: run.mined_negatives(epoch) for epoch in (1, 2, 998, 1000, 1001, 5000)}
    assert known.pop(1) is None
    assert {epoch: int(rows[0]) for epoch, rows in known.items()} == {2: 2, 998: 2, 1000: 999, 1001: 1001, 5000: 1001}
