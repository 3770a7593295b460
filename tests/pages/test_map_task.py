"""UMAP maps: background task, cache and failures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bsc_core import background_task
from bsc_core.projection import VectorFile, build_map
from pages.ui.embeddings import map_task
from tests.helpers.waiting import wait_for_task


def test_a_map_is_cached_until_its_vectors_change(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.eye(8, dtype=np.float32))
    rows = np.arange(8, dtype=np.int32)
    folder = map_task.map_folder(tmp_path, [VectorFile(path)], rows, "pca", 0)
    assert map_task.load_maps(folder) is None
    build_map(folder, [VectorFile(path)], rows=rows, method="pca")
    maps = map_task.load_maps(folder)
    assert maps is not None
    assert maps.points[0].shape == (8, 2)
    np.save(path, np.eye(9, dtype=np.float32))
    assert map_task.map_folder(tmp_path, [VectorFile(path)], rows, "pca", 0) != folder


def test_a_background_task_builds_the_map(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.npy", np.arange(20, dtype=np.int32)
    np.save(path, np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32))
    folder = map_task.map_folder(tmp_path, [VectorFile(path)], rows, "pca", 0)
    map_task.start(folder, [VectorFile(path)], rows, "pca", 0)
    assert wait_for_task(folder) == 0
    maps = map_task.load_maps(folder)
    assert maps is not None
    assert maps.rows.tolist() == rows.tolist()
    assert background_task.read_progress(folder).error is None


def test_a_failed_task_reports_its_error_and_can_be_reset(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.npy", np.arange(4, dtype=np.int32)
    np.save(path, np.full((4, 3), np.nan, dtype=np.float32))
    folder = map_task.map_folder(tmp_path, [VectorFile(path)], rows, "umap", 0)
    map_task.start(folder, [VectorFile(path)], rows, "umap", 0)
    assert wait_for_task(folder) == 2
    assert "vector 0" in str(background_task.read_progress(folder).error)
    background_task.reset(folder)
    assert not (folder / "progress.json").exists()
