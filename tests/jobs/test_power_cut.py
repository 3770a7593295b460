"""Power cuts: only what was synced to the disk survives, at every moment of a launch and of a run."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bsc_core.config import DataConfig, RunConfig
from bsc_core.jobs import Queue, launch, list_trash, reconcile, restore, trash
from bsc_core.jobs.worker import perform
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import LAUNCHED, RESULT

CONFIG = RunConfig(data=DataConfig(train="pairs.tsv"))
RUN = "one"


@dataclass
class Disk:
    """What a disk holds: the content of files, and the names in folders, as they were when each was last synced.

    Content of a synced name that was not synced itself is empty, which is the worst case.
    """

    content: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, tuple[int, bool]]] = field(default_factory=dict)  # inode and whether it is a folder

    def sync(self, handle: int) -> None:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(handle) as entries:
                self.names[status.st_ino] = {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}
        else:
            self.content[status.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def copy(self) -> Disk:
        return Disk(dict(self.content), dict(self.names))

    def restore(self, folder: int, target: Path) -> None:
        """Write what survived of a folder, given by its inode, to a new folder."""
        target.mkdir()
        for name, (inode, is_folder) in self.names.get(folder, {}).items():
            if is_folder:
                self.restore(inode, target / name)
            else:
                (target / name).write_bytes(self.content.get(inode, b""))


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[Disk]:
    """The states of the disk after each sync, from the first to the last."""
    disk, states, sync = Disk(), [Disk()], os.fsync

    def record(handle: int) -> None:
        sync(handle)
        disk.sync(handle)
        states.append(disk.copy())

    monkeypatch.setattr(os, "fsync", record)
    return states


def after(cut: Disk, store: RunStore, target: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """Return the runs that an app finds after a power cut."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        cut.restore(store.root.stat().st_ino, target)
        restarted = RunStore(target)
        reconcile(restarted, start=lambda store: None)
    return restarted


def train(config: RunConfig, run: Run) -> dict[str, Any]:
    run.append_metrics({"kind": "step", "step": 1})
    run.update_status(step=1, steps=1)
    return {"state": "done"}


pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")


def test_a_launched_run_is_queued_after_a_power_cut(
    cuts: list[Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path / "runs")
    launch(store, CONFIG, RUN, start=lambda store: None)
    for number, cut in enumerate([*cuts]):
        restarted = after(cut, store, tmp_path / f"after-{number}", monkeypatch)
        for run in restarted.list():
            assert run.config() == CONFIG
            assert run.status().state == "queued"
            assert run.read_json(LAUNCHED) is not None  # so it is queued again
    assert [run.id for run in restarted.list()] == [RUN]
    assert Queue(restarted.root).waiting() == [RUN]


def test_a_run_has_a_true_state_after_a_power_cut_at_any_moment(
    cuts: list[Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path / "runs")
    run = launch(store, CONFIG, RUN, start=lambda store: None)
    queued = len(cuts)
    assert Queue(store.root).claim() == RUN
    assert perform(run, train, heartbeat_seconds=3600) == 0
    states = []
    for number, cut in enumerate([*cuts[queued:]]):
        restarted = after(cut, store, tmp_path / f"after-{number}", monkeypatch)
        [found] = restarted.list()
        status = found.status()
        states.append(status.state)
        if status.state == "done":
            assert found.read_json(RESULT) == {"state": "done"}
            assert status.step == 1
            assert found.metrics()[0] == [{"kind": "step", "step": 1}]
        elif status.state in ("lost", "failed"):
            assert status.error
        assert Queue(restarted.root).contains(RUN) == (status.state in ("queued", "running"))
    assert states[-1] == "done"
    assert set(states) <= {"queued", "running", "done"}  # this process, which executes it, survives in the test
    assert sorted(states, key=["queued", "running", "done"].index) == states


def test_a_run_is_deleted_and_restored_for_good(
    cuts: list[Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path / "runs")
    run = launch(store, CONFIG, RUN, start=lambda store: None)
    trash(store, run)
    deleted = after(cuts[-1], store, tmp_path / "deleted", monkeypatch)
    assert (deleted.list(), [found.id for found in list_trash(deleted)]) == ([], [RUN])
    restore(store, RUN)
    restored = after(cuts[-1], store, tmp_path / "restored", monkeypatch)
    assert [(found.id, found.status().state) for found in restored.list()] == [(RUN, "stopped")]
    assert list_trash(restored) == []
