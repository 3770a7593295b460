"""Tests of figure colors."""

from __future__ import annotations

import re

from bsc_core.figures import theme


def test_every_meaning_has_a_different_color() -> None:
    meanings = [theme.QUERY, theme.DOCUMENT, theme.POSITIVE, theme.HARD_NEGATIVE, theme.FALSE_NEGATIVE, theme.REFERENCE]
    assert len(set(meanings)) == len(meanings)
    assert all(re.fullmatch(r"#[0-9A-F]{6}", color) for color in (*meanings, *theme.COSINE, *theme.PROBABILITY))
    assert len(theme.COSINE) % 2 == 1  # a cosine of 0 has the middle color
