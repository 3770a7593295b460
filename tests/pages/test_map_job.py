"""Maps that take seconds: made by a child process, kept by what they are made of, and failures that say why."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bsc_core.projection import VectorFile, make_map
from pages.ui import map_job


def test_a_map_made_once_is_found_again_and_a_new_array_makes_another(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.eye(8, dtype=np.float32))
    rows = np.arange(8, dtype=np.int32)
    folder = map_job.folder_for(tmp_path, [VectorFile(path)], rows, "pca", 0)
    assert map_job.finished(folder) is None
    make_map(folder, [VectorFile(path)], rows=rows, method="pca")
    made = map_job.finished(folder)
    assert made is not None
    assert made.points[0].shape == (8, 2)
    np.save(path, np.eye(9, dtype=np.float32))
    assert map_job.folder_for(tmp_path, [VectorFile(path)], rows, "pca", 0) != folder


def test_a_child_process_makes_the_map(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.npy", np.arange(20, dtype=np.int32)
    np.save(path, np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32))
    folder = map_job.folder_for(tmp_path, [VectorFile(path)], rows, "pca", 0)
    map_job.begin(folder, [VectorFile(path)], rows, "pca", 0)
    assert map_job._child(str(folder)).wait(timeout=60) == 0
    made = map_job.finished(folder)
    assert made is not None
    assert made.rows.tolist() == rows.tolist()
    assert map_job.progress(folder)["error"] is None


def test_a_child_that_fails_says_why_and_can_be_tried_again(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.npy", np.arange(4, dtype=np.int32)
    np.save(path, np.full((4, 3), np.nan, dtype=np.float32))
    folder = map_job.folder_for(tmp_path, [VectorFile(path)], rows, "umap", 0)
    map_job.begin(folder, [VectorFile(path)], rows, "umap", 0)
    assert map_job._child(str(folder)).wait(timeout=60) == 1
    assert "vector 0" in map_job.progress(folder)["error"]
    map_job.again(folder)
    assert not (folder / "progress.json").exists()
