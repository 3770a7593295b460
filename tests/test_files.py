"""Atomic writes: readers see a complete file or folder, or the previous one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from bsc_core.files import (
    atomic_folder,
    atomic_path,
    atomic_write,
    file_lock,
    folder_bytes,
    save_arrays,
    to_jsonable,
)


@pytest.mark.parametrize("content", ["größe", "größe".encode(), lambda file: file.write("größe".encode())])
def test_text_bytes_and_functions_write_the_same_file(tmp_path: Path, content) -> None:
    atomic_write(tmp_path / "new" / "file.txt", content)
    assert (tmp_path / "new" / "file.txt").read_bytes() == "größe".encode()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file.txt"]


def write_and_stop(path: Path) -> None:
    path.write_text("half", encoding="utf-8")
    raise KeyboardInterrupt


def test_a_failed_write_leaves_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    atomic_write(path, "old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as draft:
        write_and_stop(draft)
    assert [(entry.name, entry.read_text(encoding="utf-8")) for entry in tmp_path.iterdir()] == [("file.txt", "old")]


def test_arrays_are_read_back_by_name(tmp_path: Path) -> None:
    save_arrays(tmp_path / "arrays.npz", {"rows": np.arange(3), "allow": np.array(True)})
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert arrays["rows"].tolist() == [0, 1, 2]
        assert arrays["allow"]


def test_a_folder_replaces_the_previous_one_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with atomic_folder(target) as draft:
        (draft / "first").write_text("1", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt), atomic_folder(target) as draft:
        write_and_stop(draft / "second")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "first"]
    with atomic_folder(target) as draft:
        (draft / "third").write_text("3", encoding="utf-8")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "third"]


def test_values_become_json_types() -> None:
    value = {"path": Path("a"), "numbers": np.array([1.0, np.inf]), 1: np.float32(2)}
    assert to_jsonable(value) == {"path": "a", "numbers": [1.0, None], "1": 2.0}


def test_the_size_of_a_folder_ignores_a_file_that_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(b"12345")
    read = Path.stat

    def read_and_remove(path: Path, **options: bool) -> os.stat_result:
        facts = read(path, **options)
        if path.name == "second":
            path.unlink()
        return facts

    monkeypatch.setattr(Path, "stat", read_and_remove)
    assert folder_bytes(tmp_path) in (5, 10)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
@pytest.mark.parametrize("exists", [False, True])
def test_no_other_system_user_can_open_the_file_of_a_lock(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / ".queue.lock"
    if exists:  # created by an earlier version
        path.touch()
        path.chmod(0o644)
    with file_lock(path, timeout=0):
        assert path.stat().st_mode & 0o777 == 0o600
