"""Loss lab page: every source of a batch, the link, and sending the settings to a new run."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import LOSS_CONFIGS
from bsc_core.encoders import embedding_cache, pretrained, registry
from bsc_core.errors import InputError
from bsc_core.lab.batch import circle_batch
from bsc_core.lab.settings import LabSettings, explain_batch
from bsc_core.lab.toy_training import train_points
from bsc_core.runs import RunStore
from pages.ui.components import display, run_data
from pages.ui.loss_lab import view
from pages.ui.loss_lab.browser import LabState, _browser_state, packed_batch
from tests.helpers.pages import click, open_page, open_page_in_app, page_text


@pytest.fixture
def lab(
    runs: RunStore,
) -> Callable[..., AppTest]:
    return lambda **query: open_page("learn", **query)


def test_the_lab_opens_on_an_example_batch(lab: Callable[..., AppTest]) -> None:
    app = lab()
    assert "rank a positive first" in page_text(app)


@pytest.mark.parametrize("source", ["preset", "circle", "dataset", "typed"])
def test_every_source_gives_a_batch(lab: Callable[..., AppTest], source: str, tiny_encoder: Path) -> None:
    app = lab(source=source, encoder=str(tiny_encoder))
    assert "rank a positive first" in page_text(app)


@pytest.mark.parametrize("source", ["dataset", "typed"])
def test_the_encoder_of_a_batch_is_loaded_once(
    lab: Callable[..., AppTest], source: str, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = [], pretrained.load_folder
    for module in (registry, embedding_cache):
        monkeypatch.setattr(module, "load_folder", lambda *values: loaded.append(values) or load(*values))
    run_data._encoder.clear()
    app = lab(source=source, encoder=str(tiny_encoder))
    for _ in range(3):
        app.run()
        assert not app.exception
    assert len(loaded) == 1
    assert gc.get_freeze_count() > 0  # the next collection does not visit the loaded packages


def test_many_rows_added_by_a_client_are_dropped_before_the_table_adds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    key = view._key("typed")
    state = {key: {"added_rows": [{"query": "a"}] * (view.MAX_ADDED_ROWS + 1)}}
    monkeypatch.setattr(view.st, "session_state", state)
    with pytest.raises(InputError, match="101 rows were added to the table"):
        view._check_added_rows()
    assert state == {}
    state[key] = {"added_rows": [{"query": "a"}]}
    view._check_added_rows()
    assert key in state


def test_long_typed_texts_are_cut(lab: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_TYPED", 5)
    app = lab(source="typed", texts=json.dumps([[f"query {n}", f"{n} document", 1] for n in range(4)]))
    texts = app.query_params["texts"]
    assert json.loads(texts if isinstance(texts, str) else texts[0]) == [["query", f"{n} doc", 1.0] for n in range(4)]


def test_the_numbers_are_those_of_the_core(lab: Callable[..., AppTest]) -> None:
    from bsc_core.lab.presets import preset_batch

    result = explain_batch(preset_batch("near_misses"), temperature=0.3)
    app = lab(preset="near_misses", temperature="0.3")
    count = f"the effective number of negatives of a query is {result.effective_negatives:.1f} on average"
    assert count in page_text(app)


def test_the_cells_of_queries_and_of_documents_are_in_the_data() -> None:
    batch = circle_batch()
    result = explain_batch(batch, directions=("query_to_doc", "query_to_query", "doc_to_doc"), partition="joint")
    table = view.cells(batch, result)
    assert len(table) == 3 * len(batch) ** 2
    cells = table[table["other_query"].notna()]
    np.testing.assert_array_equal(cells["p_other_query_given_query"], result.query_query.probability.ravel())
    assert list(cells["query"].iloc[:2]) == [batch.query_texts[0]] * 2


def test_the_strongest_push_can_be_on_two_queries() -> None:
    result = explain_batch(circle_batch(spread=0), directions=("query_to_doc", "query_to_query"), partition="joint")
    assert "Most strongly pushed apart: query 1 and query 2." in view.summary(result, LabSettings())


def test_two_settings_have_a_sentence_each(lab: Callable[..., AppTest]) -> None:
    text = page_text(lab(preset="confusable", compare="1", b_temperature="0.5"))
    assert "Setting A: 5 of 6 queries rank a positive first. At temperature 0.1," in text
    assert "Setting B: 5 of 6 queries rank a positive first. At temperature 0.5," in text


def test_the_count_of_first_ranks_does_not_depend_on_weights_or_the_denominator(lab: Callable[..., AppTest]) -> None:
    weights = {"hardness": "in_batch_negatives", "hardness_strength": "10", "symmetric": "0"}
    for parameters in ({}, weights, {"debiased_prior": "0.2"}, {"decoupled": "1"}):
        assert "5 of 6 queries rank a positive first" in page_text(lab(preset="confusable", **parameters))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"temperature": "0"}, "temperature is 0"),
        ({"preset": "nope"}, "preset is 'nope'"),
        ({"source": "circle", "pairs": "99"}, "pairs is '99'"),
        ({"pin": "x"}, "pin is 'x'"),
        ({"watch": "softmax"}, "watch is 'softmax'"),
        ({"watch": "triplet", "margin": "0"}, "margin is '0'"),
        ({"source": "circle", "angles": "0,90,180"}, "angles in the link are 3 numbers"),
        ({"source": "circle", "angles": "0,90,180,270,0,90,180,400"}, "whole numbers from 0 to 359"),
        ({"compare": "1", "b_temperature": "nan"}, "b_temperature"),
        ({"source": "typed", "texts": "[" * 50_000}, "texts in the link are not rows"),
    ],
)
def test_invalid_parts_of_a_link_are_errors_and_the_lab_opens(lab, query: dict[str, str], words: str) -> None:
    app = lab(**query)
    assert words in page_text(app)
    assert "rank a positive first" in page_text(app)


def test_the_state_is_in_the_url(lab: Callable[..., AppTest]) -> None:
    app = lab(source="circle", pairs="5", temperature="0.5")
    app.number_input(key="learn.1.seed").set_value(7).run()
    assert app.query_params["seed"] in ("7", ["7"])
    assert app.query_params["pairs"] in ("5", ["5"])
    assert app.query_params["temperature"] in ("0.5", ["0.5"])


def test_the_pinned_cell_of_a_link_stays_in_the_url(lab: Callable[..., AppTest]) -> None:
    app = lab(preset="easy", pin="2-3")
    for _ in range(2):
        assert app.query_params["pin"] in ("2-3", ["2-3"])
        app.run()
    assert "pin" not in lab(source="circle", pairs="4", pin="2-9").query_params


@pytest.mark.parametrize(("sent", "pinned"), [(None, (0, 1)), ([], None), ([1, 2], (1, 2)), ([1, 99], None)])
def test_the_browser_reports_the_pinned_cell_after_a_click(sent: object, pinned: tuple[int, int] | None) -> None:
    start = LabState(LabSettings(), None, (0, 1))
    assert _browser_state({"pinned": sent}, start, circle_batch()).pinned == pinned


def test_toy_training_is_in_the_url(lab: Callable[..., AppTest]) -> None:
    app = lab(source="circle")
    click(app, "learn.1.watch")
    assert app.query_params["watch"] in ("bsc", ["bsc"])


def test_the_temperature_next_to_the_circle_is_that_of_the_matrices(lab: Callable[..., AppTest]) -> None:
    app = lab(source="circle", watch="bsc", temperature="0.21")
    slider = app.select_slider(key="learn.1.toy_temperature")
    assert slider.value == 0.2  # the nearest option
    assert "At temperature 0.21," in page_text(app)
    slider.set_value(0.5).run()
    assert "At temperature 0.5," in page_text(app)
    assert app.query_params["temperature"] in ("0.5", ["0.5"])
    assert app.select_slider(key="learn.1.toy_temperature").value == 0.5


def test_the_margin_of_the_triplet_loss_is_in_the_link_and_sent_to_a_new_run(runs: RunStore) -> None:
    app = open_page_in_app("learn", source="circle", watch="bsc", second_loss="triplet", margin="0.5")
    assert app.number_input(key="learn.1.margin").value == 0.5
    app.number_input(key="learn.1.margin").set_value(1.5).run()
    assert app.query_params["margin"] in ("1.5", ["1.5"])
    losses = [
        run["loss"]
        for one in app.get("bidi_component")
        if one.proto.component_name.endswith("lab_player")
        for run in json.loads(one.proto.json)["runs"]
    ]
    assert [loss["name"] for loss in losses] == ["bsc", "triplet"]
    assert losses[1]["margin"] == 1.5
    app = open_page_in_app("learn", source="circle", watch="triplet", margin="0.5")
    click(app, "learn.run")
    app.switch_page("pages/train.py").run()
    assert app.session_state["sent_settings"]["loss"] == {"name": "triplet", "margin": 0.5}


def test_both_settings_of_a_comparison_are_trained() -> None:
    link = {"compare": "1", "temperature": "0.2", "b_temperature": "0.05", "watch": "bsc", "second_loss": "setting_b"}
    app = open_page_in_app("learn", source="circle", **link)
    assert not app.exception
    [runs] = [
        json.loads(one.proto.json)["runs"]
        for one in app.get("bidi_component")
        if one.proto.component_name.endswith("lab_player")
    ]
    assert [run["title"] for run in runs] == ["Setting A", "Setting B"]
    assert [run["loss"]["temperature"] for run in runs] == [0.2, 0.05]
    assert app.query_params["second_loss"] in ("setting_b", ["setting_b"])


def test_the_table_of_a_toy_training_has_a_row_for_each_step_of_each_loss() -> None:
    batch, losses = circle_batch(), [LOSS_CONFIGS[name].model_validate({"name": name}) for name in ("bsc", "mse")]
    table = view._steps_table(batch, losses, None, ["batch softmax", "squared error"])
    assert list(table.columns) == [
        *("training", "step", "loss", "temperature", "queries_with_the_positive_first", "smallest_gap")
    ]
    trace = train_points(batch, losses[1])
    of_second = table[table["training"] == "squared error"]
    assert of_second["step"].tolist() == list(range(101))
    assert np.allclose(of_second["loss"], trace.loss, atol=1e-6)
    assert of_second["temperature"].isna().all()


def test_a_margin_that_no_cosine_distance_reaches_is_reported(lab: Callable[..., AppTest]) -> None:
    words = "all triplet margins of 2 or more give the same gradient"
    assert words in page_text(lab(source="circle", watch="triplet", margin="3"))
    assert words not in page_text(lab(source="circle", watch="triplet"))


def test_a_loss_that_compares_labels_states_that_equal_labels_give_0(lab) -> None:
    words = "All pairs of this batch have the same label, so the loss is 0 at each step"
    assert f"{words}: order of the cosines (CoSENT) and order of the angles (AnglE)." in page_text(
        lab(source="circle", watch="cosent", second_loss="angle")
    )
    assert words not in page_text(lab(source="circle", watch="sigmoid"))


def test_a_loss_without_a_margin_has_no_control_for_it(lab: Callable[..., AppTest]) -> None:
    app = lab(source="circle", watch="bsc", second_loss="mse")
    assert "learn.1.margin" not in [one.key for one in app.number_input]


def test_a_batch_without_positives_is_reported(lab: Callable[..., AppTest]) -> None:
    assert "No pair of this batch is positive" in page_text(lab(threshold="1"))


def test_the_settings_are_sent_to_a_new_run(
    runs: RunStore,
) -> None:
    linked = {"temperature": "0.25", "normalization": "l2_columns", "learn_temperature": "1", "mask": "guide"}
    linked |= {"directions": "query_to_doc,doc_to_doc", "partition": "joint"}
    app = open_page_in_app("learn", **linked)
    click(app, "learn.run")
    app.switch_page("pages/train.py").run()
    loss = app.session_state["sent_settings"]["loss"]
    assert (loss["name"], loss["temperature"], loss["normalization"]) == ("bsc", 0.25, "l2_columns")
    assert loss["learn_temperature"] is True
    assert (loss["mask"], loss["mask_guide"]) == ("guide", "static")
    assert (loss["directions"], loss["partition"]) == (("query_to_doc", "doc_to_doc"), "joint")
    assert not app.exception


def test_a_model_that_a_link_names_is_downloaded_only_after_a_click(runs: RunStore) -> None:
    app = open_page("learn", source="dataset", encoder="somebody/model")
    assert not app.exception
    assert "somebody/model is not on this machine" in app.warning[0].value.replace("\\", "")
    assert [button.label for button in app.button if button.key == "download.somebody/model"] == [
        "Download the encoder"
    ]


def test_the_browser_gets_the_start_of_long_texts() -> None:
    batch = circle_batch()
    batch = replace(batch, query_texts=("x" * 10_000, *batch.query_texts[1:]))
    assert len(packed_batch(batch)["query_texts"][0]) == display.MAX_CELL
    assert packed_batch(batch)["query_texts"][1:] == list(batch.query_texts[1:])


def test_each_of_two_settings_can_be_used_in_a_run() -> None:
    app = open_page("learn", temperature="0.05", compare="1", **{"compare.temperature": "0.5"})
    assert [button.label for button in app.button if button.key and button.key.startswith("learn.run")] == [
        "Use setting A in a run",
        "Use setting B in a run",
    ]
