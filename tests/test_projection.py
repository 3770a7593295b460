"""Maps: the same arguments give the same map, two models share a frame, and neighbors agree with a slow count."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bsc_core import projection
from bsc_core.errors import InputError


@pytest.fixture
def clusters() -> np.ndarray:
    """Three tight clusters of twenty vectors each, in sixteen dimensions."""
    random = np.random.default_rng(3)
    centers = random.normal(size=(3, 16)) * 5
    return (np.repeat(centers, 20, axis=0) + random.normal(size=(60, 16))).astype(np.float32)


def test_pca_preserves_distances_of_points_in_a_plane() -> None:
    plane = (
        np.random.default_rng(0).normal(size=(30, 2))
        @ np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0][:2]
    )
    points = projection.project(plane.astype(np.float32), "pca")
    before = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    after = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert np.allclose(before, after, atol=1e-4)


def test_pca_of_many_dimensions_needs_no_matrix_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    vectors = (generator.normal(size=(300, 40)) / np.sqrt(np.arange(1, 41))).astype(np.float32)
    exact = projection.project(vectors, "pca")
    monkeypatch.setattr("bsc_core.projection.layout.MAX_MATRIX", 39)
    np.testing.assert_allclose(projection.project(vectors, "pca"), exact, atol=1e-4)
    assert not projection.project(np.ones((5, 40), dtype=np.float32), "pca").any()


def test_pca_of_vectors_of_one_number_is_on_a_line() -> None:
    points = projection.project(np.array([[1.0], [3.0], [7.0]], dtype=np.float32), "pca")
    assert points.shape == (3, 2)
    assert (points[:, 1] == 0).all()


def test_settings_of_numba_in_the_working_folder_are_not_read(tmp_path: Path) -> None:
    settings = {"chrome_trace": str(tmp_path / "trace"), "cache_dir": str(tmp_path / "cache")}
    (tmp_path / ".numba_config.yaml").write_text(json.dumps(settings), encoding="utf-8")
    code = """
from bsc_core.projection.layout import ignore_numba_settings
ignore_numba_settings()
from numba.core import config
print([config.CHROME_TRACE, config.CACHE_DIR])
config.reload_config()  # as before each compilation
print([config.CHROME_TRACE, config.CACHE_DIR])
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    command = [sys.executable, "-c", code]
    output = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    assert output.splitlines() == ["['', '']"] * 2


@pytest.mark.parametrize("size", [1, 2, 4])
def test_umap_of_very_few_vectors_is_their_plane(size: int) -> None:
    vectors = np.random.default_rng(size).normal(size=(size, 6)).astype(np.float32)
    assert np.array_equal(projection.project(vectors, "umap"), projection.project(vectors, "pca"))


def test_umap_gives_the_same_map_for_the_same_seed_and_separates_clusters(clusters: np.ndarray) -> None:
    once, again = projection.project(clusters, "umap", seed=1), projection.project(clusters, "umap", seed=1)
    assert np.array_equal(once, again)
    groups = once.reshape(3, 20, 2)
    widest = max(float(np.linalg.norm(group - group.mean(axis=0), axis=1).max()) for group in groups)
    middles = groups.mean(axis=1)
    assert min(float(np.linalg.norm(middles[one] - middles[two])) for one, two in ((0, 1), (0, 2), (1, 2))) > widest


def test_equal_vectors_have_equal_points_on_both_maps(clusters: np.ndarray) -> None:
    first, second = projection.lay_out([clusters, clusters.copy()], "pca")
    assert np.allclose(first, second, atol=1e-3)


def test_a_rotated_and_mirrored_map_is_aligned() -> None:
    points = np.random.default_rng(5).normal(size=(40, 2)).astype(np.float32)
    rotated = points @ np.array([[0.6, -0.8], [-0.8, -0.6]], dtype=np.float32) + 7
    assert np.allclose(projection.align(rotated, points), points, atol=1e-4)


def test_alignment_preserves_distances() -> None:
    random = np.random.default_rng(6)
    points, onto = (random.normal(size=(20, 2)).astype(np.float32) for _ in range(2))
    rotated = projection.align(points, onto)
    gaps = [np.linalg.norm(layout[:, None] - layout[None], axis=2) for layout in (points, rotated)]
    assert np.allclose(*gaps, atol=1e-4)


def test_models_of_different_dimensions_share_a_frame(clusters: np.ndarray) -> None:
    first, second = projection.lay_out([clusters, clusters[:, :9]], "pca")
    assert first.shape == second.shape == (60, 2)
    assert np.allclose(first.mean(axis=0), second.mean(axis=0), atol=1e-3)


def test_an_exact_map_preserves_all_neighbors() -> None:
    angles = np.sort(np.random.default_rng(2).uniform(0, 1.5, 40))
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert projection.neighborhood_preservation(circle, circle, k=5) == pytest.approx(1.0)


def test_preserved_neighbors_equal_a_slow_count(clusters: np.ndarray) -> None:
    points = projection.project(clusters, "pca")
    units = clusters / np.linalg.norm(clusters, axis=1, keepdims=True)
    cosines = units @ units.T - 9 * np.eye(len(units))
    shares = []
    for row in range(len(clusters)):
        gaps = [float(np.linalg.norm(points[row] - points[other])) for other in range(len(points))]
        on_map = sorted((other for other in range(len(points)) if other != row), key=lambda other: gaps[other])[:4]
        shares.append(len(set(on_map) & set(np.argsort(-cosines[row], kind="stable")[:4].tolist())) / 4)
    assert projection.neighborhood_preservation(clusters, points, k=4) == pytest.approx(
        float(np.mean(shares)), abs=0.01
    )


def test_preservation_of_two_vectors_is_not_defined() -> None:
    assert projection.neighborhood_preservation(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)) is None


def test_sampled_rows_are_distinct_ascending_and_repeatable() -> None:
    rows = projection.sample_rows(1000, 50, seed=4)
    assert len(set(rows.tolist())) == 50
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(rows, projection.sample_rows(1000, 50, seed=4))
    assert projection.sample_rows(5, 50).tolist() == [0, 1, 2, 3, 4]


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"'tsne'; choose one of umap, pca"):
        projection.project(np.eye(3, dtype=np.float32), "tsne")


def test_a_value_that_is_not_finite_is_refused_by_row() -> None:
    vectors = np.eye(3, dtype=np.float32)
    vectors[1, 2] = np.nan
    with pytest.raises(InputError, match="vector 1"):
        projection.project(vectors, "pca")


def request(folder: Path, arrays: list[np.ndarray], method: str = "pca") -> None:
    folder.mkdir()
    paths = []
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
        paths.append([str(folder / f"{number}.npy"), None])
    wanted = {"vectors": paths, "rows": list(range(0, len(arrays[0]), 2)), "method": method, "seed": 0}
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")


def test_a_requested_map_is_written_once(tmp_path: Path, clusters: np.ndarray) -> None:
    request(tmp_path / "map", [clusters, clusters * 2])
    assert projection.main([str(tmp_path / "map")]) == 0
    written = (tmp_path / "map" / "map.npz").stat().st_mtime_ns
    assert projection.main([str(tmp_path / "map")]) == 0
    assert (tmp_path / "map" / "map.npz").stat().st_mtime_ns == written
    with np.load(tmp_path / "map" / "map.npz") as archive:
        assert archive["rows"].tolist() == list(range(0, 60, 2))
        assert archive["points0"].shape == archive["points1"].shape == (30, 2)
        assert ((archive["trust"] > 0) & (archive["trust"] <= 1)).all()


def test_a_failed_map_reports_its_error(tmp_path: Path, clusters: np.ndarray) -> None:
    request(tmp_path / "map", [clusters], method="tsne")
    assert projection.main([str(tmp_path / "map")]) == 2
    report = json.loads((tmp_path / "map" / "progress.json").read_text(encoding="utf-8"))
    assert "tsne" in report["error"]
    assert not (tmp_path / "map" / "map.npz").exists()


def test_vectors_of_some_texts_are_selected_by_id_and_have_length_one(tmp_path: Path, clusters: np.ndarray) -> None:
    ids = np.array([3, 8, 9, 40], dtype=np.int32)
    np.save(tmp_path / "some.npy", clusters[ids].astype(np.float16))
    np.save(tmp_path / "ids.npy", ids)
    np.save(tmp_path / "all.npy", clusters)
    some = projection.VectorFile(tmp_path / "some.npy", tmp_path / "ids.npy")
    wanted = np.array([8, 40], dtype=np.int32)
    assert np.allclose(some.vectors(wanted), projection.VectorFile(tmp_path / "all.npy").vectors(wanted), atol=1e-3)
    assert np.allclose(np.linalg.norm(some.vectors(wanted), axis=1), 1, atol=1e-5)
    for missing in (7, 41):
        with pytest.raises(InputError, match="lacks some texts of the map"):
            some.vectors(np.array([3, missing], dtype=np.int32))


def test_models_of_all_texts_and_of_some_share_a_map(tmp_path: Path, clusters: np.ndarray) -> None:
    ids = np.arange(0, 60, 3, dtype=np.int32)
    np.save(tmp_path / "all.npy", clusters)
    np.save(tmp_path / "some.npy", clusters[ids])
    np.save(tmp_path / "ids.npy", ids)
    files = [
        projection.VectorFile(tmp_path / "all.npy"),
        projection.VectorFile(tmp_path / "some.npy", tmp_path / "ids.npy"),
    ]
    with np.load(projection.build_map(tmp_path / "map", files, rows=ids, method="pca")) as archive:
        assert np.allclose(archive["points0"], archive["points1"], atol=1e-3)


def test_each_map_starts_from_the_previous_one_with_its_spread(clusters: np.ndarray) -> None:
    reported: list[tuple[int, float]] = []
    maps = projection.lay_out([clusters, clusters, clusters], "umap", report=lambda *at: reported.append(at))
    spreads = [float(np.sqrt(points.var(axis=0).sum())) for points in maps]
    assert spreads == pytest.approx([spreads[0]] * 3, rel=1e-3)
    moved = [float(np.median(np.linalg.norm(one - two, axis=1))) for one, two in itertools.pairwise(maps)]
    assert max(moved) < 0.5 * spreads[0]
    assert list(dict.fromkeys(number for number, _ in reported)) == [0, 1, 2]


def test_a_layout_reports_the_completed_share(clusters: np.ndarray) -> None:
    shares: list[float] = []
    projection.project(clusters, "umap", progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_shared_neighbors_are_counted_row_by_row() -> None:
    one, other = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[3, 2, 9], [7, 8, 9]])
    assert projection.count_shared_neighbors(one, other).tolist() == [2, 0]
