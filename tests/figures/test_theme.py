"""Tests of figure colors."""

from __future__ import annotations

import re

from bsc_core.figures import theme


def test_every_meaning_has_a_different_color() -> None:
    meanings = [theme.QUERY, theme.DOCUMENT, theme.POSITIVE, theme.HARD_NEGATIVE, theme.FALSE_NEGATIVE, theme.REFERENCE]
    assert len(set(meanings)) == len(meanings)
    assert all(re.fullmatch(r"#[0-9A-F]{6}", color) for color in (*meanings, *theme.COSINE, *theme.PROBABILITY))
    assert len(theme.COSINE) % 2 == 1  # a cosine of 0 has the middle color


def luminance(color: str) -> float:
    """Return the relative luminance of a color as WCAG defines it."""
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_mark_has_a_contrast_of_three_in_both_themes() -> None:
    for background in (luminance("#FFFFFF"), luminance("#12171D")):
        for color in (
            *theme.RUNS,
            *theme.CATEGORIES,
            *theme.WITHOUT_MEANING,
            theme.MARKED_FALSE_NEGATIVE,
            theme.MASKED,
            *theme.VERDICTS.values(),
        ):
            light, dark = sorted((luminance(color) + 0.05, background + 0.05), reverse=True)
            assert light / dark >= 3, color


def test_a_run_keeps_its_color_whatever_it_is_compared_with() -> None:
    ids = [f"202601{day:02d}-run" for day in range(1, len(theme.RUNS) + 2)]
    for order in ([], ids):
        assert len(set(theme.run_colors(ids, order))) == len(theme.RUNS)
        assert theme.run_colors(ids[::-1], order) == theme.run_colors(ids, order)[::-1]
        for number in range(1, len(ids)):
            both = theme.run_colors([ids[0], ids[number]], order)
            assert both[0] == theme.run_colors(ids[:1], order)[0] != both[1]
        assert len(theme.run_colors([*ids, "20260131-run"], order)) == len(ids) + 1


def test_runs_that_follow_each_other_have_different_colors_in_every_figure() -> None:
    ids = [f"run-{number}" for number in range(3 * len(theme.RUNS))]
    alone = [theme.run_colors([run_id], ids)[0] for run_id in ids]
    for start in range(len(ids) - len(theme.RUNS)):
        following = slice(start, start + len(theme.RUNS))
        assert len(set(alone[following])) == len(theme.RUNS)
        assert theme.run_colors(ids[following], ids) == alone[following]
