"""Embeddings page: alignment, anisotropy and shared neighbors with intervals."""

from __future__ import annotations

import re
import shutil
from types import SimpleNamespace

import numpy as np

from bsc_core.evaluation import anisotropy
from bsc_core.evaluation.stats.bootstrap_values import overlap_interval
from bsc_core.figures import theme
from bsc_core.runs import Run
from pages.ui.embeddings import frames, geometry
from tests.helpers.pages import figure_titles, open_page, page_text


def test_alignment_is_shown_next_to_the_map(mapped: Run) -> None:
    app = open_page("embeddings", run=mapped.id)
    text = page_text(app)
    assert "positive pairs of dev, and uniformity; lower is better for both." in text
    assert app.get("arrow_vega_lite_chart") or app.get("vega_lite_chart")


def test_anisotropy_and_shared_neighbors_have_intervals(mapped: Run) -> None:
    text = page_text(open_page("embeddings", run=mapped.id))
    before, after = (np.asarray(mapped.array(f"embeddings_{when}")) for when in ("before", "after"))
    overlap = overlap_interval(before, after, seed=frames.SEED)
    texts = f"({len(before)} texts)."
    assert f"{geometry.shared_sentence(overlap)} {texts}" in text
    assert geometry.shared_sentence(overlap).startswith(f"{10 * overlap.value:.1f} [{10 * overlap.low:.1f}, ")
    assert f"Anisotropy {anisotropy(before):.3f} before, {anisotropy(after):.3f} after: " in text
    (line,) = (line for line in text.splitlines() if line.startswith("Anisotropy"))
    assert re.search(r"[+\N{MINUS SIGN}]0\.\d{3} \[.0\.\d{3}, .0\.\d{3}\] " + re.escape(texts), line)


def test_epochs_are_shades_of_the_color_of_their_run() -> None:
    data = SimpleNamespace(frames=[SimpleNamespace(key=key) for key in ("before", "epoch-1", "epoch-2", "after")])
    colors = geometry._colors(data, ["run"] * 4)
    assert (colors[0], colors[-1]) == (theme.REFERENCE, *theme.run_colors(["run"]))
    assert len(set(colors)) == 4
    assert not set(colors) & {theme.QUERY, theme.DOCUMENT}


def test_two_equal_models_are_reported_as_unchanged(mapped: Run) -> None:
    shutil.copy(mapped.folder / "embeddings_before.npy", mapped.folder / "embeddings_after.npy")
    app = open_page("embeddings", run=mapped.id)
    assert not app.exception
    assert "Pairs unchanged, texts spread unchanged" in figure_titles(app)
    assert "unchanged, +0.000 [+0.000, +0.000] (" in page_text(app)
    assert "10.0 [10.0, 10.0] of a text's 10 nearest neighbors are the same" in page_text(app)


def test_a_sample_of_the_compared_texts_is_named() -> None:
    assert geometry.sampled_texts(500) == "500 texts"
    assert geometry.sampled_texts(1078) == "a random sample of 500 of 1,078 texts"
