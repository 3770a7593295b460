"""Start: living thumbnails that agree with the core, one button that launches, and the recent runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import EncoderConfig
from bsc_core.jobs.queue import Queue
from bsc_core.recipes.presets import recommended
from bsc_core.recipes.sample import sample_config
from bsc_core.runs import Run, RunStore
from pages.ui import estimates


def told(app: AppTest) -> str:
    return "\n".join(str(element.value) for kind in ("caption", "markdown", "text") for element in app.get(kind))


def test_the_three_doors_and_their_thumbnails_are_there(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("start")
    assert not app.exception
    assert len(app.get("vega_lite_chart")) == 2
    assert {button.label for button in app.button} >= {"Bring your own pairs", "Open the batches", "Launch"}
    assert "No run yet" in told(app)


def test_the_slider_of_the_thumbnail_lives_in_the_browser(pages: type, runs: RunStore) -> None:
    app = pages.alone("start")
    spec = json.loads(app.get("vega_lite_chart")[0].proto.spec)
    assert any(param.get("bind", {}).get("input") == "range" for param in spec["params"])
    assert not app.slider


def test_launch_queues_the_recommended_run_on_the_sample_data(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("start")
    app.button(key="start.launch").click().run()
    assert not app.exception
    launched = runs.list()
    assert [run.config() for run in launched] == [recommended(sample_config())]
    assert launched[0].status().state == "queued"


def test_a_second_click_of_the_same_intent_launches_nothing_more(pages: type, runs: RunStore) -> None:
    app = pages.alone("start")
    app.button(key="start.launch").click().run()
    app.button(key="start.launch").click().run()
    assert len(runs.list()) == 1


def test_recent_runs_show_state_and_result(pages: type, finished: Run) -> None:
    table = pages.alone("start").dataframe[0].value
    assert table["State"].tolist() == ["done"]
    assert table["Best on dev"][0].startswith("mrr ")


def test_a_run_that_was_done_here_tells_its_time(finished: Run, runs: RunStore) -> None:
    finished.update_status(started=100.0, finished=148.0)
    measured = estimates.measured(runs, finished.config())
    assert measured is not None
    assert (measured.seconds, measured.here) == (48.0, True)


def test_without_such_a_run_the_time_is_the_one_measured_before(runs: RunStore) -> None:
    measured = estimates.measured(runs, recommended(sample_config()))
    assert measured is None or (measured.here is False and measured.seconds > 0)


@pytest.fixture(scope="module")
def made() -> dict[str, object]:
    """The thumbnails computed again with the bundled encoder."""
    from bsc_core.data import load_data
    from bsc_core.encoders import embed
    from bsc_core.recipes.thumbnails import make_thumbnails

    data = load_data(sample_config(), seed=0)
    return make_thumbnails(data, embed(EncoderConfig(), data.texts))


def test_the_shipped_matrix_is_what_the_encoder_says(made: dict[str, dict]) -> None:
    shipped = estimates.thumbnails()["matrix"]
    assert shipped["queries"] == made["matrix"]["queries"]
    assert shipped["documents"] == made["matrix"]["documents"]
    np.testing.assert_allclose(shipped["similarity"], made["matrix"]["similarity"], atol=1e-3)


def test_the_shipped_histograms_are_what_the_strategies_give(made: dict[str, dict]) -> None:
    shipped = estimates.thumbnails()["hardness"]
    for strategy in ("random", "examples"):
        assert sum(shipped["shares"][strategy]) == pytest.approx(1, abs=2e-3)
        moved = np.abs(np.array(shipped["shares"][strategy]) - made["hardness"]["shares"][strategy]).sum()
        assert moved <= 4 / shipped["pairs"] + 1e-3  # a cosine on the edge of a bin may fall to either side
        assert shipped["closer_share"][strategy] == pytest.approx(made["hardness"]["closer_share"][strategy], abs=6e-3)


def test_thumbnails_are_small(runs: RunStore) -> None:
    path = Path(sample_config().train).with_name("thumbnails.json")
    assert path.stat().st_size < 20_000


def test_a_launch_that_the_queue_refused_is_the_same_run_at_the_next_click(
    pages: type, runs: RunStore, queue_held: AbstractContextManager[object]
) -> None:
    app = pages.alone("start")
    with queue_held:
        app.button(key="start.launch").click().run()
    assert not app.exception
    assert "is kept but not queued yet" in told(app)
    app.run()
    app.button(key="start.launch").click().run()
    assert Queue(runs.root).waiting() == [run.id for run in runs.list()]
    assert len(runs.list()) == 1
