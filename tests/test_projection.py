"""Maps: the same arguments give the same map, two models share a frame, and neighbours agree with a slow count."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from bsc_core import projection
from bsc_core.errors import InputError


@pytest.fixture
def clouds() -> np.ndarray:
    """Three tight clouds of twenty vectors each, in sixteen dimensions."""
    random = np.random.default_rng(3)
    centres = random.normal(size=(3, 16)) * 5
    return (np.repeat(centres, 20, axis=0) + random.normal(size=(60, 16))).astype(np.float32)


def slow_nearest(vectors: np.ndarray, row: int, k: int) -> list[int]:
    """The neighbours by cosine, one dot product at a time."""
    cosines = []
    for other in range(len(vectors)):
        lengths = np.linalg.norm(vectors[row]) * np.linalg.norm(vectors[other])
        cosines.append(float(vectors[row] @ vectors[other] / lengths))
    return sorted((other for other in range(len(vectors)) if other != row), key=lambda other: -cosines[other])[:k]


def test_nearest_agrees_with_one_dot_product_at_a_time(clouds: np.ndarray) -> None:
    ids, cosines = projection.nearest(clouds, np.array([0, 25, 59]), 7)
    assert [list(row) for row in ids] == [slow_nearest(clouds, row, 7) for row in (0, 25, 59)]
    assert (np.diff(cosines, axis=1) <= 0).all()


def test_equal_neighbours_come_in_the_order_of_their_ids() -> None:
    ids, _ = projection.nearest(np.ones((5, 3), dtype=np.float32), np.array([2]), 4)
    assert ids.tolist() == [[0, 1, 3, 4]]


def test_nearest_of_a_zero_vector_is_defined() -> None:
    vectors = np.eye(3, dtype=np.float32)
    vectors[0] = 0
    _, cosines = projection.nearest(vectors, np.array([0]), 2)
    assert cosines.tolist() == [[0.0, 0.0]]


def test_nearest_gives_no_more_neighbours_than_there_are() -> None:
    ids, _ = projection.nearest(np.eye(3, dtype=np.float32), np.array([0, 1]), 10)
    assert ids.shape == (2, 2)


def test_pca_keeps_distances_of_points_in_a_plane() -> None:
    plane = (
        np.random.default_rng(0).normal(size=(30, 2))
        @ np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0][:2]
    )
    points = projection.project(plane.astype(np.float32), "pca")
    before = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    after = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert np.allclose(before, after, atol=1e-4)


def test_pca_of_vectors_of_one_number_lies_on_a_line() -> None:
    points = projection.project(np.array([[1.0], [3.0], [7.0]], dtype=np.float32), "pca")
    assert points.shape == (3, 2)
    assert (points[:, 1] == 0).all()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_umap_of_very_few_vectors_is_their_plane(size: int) -> None:
    vectors = np.random.default_rng(size).normal(size=(size, 6)).astype(np.float32)
    assert np.array_equal(projection.project(vectors, "umap"), projection.project(vectors, "pca"))


def test_umap_gives_the_same_map_for_the_same_seed_and_keeps_clouds_apart(clouds: np.ndarray) -> None:
    once, again = projection.project(clouds, "umap", seed=1), projection.project(clouds, "umap", seed=1)
    assert np.array_equal(once, again)
    parts = once.reshape(3, 20, 2)
    widest = max(float(np.linalg.norm(part - part.mean(axis=0), axis=1).max()) for part in parts)
    middles = parts.mean(axis=1)
    assert min(float(np.linalg.norm(middles[one] - middles[two])) for one, two in ((0, 1), (0, 2), (1, 2))) > widest


def test_a_model_that_changed_nothing_stays_where_it_was(clouds: np.ndarray) -> None:
    first, second = projection.lay_out([clouds, clouds.copy()], "pca")
    assert np.allclose(first, second, atol=1e-3)


def test_a_turned_and_mirrored_map_is_turned_back() -> None:
    points = np.random.default_rng(5).normal(size=(40, 2)).astype(np.float32)
    turned = points @ np.array([[0.6, -0.8], [-0.8, -0.6]], dtype=np.float32) + 7
    assert np.allclose(projection.turn_onto(turned, points), points, atol=1e-4)


def test_turning_never_changes_distances() -> None:
    random = np.random.default_rng(6)
    points, onto = (random.normal(size=(20, 2)).astype(np.float32) for _ in range(2))
    turned = projection.turn_onto(points, onto)
    gaps = [np.linalg.norm(layout[:, None] - layout[None], axis=2) for layout in (points, turned)]
    assert np.allclose(*gaps, atol=1e-4)


def test_models_of_different_dimensions_share_a_frame(clouds: np.ndarray) -> None:
    first, second = projection.lay_out([clouds, clouds[:, :9]], "pca")
    assert first.shape == second.shape == (60, 2)
    assert np.allclose(first.mean(axis=0), second.mean(axis=0), atol=1e-3)


def test_kept_neighbours_are_all_of_them_when_the_map_is_exact() -> None:
    angles = np.sort(np.random.default_rng(2).uniform(0, 1.5, 40))
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert projection.kept_neighbours(circle, circle, k=5) == pytest.approx(1.0)


def test_kept_neighbours_agree_with_a_slow_count(clouds: np.ndarray) -> None:
    points = projection.project(clouds, "pca")
    shares = []
    for row in range(len(clouds)):
        gaps = [float(np.linalg.norm(points[row] - points[other])) for other in range(len(points))]
        on_map = sorted((other for other in range(len(points)) if other != row), key=lambda other: gaps[other])[:4]
        shares.append(len(set(on_map) & set(slow_nearest(clouds, row, 4))) / 4)
    assert projection.kept_neighbours(clouds, points, k=4) == pytest.approx(float(np.mean(shares)), abs=0.01)


def test_kept_neighbours_of_two_vectors_are_not_defined() -> None:
    assert projection.kept_neighbours(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)) is None


def test_drawn_rows_are_distinct_ascending_and_repeatable() -> None:
    rows = projection.sample_rows(1000, 50, seed=4)
    assert len(set(rows.tolist())) == 50
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(rows, projection.sample_rows(1000, 50, seed=4))
    assert projection.sample_rows(5, 50).tolist() == [0, 1, 2, 3, 4]


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"tsne .* umap, pca"):
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


def test_a_requested_map_is_written_once_and_then_kept(tmp_path: Path, clouds: np.ndarray) -> None:
    request(tmp_path / "map", [clouds, clouds * 2])
    assert projection.main([str(tmp_path / "map")]) == 0
    made = (tmp_path / "map" / "map.npz").stat().st_mtime_ns
    assert projection.main([str(tmp_path / "map")]) == 0
    assert (tmp_path / "map" / "map.npz").stat().st_mtime_ns == made
    with np.load(tmp_path / "map" / "map.npz") as archive:
        assert archive["rows"].tolist() == list(range(0, 60, 2))
        assert archive["points0"].shape == archive["points1"].shape == (30, 2)
        assert ((archive["trust"] > 0) & (archive["trust"] <= 1)).all()


def test_a_map_that_cannot_be_made_says_why(tmp_path: Path, clouds: np.ndarray) -> None:
    request(tmp_path / "map", [clouds], method="tsne")
    with pytest.raises(InputError):
        projection.main([str(tmp_path / "map")])
    report = json.loads((tmp_path / "map" / "progress.json").read_text(encoding="utf-8"))
    assert "tsne" in report["error"]
    assert not (tmp_path / "map" / "map.npz").exists()


def test_vectors_of_some_texts_are_found_by_id_and_have_length_one(tmp_path: Path, clouds: np.ndarray) -> None:
    ids = np.array([3, 8, 9, 40], dtype=np.int32)
    np.save(tmp_path / "some.npy", clouds[ids].astype(np.float16))
    np.save(tmp_path / "ids.npy", ids)
    np.save(tmp_path / "all.npy", clouds)
    some = projection.VectorFile(tmp_path / "some.npy", tmp_path / "ids.npy")
    wanted = np.array([8, 40], dtype=np.int32)
    assert np.allclose(some.of(wanted), projection.VectorFile(tmp_path / "all.npy").of(wanted), atol=1e-3)
    assert np.allclose(np.linalg.norm(some.of(wanted), axis=1), 1, atol=1e-5)
    for missing in (7, 41):
        with pytest.raises(InputError, match="does not hold every text"):
            some.of(np.array([3, missing], dtype=np.int32))


def test_models_of_all_texts_and_of_some_share_a_map(tmp_path: Path, clouds: np.ndarray) -> None:
    ids = np.arange(0, 60, 3, dtype=np.int32)
    np.save(tmp_path / "all.npy", clouds)
    np.save(tmp_path / "some.npy", clouds[ids])
    np.save(tmp_path / "ids.npy", ids)
    files = [
        projection.VectorFile(tmp_path / "all.npy"),
        projection.VectorFile(tmp_path / "some.npy", tmp_path / "ids.npy"),
    ]
    with np.load(projection.make_map(tmp_path / "map", files, rows=ids, method="pca")) as archive:
        assert np.allclose(archive["points0"], archive["points1"], atol=1e-3)


def test_each_map_starts_from_the_one_before_and_keeps_its_spread(clouds: np.ndarray) -> None:
    told: list[tuple[int, float]] = []
    maps = projection.lay_out([clouds, clouds, clouds], "umap", tell=lambda *at: told.append(at))
    spreads = [float(np.sqrt(points.var(axis=0).sum())) for points in maps]
    assert spreads == pytest.approx([spreads[0]] * 3, rel=1e-3)
    moved = [float(np.median(np.linalg.norm(one - two, axis=1))) for one, two in itertools.pairwise(maps)]
    assert max(moved) < 0.5 * spreads[0]
    assert list(dict.fromkeys(number for number, _ in told)) == [0, 1, 2]


def test_a_layout_tells_the_share_that_is_done(clouds: np.ndarray) -> None:
    shares: list[float] = []
    projection.project(clouds, "umap", progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_neighbours_in_blocks_are_those_of_all_at_once(clouds: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = projection.nearest(clouds, np.arange(60), 5)
    monkeypatch.setattr("bsc_core.projection.neighbours.BLOCK_SCORES", 130)
    parts = projection.nearest(clouds, np.arange(60), 5)
    assert np.array_equal(whole[0], parts[0])
    assert np.allclose(whole[1], parts[1])


def test_shared_neighbours_are_counted_row_by_row() -> None:
    one, other = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[3, 2, 9], [7, 8, 9]])
    assert projection.same_neighbours(one, other).tolist() == [2, 0]
