"""Transfer of folders through storage: reads are always consistent, whichever call fails."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsc_core.ray.jobs.storage import Downloader, Storage, StorageError, Uploader, folder_stamps
from tests.ray.conftest import write


def contents(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="utf-8") for name in folder_stamps(folder)}


def fail_at(monkeypatch: pytest.MonkeyPatch, call: int) -> list[int]:
    """Let the n-th call of the storage fail. Returns a list that grows with each call."""
    calls: list[int] = []
    answer = Storage._call

    def counted(self: Storage, use: Callable[[Any, str], Any]) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise StorageError("storage does not answer")
        return answer(self, use)

    monkeypatch.setattr(Storage, "_call", counted)
    return calls


def test_the_reader_has_the_writers_files_after_any_changes(storage, tmp_path):
    draw = random.Random(5)
    here, there = tmp_path / "here", tmp_path / "there"
    uploader, downloader = Uploader(here, storage), Downloader(there, storage)
    here.mkdir()
    names = ["log.txt", "evaluation/a.json", "checkpoints/step-1/progress.json", "checkpoints/step-1/state.pt"]
    for _ in range(12):
        for name in draw.sample(names, 2):
            if draw.random() < 0.3:
                (here / name).unlink(missing_ok=True)
            else:
                write(here, name, "x" * draw.randrange(1, 50))
        uploader.push()
        downloader = Downloader(there, storage, dict(downloader.downloaded))  # another process
        assert downloader.pull() is None
        assert contents(there) == contents(here)
        assert not list(there.glob("checkpoints/*")) or folder_stamps(there / "checkpoints")


def test_local_files_of_the_reader_stay_unchanged(storage, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for name in ("config.json", "launch.json", "stop", ".hidden/a", "log.txt"):
        write(here, name, "of the writer")
    for name in ("config.json", "launch.json", "notes.txt"):
        write(there, name, "of the reader")
    Uploader(here, storage).push()
    Downloader(there, storage).pull()
    assert contents(there) == {
        "config.json": "of the reader",
        "launch.json": "of the reader",
        "notes.txt": "of the reader",
        "log.txt": "of the writer",
    }


def test_an_ended_run_is_stored_with_its_result(storage, tmp_path, monkeypatch):
    """The run ends while its files are uploaded."""
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, "status.json", '{"state": "running"}')

    def ends(folder: Path, exclude: frozenset[str]) -> dict[str, list[int]]:
        listed = folder_stamps(folder, exclude)
        write(here, "result.json", '{"state": "done"}')
        write(here, "status.json", '{"state": "done"}')
        return listed

    uploader, downloader = Uploader(here, storage), Downloader(there, storage)
    monkeypatch.setattr("bsc_core.ray.jobs.storage.folder_stamps", ends)
    uploader.push()
    assert downloader.pull() == {"state": "running"}
    uploader.push()
    assert downloader.pull() == {"state": "done"}
    assert (there / "result.json").is_file()


@pytest.mark.parametrize("side", ["writer", "reader"])
def test_a_checkpoint_is_complete_whichever_call_fails(side, tmp_path, monkeypatch):
    failing_call = 0
    while True:
        failing_call += 1
        storage = Storage(f"file://{tmp_path}/stored-{failing_call}")
        here, there = tmp_path / f"here-{failing_call}", tmp_path / f"there-{failing_call}"
        write(here, "checkpoints/step-1/progress.json", "{}")
        write(here, "checkpoints/step-1/state.pt", "weights")
        write(here, "status.json", '{"state": "done"}')
        uploader, downloader = Uploader(here, storage), Downloader(there, storage)
        if side == "reader":
            uploader.push()
        with monkeypatch.context() as patch:
            calls = fail_at(patch, failing_call)
            status = None
            try:
                uploader.push()
                status = downloader.pull()
            except StorageError:
                pass
        failed = len(calls) >= failing_call
        files = contents(there)
        assert "checkpoints/step-1/progress.json" not in files or "checkpoints/step-1/state.pt" in files
        assert status is None or len(files) == 2, "an ended run has all its files"
        uploader.push()
        assert (downloader.pull() or status) == {"state": "done"}
        assert len(contents(there)) == 2
        if not failed:
            return


@pytest.mark.parametrize("content", [b"{half", b"[]", b'{"files": 3}'])
def test_a_damaged_manifest_is_reported_and_changes_nothing(content, tmp_path):
    storage = Storage(f"file://{tmp_path}/stored")
    storage.put_bytes(content, "manifest.json")
    write(tmp_path / "there", "log.txt", "kept")
    with pytest.raises(StorageError, match=r"manifest\.json in the storage is damaged"):
        Downloader(tmp_path / "there", storage, {"log.txt": [4, 1]}).pull()
    assert contents(tmp_path / "there") == {"log.txt": "kept"}


def test_a_manifest_with_paths_outside_the_folder_is_refused(tmp_path):
    storage = Storage(f"file://{tmp_path}/stored")
    manifest = {"files": {"../../escaped": [1, 1]}, "folder": "/elsewhere"}
    storage.put_bytes(json.dumps(manifest).encode(), "manifest.json")
    with pytest.raises(StorageError, match="is outside"):
        Downloader(tmp_path / "there", storage).pull()


def test_paths_in_a_result_are_those_of_the_reader(storage, tmp_path):
    here, there = tmp_path / "scratch" / "runs" / "one", tmp_path / "mine" / "one"
    write(here, "result.json", json.dumps({"model": str(here / "model"), "chain": {"model": str(here.parent / "two")}}))
    Uploader(here, storage).push()
    Downloader(there, storage).pull()
    result = json.loads((there / "result.json").read_bytes())
    assert result == {"model": str(there / "model"), "chain": {"model": str(there.parent / "two")}}


@pytest.mark.parametrize(
    ("url", "expected"), [("s4://bucket/runs", "s4"), ("file:///proc/nowhere", "storage file:///proc")]
)
def test_unusable_storage_is_reported_in_one_line(url, expected):
    with pytest.raises(StorageError, match=expected) as caught:
        Storage(url).put_bytes(b"", "name")
    assert "\n" not in str(caught.value)
