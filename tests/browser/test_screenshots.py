"""The comparison of a screenshot with the baseline."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from tests.browser.screenshots import BASELINE, SMALLER, TOLERANCE, difference


def _larger(path: Path) -> Image.Image:
    image = Image.open(path)
    return image.resize((image.width * SMALLER, image.height * SMALLER), Image.Resampling.NEAREST)


def _png(image: Image.Image) -> bytes:
    image.save(content := io.BytesIO(), "png")
    return content.getvalue()


def test_the_baseline_is_equal_to_itself() -> None:
    for path in BASELINE.glob("*/*.png"):
        assert difference(_png(_larger(path)), Image.open(path)) == 0


@pytest.mark.parametrize("name", ["runs-light-1440.png", "retrieval-dark-800.png"])
def test_a_missing_element_differs_from_the_baseline(name) -> None:
    image = _larger(BASELINE / "normal" / name)
    background = image.getpixel((image.width - 2, image.height // 2))
    left = image.width // 4
    ImageDraw.Draw(image).rectangle((left, 300, image.width, 900), fill=background)
    assert difference(_png(image), Image.open(BASELINE / "normal" / name)) > TOLERANCE
