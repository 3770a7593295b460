"""Tests of map density: contours enclose a share of the points, and regions are named by their words."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.projection import density


def blobs(centers: list[tuple[float, float]], size: int = 400) -> np.ndarray:
    generator = np.random.default_rng(0)
    return np.concatenate([generator.normal(center, 1.0, (size, 2)) for center in centers]).astype(np.float32)


def test_contours_of_a_round_cloud_are_circles_that_enclose_their_share() -> None:
    points = blobs([(0, 0)], 4000)
    radii = []
    for share, segments in zip(density.SHARES, density.contours(points), strict=True):
        lengths = np.linalg.norm(segments.reshape(-1, 2), axis=1)
        inside = (np.linalg.norm(points, axis=1) < lengths.mean()).mean()
        assert inside == pytest.approx(share, abs=0.05)
        radii.append(lengths.mean())
    assert radii == sorted(radii, reverse=True)


def test_a_contour_is_closed_and_at_its_level() -> None:
    points = blobs([(0, 0), (9, 2)])
    grid = density.density(points)
    [segments] = density.contours(points, [0.5])
    ends, counts = np.unique(segments.reshape(-1, 2).round(9), axis=0, return_counts=True)
    assert set(counts.tolist()) == {2}  # every point ends one segment and starts another
    level = np.quantile(grid.at(points), 0.5)
    assert np.abs(grid.at(ends.astype(np.float32)) - level).max() < 0.35 * grid.values.max()


def test_no_points_have_no_contours_and_equal_points_do_not_fail() -> None:
    assert [len(one) for one in density.contours(np.empty((0, 2), np.float32))] == [0, 0, 0]
    same = np.zeros((8, 2), np.float32)
    assert len(density.contours(same)) == len(density.SHARES)
    assert density.regions(same, ["bread and soup"] * 8) == []  # no word is typical of a part


def test_words_that_are_frequent_everywhere_name_no_region() -> None:
    texts = ["how do you rest"] * 30 + ["how do you do"] * 30 + ["how"] * 20
    assert density.regions(blobs([(0, 0)], 80), texts) == []


def test_a_word_of_few_texts_names_no_region_and_its_plural_is_left_out() -> None:
    points = blobs([(0, 0), (12, 0), (6, 10)], 40)
    texts = [f"number {number} " + ("rare" if number < 4 else "school schools lesson") for number in range(40)]
    regions = density.regions(points, texts + ["number"] * 80)
    assert [region.words for region in regions] == [("lesson", "school")]
    few = [f"number {number} " + ("rare" if number < 4 else "") for number in range(120)]
    assert density.regions(points, few) == []


def test_regions_are_named_by_words_that_are_frequent_there_and_rare_elsewhere() -> None:
    points = blobs([(0, 0), (12, 0), (6, 10)], 40)
    texts = [f"how do you bake bread {number}" for number in range(40)]
    texts += [f"how do you sow seeds {number}" for number in range(40)]
    texts += [f"how do you save money {number}" for number in range(40)]
    regions = density.regions(points, texts)
    found = {region.words: region for region in regions}
    assert set(found) == {("bake", "bread"), ("seeds", "sow"), ("money", "save")}
    assert (found["bake", "bread"].x, found["bake", "bread"].y) == pytest.approx((0, 0), abs=1.5)
    assert sum(region.texts for region in regions) == len(texts)


def test_up_to_twelve_regions_are_named() -> None:
    names = [f"{letter}{letter}{letter}" for letter in "abcdefghijklmn"]
    centers = [(12.0 * (number % 4), 12.0 * (number // 4)) for number in range(len(names))]
    texts = [f"how do you {name}" for name in names for _ in range(30)]
    assert len(density.regions(blobs(centers, 30), texts)) == density.MAX_REGIONS == 12
