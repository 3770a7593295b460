"""Folders that go through storage: what is read is never half of what was written, whatever fails on the way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from bsc_core.jobs.ray_storage import Incoming, Outgoing, Storage, StorageError, stamps

Until = Callable[[Callable[[], bool]], None]


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """A folder in storage of each kind, empty."""
    if request.param == "file":
        yield Storage(f"file://{tmp_path}/stored")
        return
    yield Storage("memory://stored")
    system = fsspec.filesystem("memory")
    if system.exists("/stored"):
        system.rm("/stored", recursive=True)


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def contents(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="utf-8") for name in stamps(folder)}


def fail_at(monkeypatch: pytest.MonkeyPatch, call: int) -> list[int]:
    """Let the storage refuse its n-th call from now on, once. Returns a list that grows by each call."""
    calls: list[int] = []
    answer = Storage._call

    def counted(self: Storage, use: Callable[[Any, str], Any]) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise StorageError("storage is away")
        return answer(self, use)

    monkeypatch.setattr(Storage, "_call", counted)
    return calls


def test_the_reader_has_what_the_writer_has_after_any_changes(storage: Storage, tmp_path: Path) -> None:
    draw = random.Random(5)
    here, there = tmp_path / "here", tmp_path / "there"
    outgoing, incoming = Outgoing(here, storage), Incoming(there, storage)
    here.mkdir()
    names = ["log.txt", "evaluation/a.json", "checkpoints/step-1/progress.json", "checkpoints/step-1/state.pt"]
    for _ in range(12):
        for name in draw.sample(names, 2):
            if draw.random() < 0.3:
                (here / name).unlink(missing_ok=True)
            else:
                write(here, name, "x" * draw.randrange(1, 50))
        outgoing.push()
        incoming = Incoming(there, storage, dict(incoming.taken))  # another process, with what the first one noted
        assert incoming.pull() is None
        assert contents(there) == contents(here)
        assert not list(there.glob("checkpoints/*")) or stamps(there / "checkpoints")


def test_what_only_the_reader_has_stays_and_what_is_its_own_is_not_touched(storage: Storage, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for name in ("config.json", "launch.json", "stop", ".hidden/a", "log.txt"):
        write(here, name, "of the writer")
    for name in ("config.json", "launch.json", "notes.txt"):
        write(there, name, "of the reader")
    Outgoing(here, storage).push()
    Incoming(there, storage).pull()
    assert contents(there) == {
        "config.json": "of the reader",
        "launch.json": "of the reader",
        "notes.txt": "of the reader",
        "log.txt": "of the writer",
    }


@pytest.mark.parametrize("side", ["writer", "reader"])
def test_a_checkpoint_is_there_only_when_it_is_whole_wherever_the_storage_fails(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_call = 0
    while True:
        failing_call += 1
        storage = Storage(f"file://{tmp_path}/stored-{failing_call}")
        here, there = tmp_path / f"here-{failing_call}", tmp_path / f"there-{failing_call}"
        write(here, "checkpoints/step-1/progress.json", "{}")
        write(here, "checkpoints/step-1/state.pt", "weights")
        write(here, "status.json", '{"state": "done"}')
        outgoing, incoming = Outgoing(here, storage), Incoming(there, storage)
        if side == "reader":
            outgoing.push()
        with monkeypatch.context() as patch:
            calls = fail_at(patch, failing_call)
            news = None
            try:
                outgoing.push()
                news = incoming.pull()
            except StorageError:
                pass
        failed = len(calls) >= failing_call
        found = contents(there)
        assert "checkpoints/step-1/progress.json" not in found or "checkpoints/step-1/state.pt" in found
        assert news is None or len(found) == 2, "an ended run has all it wrote"
        outgoing.push()
        assert (incoming.pull() or news) == {"state": "done"}
        assert len(contents(there)) == 2
        if not failed:
            return


@pytest.mark.parametrize("content", [b"{half", b"[]", b'{"files": 3}'])
def test_a_damaged_manifest_is_one_sentence_and_touches_nothing(content: bytes, tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/stored")
    storage.put_bytes(content, "manifest.json")
    write(tmp_path / "there", "log.txt", "kept")
    with pytest.raises(StorageError, match=r"manifest\.json in the storage is damaged"):
        Incoming(tmp_path / "there", storage, {"log.txt": [4, 1]}).pull()
    assert contents(tmp_path / "there") == {"log.txt": "kept"}


def test_a_manifest_that_names_files_elsewhere_is_refused(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/stored")
    told = {"files": {"../../escaped": [1, 1]}, "folder": "/elsewhere"}
    storage.put_bytes(json.dumps(told).encode(), "manifest.json")
    with pytest.raises(StorageError, match="would lie outside"):
        Incoming(tmp_path / "there", storage).pull()


def test_the_paths_of_a_result_are_those_of_the_reader(storage: Storage, tmp_path: Path) -> None:
    here, there = tmp_path / "scratch" / "runs" / "one", tmp_path / "mine" / "one"
    write(here, "result.json", json.dumps({"model": str(here / "model"), "chain": {"model": str(here.parent / "two")}}))
    Outgoing(here, storage).push()
    Incoming(there, storage).pull()
    told = json.loads((there / "result.json").read_bytes())
    assert told == {"model": str(there / "model"), "chain": {"model": str(there.parent / "two")}}


@pytest.mark.parametrize(
    ("url", "said"), [("s4://bucket/runs", "s4"), ("file:///proc/nowhere", "storage file:///proc")]
)
def test_storage_that_does_not_serve_is_one_sentence(url: str, said: str) -> None:
    with pytest.raises(StorageError, match=said) as caught:
        Storage(url).put_bytes(b"", "name")
    assert "\n" not in str(caught.value)
