"""The bundled encoder without its normalizing module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsc_core.data.texts import TextTable
from bsc_core.encoders import embed, encoder_folder

TEXTS = TextTable(("A cat sleeps on the sofa.", "Heavy rain flooded the streets of the old town.", "Soup"))


def test_raw_vectors_have_lengths_of_their_own_and_the_cosines_of_the_bundled_ones() -> None:
    raw, unit = embed("bundled_raw", TEXTS), embed("bundled", TEXTS)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert (lengths > 2).all()
    assert np.ptp(lengths) > 0.01
    np.testing.assert_allclose(raw / lengths, unit, atol=1e-6)


def test_the_folder_is_made_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BSC_CACHE", str(tmp_path))
    folder = encoder_folder("bundled_raw")
    made = (folder / "modules.json").stat().st_mtime_ns
    assert "Normalize" not in (folder / "modules.json").read_text(encoding="utf-8")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert encoder_folder("bundled_raw") == folder
    assert (folder / "modules.json").stat().st_mtime_ns == made
