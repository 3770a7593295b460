"""Links that earlier versions wrote open the same view."""

from __future__ import annotations

import pytest

from bsc_core.config import make_config
from bsc_core.data.sample_data import sample_config
from bsc_core.evaluation.retrieval.failures import Cause
from bsc_core.runs import Run, RunStore
from pages.ui.batches import plan_figures
from pages.ui.components import navigation
from tests.helpers.pages import open_page_in_app, page_text


def test_renamed_parameters_set_their_widgets(mapped: Run) -> None:
    app = open_page_in_app("embeddings", run=mapped.id, **{"embeddings.colour": "Split", "embeddings.method": "PCA"})
    assert app.selectbox(key="embeddings.color").value == "split"
    assert "embeddings.colour" not in app.query_params


def test_renamed_batch_settings_and_strategies_are_selected(runs: RunStore, tiny_encoder: object) -> None:
    settings = {"batches.labelled": "false", "batches.neighbours": "2", "batches.forbid_collisions": "true"}
    app = open_page_in_app("batches", encoder=str(tiny_encoder), **{"batches.strategies": "examples"}, **settings)
    assert app.session_state["batches.strategies"] == ["nearest"]
    assert app.toggle(key="batches.labeled").value is False
    assert app.toggle(key="batches.no_duplicates").value is True
    assert app.number_input(key="batches.neighbors").value == 2


def test_an_old_cause_of_retrieval_errors_has_its_new_name() -> None:
    for old in ("the top document has no label for this query", "unlabeled document ranked first"):
        new = navigation._current_value("retrieval.causes.key.dev", f"{old} · 11")
        assert new == f"{Cause.UNJUDGED} · 11"


def test_an_old_statistic_of_batches_has_its_new_name() -> None:
    assert navigation._current_value("batches.measure", "groups in a single batch") in plan_figures.EPOCH_STATISTICS
    assert navigation._current_value("batches.measure", plan_figures.CLOSER) == plan_figures.CLOSER


def test_the_old_tab_of_a_sweep_has_its_new_name() -> None:
    assert navigation._current_value("runs.sweep.part", "Parallel coordinates") == "Metric by setting"
    assert navigation._current_value("runs.sweep.part", "Curves") == "Curves"


def test_the_lab_reads_its_old_parameters(runs: RunStore) -> None:
    app = open_page_in_app("learn", preset="near_misses", labelled_negatives="0")
    assert "**Error**" not in page_text(app)
    assert app.session_state["learn.link"].settings.labeled_negatives is False


def test_a_renamed_lesson_opens_and_counts_as_done(runs: RunStore) -> None:
    app = open_page_in_app("lessons", lesson="labelled-negatives", done="labelled-negatives,margins")
    assert "**Error**" not in page_text(app)
    assert app.session_state["lessons.state"] == {
        "lesson": "labeled-negatives",
        "done": ["labeled-negatives", "margins"],
        "missed": [],
    }


def test_a_metric_is_selected_by_its_name_in_results(finished: Run) -> None:
    app = open_page_in_app("runs", run=finished.id, metric="spearman")
    assert app.query_params["metric"] == "Spearman"


@pytest.mark.parametrize("name", ["filter", "group_by"])
def test_a_setting_is_selected_by_its_config_key(runs: RunStore, name: str) -> None:
    for seed in range(2):
        training = {"seed": seed, "learning_rate": 0.001 * (1 + seed)}
        given = {"data": sample_config().model_dump(), "encoder": {"name": "static"}, "training": training}
        runs.create(make_config(given), f"20260101-00000{seed}-run-{seed}")
    value = {"filter": ": 0.001", "group_by": ""}[name]
    app = open_page_in_app("runs", **{name: f"training.learning_rate{value}"})
    assert not app.exception
    assert app.query_params[name] in (f"Learning rate{value}", [f"Learning rate{value}"])
    assert app.session_state[name] in (f"Learning rate{value}", [f"Learning rate{value}"])


def test_a_filter_by_the_name_of_a_loss_selects_its_title(runs: RunStore) -> None:
    for loss in ("mse", "pearson"):
        given = {"data": sample_config().model_dump(), "encoder": {"name": "static"}, "loss": {"name": loss}}
        runs.create(make_config(given), f"20260101-000000-{loss}-0001")
    app = open_page_in_app("runs", filter="Loss: mse")
    assert app.session_state["filter"] == ["Loss: Cosine regression (MSE)"]
    assert app.dataframe[0].value["Run"].tolist() == ["mse-0001"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Gold by cut-off", "HasPositive@k by k"),
        ("Hits by cutoff", "HasPositive@k by k"),
        ("Win and loss", "Results"),
        ("Ten sentences", "Similarity of ten sentences"),
    ],
)
def test_a_renamed_tab_opens(finished: Run, old: str, new: str) -> None:
    app = open_page_in_app("retrieval", run=finished.id, **{"retrieval.part": old})
    assert app.session_state["retrieval.part"] == new


def test_a_current_parameter_wins_over_its_old_name(finished: Run) -> None:
    app = open_page_in_app(
        "embeddings",
        run=finished.id,
        **{"embeddings.colour": "Split", "embeddings.color": "Side", "embeddings.method": "PCA"},
    )
    assert app.selectbox(key="embeddings.color").value == "side"


@pytest.mark.parametrize("name", navigation.PARAMETERS)
def test_no_parameter_is_renamed_twice(name: str) -> None:
    assert navigation.PARAMETERS[name] not in navigation.PARAMETERS
