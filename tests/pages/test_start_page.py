"""Start page: previews that agree with the core, the launch button, and recent runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import EncoderConfig
from bsc_core.data.decisions import Decision
from bsc_core.data.sample_data import sample_config
from bsc_core.jobs.queue import Queue
from bsc_core.presets.catalog import recommended
from bsc_core.runs import Run, RunStore
from pages.ui.components import data_cache
from pages.ui.home import cards
from tests.helpers.pages import click, open_page, page_text


def test_the_three_cards_have_their_previews_and_buttons(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("start")
    assert len(app.get("vega_lite_chart")) == 2
    assert {button.label for button in app.button} >= {"Import data", "Inspect the batches", "Launch run"}
    assert "There are no runs yet" in page_text(app)


def test_the_slider_of_the_preview_runs_in_the_browser(runs: RunStore) -> None:
    app = open_page("start")
    spec = json.loads(app.get("vega_lite_chart")[0].proto.spec)
    assert any(param.get("bind", {}).get("input") == "range" for param in spec["params"])
    assert not app.slider


def test_launch_queues_the_recommended_run_on_the_sample_data(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("start")
    click(app, "start.launch")
    launched = runs.list()
    assert [run.config() for run in launched] == [recommended(sample_config())]
    assert launched[0].status().state == "queued"


def test_the_recommended_run_uses_the_decisions_about_false_negatives(runs: RunStore) -> None:
    path = data_cache.false_negatives_file(data_cache.SAMPLE)
    data_cache.save_decisions(path, [Decision("a query", "a document")])
    app = open_page("start")
    assert "A new run uses your decisions about false negatives" in page_text(app)
    click(app, "start.launch")
    assert runs.list()[0].config().data.false_negatives == str(path)


def test_a_second_click_does_not_launch_another_run(runs: RunStore) -> None:
    app = open_page("start")
    click(app, "start.launch")
    click(app, "start.launch")
    assert len(runs.list()) == 1


def test_recent_runs_show_state_and_result(finished: Run) -> None:
    table = open_page("start").dataframe[0].value
    assert table["State"].tolist() == ["done"]
    assert table["Best on dev"][0].startswith("MRR ")
    assert table["Progress"].tolist() == [100]


def test_the_progress_of_an_active_run_is_a_whole_percentage(finished: Run) -> None:
    finished.update_status(state="running", step=5, steps=7)
    assert open_page("start").dataframe[0].value["Progress"].tolist() == [71]


def test_a_finished_run_gives_the_time_estimate(finished: Run, runs: RunStore) -> None:
    finished.update_status(started=100.0, finished=148.0)
    estimate = cards.estimate(runs, finished.config())
    assert estimate is not None
    assert (estimate.seconds, estimate.here) == (48.0, True)
    shipped = cards.estimate(runs, recommended(sample_config()))
    assert (estimate.before, estimate.after) == (shipped.before, shipped.after)


def test_without_a_finished_run_the_shipped_estimate_is_used(runs: RunStore) -> None:
    estimate = cards.estimate(runs, recommended(sample_config()))
    assert estimate is not None
    assert estimate.here is False
    assert estimate.seconds > 0
    assert estimate.before < estimate.after[0] < estimate.after[1]
    shown = open_page("start").metric[0]
    assert shown.value == "–".join(f"{value:.3f}" for value in estimate.after)


@pytest.fixture(scope="module")
def recomputed() -> dict[str, object]:
    """The previews computed again with the bundled encoder."""
    from bsc_core.data import load_data
    from bsc_core.encoders import embed
    from bsc_core.presets.thumbnails import make_thumbnails

    data = load_data(sample_config(), seed=0)
    return make_thumbnails(data, embed(EncoderConfig(), data.texts))


def test_the_shipped_matrix_is_that_of_the_encoder(recomputed: dict[str, dict]) -> None:
    shipped = cards.thumbnails()["matrix"]
    assert shipped["queries"] == recomputed["matrix"]["queries"]
    assert shipped["documents"] == recomputed["matrix"]["documents"]
    np.testing.assert_allclose(shipped["similarity"], recomputed["matrix"]["similarity"], atol=1e-3)


def test_the_shipped_histograms_are_those_of_the_strategies(recomputed: dict[str, dict]) -> None:
    shipped = cards.thumbnails()["hardness"]
    assert shipped["batch_size"] == recommended(sample_config()).training.batch_size
    for strategy in ("random", "nearest"):
        assert sum(shipped["shares"][strategy]) == pytest.approx(1, abs=2e-3)
        difference = np.abs(np.array(shipped["shares"][strategy]) - recomputed["hardness"]["shares"][strategy]).sum()
        assert difference <= 4 / shipped["pairs"] + 1e-3  # a cosine on the edge of a bin may fall to either side
        assert shipped["closer_share"][strategy] == pytest.approx(
            recomputed["hardness"]["closer_share"][strategy], abs=6e-3
        )


def test_thumbnails_are_small(runs: RunStore) -> None:
    path = Path(sample_config().train).with_name("thumbnails.json")
    assert path.stat().st_size < 20_000


def test_a_launch_refused_by_the_queue_is_the_same_run_on_the_next_click(
    runs: RunStore, locked_queue: AbstractContextManager[object]
) -> None:
    app = open_page("start")
    with locked_queue:
        click(app, "start.launch")
    assert "was created but not queued yet" in page_text(app)
    app.run()
    click(app, "start.launch")
    assert Queue(runs.root).waiting() == [run.id for run in runs.list()]
    assert len(runs.list()) == 1
