"""Every page, in every state, looks as its screenshot in the baseline."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Page

from tests.browser.screenshots import (
    BASELINE,
    BASELINE_VIEWS,
    SMALLER,
    TOLERANCE,
    difference,
    open_every_page,
    show_view,
)
from tests.helpers.waiting import wait_until


def test_every_page_looks_as_in_the_baseline(private_server, chrome, tmp_path) -> None:
    compared = []
    for name, page in open_every_page(chrome, private_server):
        for theme, width in BASELINE_VIEWS:
            show_view(page, theme, width)
            compared.append(f"{name}-{theme}-{width}.png")
            check_looks(page, BASELINE / compared[-1], tmp_path)
    assert sorted(compared) == sorted(str(path.relative_to(BASELINE)) for path in BASELINE.glob("*/*.png"))


def check_looks(page: Page, baseline: Path, folder: Path) -> None:
    """Wait until a page looks as in the baseline; its last screenshot is in the folder."""

    def looks_the_same() -> bool:
        (folder / baseline.name).write_bytes(picture := page.screenshot())
        return difference(picture, baseline) <= TOLERANCE

    wait_until(looks_the_same, f"{baseline} and {folder / baseline.name} differ", factor=0.2)


def _larger(path: Path) -> Image.Image:
    image = Image.open(path)
    return image.resize((image.width * SMALLER, image.height * SMALLER), Image.Resampling.NEAREST)


def _png(image: Image.Image) -> bytes:
    image.save(content := io.BytesIO(), "png")
    return content.getvalue()


def test_the_baseline_is_equal_to_itself() -> None:
    for path in BASELINE.glob("*/*.png"):
        assert difference(_png(_larger(path)), path) == 0


@pytest.mark.parametrize("name", ["runs-light-1440.png", "retrieval-dark-800.png"])
def test_a_missing_element_differs_from_the_baseline(name) -> None:
    image = _larger(BASELINE / "normal" / name)
    background = image.getpixel((image.width - 2, image.height // 2))
    left = image.width // 4
    ImageDraw.Draw(image).rectangle((left, 300, image.width, 900), fill=background)
    assert difference(_png(image), BASELINE / "normal" / name) > TOLERANCE
