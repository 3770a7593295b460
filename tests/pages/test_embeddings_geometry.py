"""Embeddings: alignment, anisotropy and the neighbours kept, each with its interval."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np

from bsc_core.evaluation import anisotropy
from bsc_core.evaluation.geometry import overlap_interval
from bsc_core.runs import Run
from pages.ui import map_frames
from tests.pages.mapped_runs import shown


def test_alignment_stands_beside_the_map(pages: type, mapped: Run) -> None:
    app = pages.alone("embeddings", run=mapped.id)
    told = shown(app)
    assert "positive pairs of dev; down and left is better in both." in told
    assert app.get("arrow_vega_lite_chart") or app.get("vega_lite_chart")


def test_below_it_stand_anisotropy_and_the_neighbours_kept_with_their_intervals(pages: type, mapped: Run) -> None:
    told = shown(pages.alone("embeddings", run=mapped.id))
    before, after = (np.asarray(mapped.array(f"embeddings_{when}")) for when in ("before", "after"))
    kept = overlap_interval(before, after, seed=map_frames.SEED)
    texts = f"of {len(before)} texts."
    assert f"Neighbours kept {kept}, {texts}" in told
    assert f"Anisotropy {anisotropy(before):.3f}, then {anisotropy(after):.3f}: " in told
    (line,) = (line for line in told.splitlines() if line.startswith("Anisotropy"))
    assert re.search(r"[+\N{MINUS SIGN}]0\.\d{3} \[.0\.\d{3}, .0\.\d{3}\], " + texts, line)


def test_a_model_beside_itself_is_called_unchanged(pages: type, mapped: Run) -> None:
    shutil.copy(mapped.folder / "embeddings_before.npy", mapped.folder / "embeddings_after.npy")
    app = pages.alone("embeddings", run=mapped.id)
    assert not app.exception
    [figure] = [json.loads(chart.proto.spec) for chart in app.get("vega_lite_chart")]
    assert figure["title"]["text"] == ["Pairs lie unchanged", "texts spread unchanged"]
    assert "unchanged, +0.000 [+0.000, +0.000], of" in shown(app)
    assert "Neighbours kept 1.000 [1.000, 1.000]" in shown(app)
