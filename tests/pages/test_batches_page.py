"""Batches page: comparison of strategies, one batch, marked false negatives, and training with a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import formatting
from bsc_core.batching import STRATEGIES, BatchPlan, PlanStats, build_plan, plan_hardness, plan_stats
from bsc_core.config import BatchingConfig, DataConfig, NegativesConfig, RunConfig, make_config
from bsc_core.data import PairDataset, load_data, read_pairs
from bsc_core.data.decisions import Decision, add_decisions, read_decisions, undo_decisions, with_decisions
from bsc_core.errors import InputError
from bsc_core.figures.batches import similarity
from bsc_core.pipeline import run_experiment
from bsc_core.presets.catalog import PRESETS
from bsc_core.runs import Run, RunStore
from pages.ui.batches import batch_view, plan_controls, plans, source, triage
from pages.ui.components import data_cache, display
from pages.ui.data import uploads
from pages.ui.runs.actions import SECTIONS
from tests.helpers.pages import config_file, open_page, open_page_in_app, page_text, prepare_page
from tests.helpers.waiting import PATIENCE_SECONDS, wait_for_task

PRESET = PRESETS["recommended"].values
BATCH_SIZE = PRESET["training"]["batch_size"]
COLLISIONS = "collisions: pairs of rows in a batch with a false negative that is known from the data"
LIKELY = "likely false negatives in batches: closer to the query than its positive, or known from the data"


@pytest.fixture
def dataset(runs: RunStore, small_pairs: Path) -> str:
    data = DataConfig(train=str(small_pairs), dev_size=0.3)
    return uploads.register(uploads.folder_for(small_pairs), "Small", data)


def test_the_strategies_follow_the_selected_run(finished: Run, runs: RunStore) -> None:
    app = open_page("batches", encoder="static")
    assert plans.RUN_PLANS not in app.session_state["batches.strategies"]
    app.selectbox(key="run").select(finished.id).run()
    assert not app.exception
    assert app.session_state["batches.strategies"] == [plans.RUN_PLANS, "random"]


def test_two_strategies_are_compared(visit: Callable[..., AppTest], dataset: str, tiny_encoder: Path) -> None:
    app = visit("batches", dataset=dataset, encoder=str(tiny_encoder))
    assert not app.exception
    assert app.table[0].value.columns.tolist()[1:] == ["random", "nearest"]
    assert "**nearest**: Groups of nearest neighbors" in page_text(app)
    assert "(random)" in page_text(app)
    assert "Pinned pair" in page_text(app)


def test_the_table_shows_the_statistics_of_the_plan(dataset: str, tiny_encoder: Path) -> None:
    from bsc_core.config import EncoderConfig
    from bsc_core.encoders import embed

    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    data = load_data(data_cache.data_config(dataset), seed=0)
    vectors = embed(EncoderConfig(name=str(tiny_encoder)), data.texts)
    plan = build_plan(BatchingConfig(strategy="random"), data.train, vectors, seed=0, epoch=0)
    hardness = plan_hardness(plan, data.train, vectors, BATCH_SIZE)
    shown = app.table[0].value.set_index("Statistic")["random"]
    assert shown["queries with a negative closer than the positive"] == formatting.percent(hardness.closer_share)
    assert int(shown[COLLISIONS].split(" ")[0]) == hardness.collisions
    likely = int(hardness.batch_likely_false_negatives.sum())
    assert shown[LIKELY] == formatting.count(likely)


def test_the_title_of_a_matrix_counts_collisions_and_their_cells() -> None:
    nothing = np.zeros((4, 4), dtype=bool)
    collides = nothing.copy()
    collides[[0, 1, 2], [1, 0, 3]] = True
    rows, positive = np.arange(4), np.ones(4, dtype=bool)
    values = np.eye(4, dtype=np.float32)
    cells = similarity.Cells(values, rows, rows, positive, collides, nothing)
    assert (cells.kinds() == similarity.COLLISION).sum() == 3
    assert batch_view.matrix_sentence(cells).endswith(", 2 known false negatives (collisions) in 3 cells.")
    without = batch_view.matrix_sentence(replace(cells, collisions=nothing))
    assert without.endswith(", 0 known false negatives (collisions).")


@pytest.mark.parametrize("value", ["1e400", "-1e400", "nan", "99999", "x"])
def test_a_batch_size_of_a_link_that_is_not_valid_is_reported(value: str, dataset: str, tiny_encoder: Path) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder), **{"batches.batch_size": value})
    assert f"batches.batch_size is '{value}'; it must be a number from 2 to 2048." in page_text(app)
    assert app.number_input(key="batches.batch_size").value == BATCH_SIZE
    assert "batches.batch_size" not in app.query_params
    app.run()
    assert app.number_input(key="batches.batch_size").value == BATCH_SIZE
    app.number_input(key="batches.batch_size").set_value(8).run()
    assert app.number_input(key="batches.batch_size").value == 8
    app.query_params["batches.batch_size"] = value  # as with the back button
    app.run()
    assert app.number_input(key="batches.batch_size").value == 8


def test_stepping_stays_within_the_plan(dataset: str, tiny_encoder: Path) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.number_input(key="batches.batch_size").set_value(8).run()
    last = app.number_input(key="batches.batch").max
    app.number_input(key="batches.batch").set_value(last).run()
    app.button(key="batches.next").click().run()
    assert app.number_input(key="batches.batch").value == last
    app.button(key="batches.likely").click().run()
    assert app.session_state[batch_view.TAB] == "Likely false negatives"
    assert batch_view.PIN in app.query_params
    app.button(key="batches.hardest").click().run()
    assert not app.exception
    assert 1 <= app.number_input(key="batches.batch").value <= last


def test_the_batch_and_its_figures_are_in_the_url(dataset: str, tiny_encoder: Path) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder), **{"batches.batch_size": "4"})
    hardest = app.number_input(key="batches.batch").value
    assert "batches.batch" not in app.query_params
    other = 1 if hardest != 1 else 2
    app.number_input(key="batches.batch").set_value(other).run()
    written = dict(app.query_params)
    assert written["batches.batch"] == str(other)
    del app.query_params["batches.batch"]  # as the browser's Back button does
    assert app.run().number_input(key="batches.batch").value == hardest
    again = open_page("batches", **written, **{"batches.view": "random", "batches.picture": "Group sizes"})
    assert again.number_input(key="batches.batch").value == other
    assert again.segmented_control(key="batches.picture").value == "Group sizes"
    assert again.segmented_control(key="batches.view").value == "random"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batches.batch", "999", "batches.batch is '999'; it must be a number from 1 to "),
        ("batches.pin", "9999-1", "The pinned pair 9999-1 is not in these rows."),
    ],
)
def test_a_batch_or_pin_that_does_not_exist_is_reported(
    dataset: str, tiny_encoder: Path, name: str, value: str, message: str
) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder), **{name: value})
    assert message in page_text(app)
    assert "Pinned pair" in page_text(app)


def test_the_name_of_a_row_leads_back_to_it() -> None:
    pairs = PairDataset.from_pairs([f"q{n}" for n in range(6)], [f"d{n}" for n in range(6)])
    line, source = np.array([2, 3, 3, 2, 3, 4]), np.array([0, 0, 0, 1, 1, 1])
    for dataset in (pairs, replace(pairs, line=line), replace(pairs, line=line, source=source)):
        names = [batch_view.row_name(dataset, row) for row in range(6)]
        assert [batch_view.find_row(dataset, name) for name in names] == list(range(6))
        assert [batch_view.find_row(dataset, name) for name in ("", "x", "9:2", "99", "3.7", "1.5.2")] == [None] * 6


def test_the_batch_number_is_reset_when_there_are_fewer_batches(dataset: str, tiny_encoder: Path) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.number_input(key="batches.batch_size").set_value(4).run()
    app.number_input(key="batches.batch").set_value(app.number_input(key="batches.batch").max).run()
    app.number_input(key="batches.batch_size").set_value(28).run()
    assert not app.exception
    assert app.number_input(key="batches.batch").value == 1


def test_the_plan_fills_the_new_run_form(dataset: str, tiny_encoder: Path) -> None:
    app = open_page_in_app("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.number_input(key="batches.group_size").set_value(4).run()
    app.button(key="batches.train").click().run()
    assert not app.exception
    assert app.session_state["sent_settings"]["batching"]["strategy"] == "nearest"
    assert app.session_state["sent_settings"]["batching"]["group_size"] == 4
    assert app.session_state["sent_settings"]["training"] == {"batch_size": 32, "seed": 0}
    assert app.session_state["sent_settings"]["encoder"] == {"name": str(tiny_encoder)}
    assert app.title[0].value.startswith("New run ")
    [changed] = [one.value for one in app.caption if one.value.startswith("Changed from the preset: ")]
    assert "Group size = 4" in changed


def test_a_mask_is_shown_in_the_batch_and_used_by_the_run(dataset: str, tiny_encoder: Path) -> None:
    app = open_page_in_app("batches", dataset=dataset, encoder=str(tiny_encoder))
    [before] = re.findall(r"(\d+) negatives? closer than the positive, ", titles(app))
    assert similarity.MASKED not in titles(app)
    app.segmented_control(key="batches.mask").set_value("relative").run()
    app.number_input(key="batches.mask_margin").set_value(1.5).run()
    [(closer, masked)] = re.findall(
        rf"(\d+) negatives? closer than the positive, (\d+) {similarity.MASKED}", titles(app)
    )
    assert 0 < int(before) - int(closer) < int(masked)  # what remains is labeled negative
    app.button(key="batches.train").click().run()
    sent = app.session_state["sent_settings"]["loss"]
    assert {name: sent[name] for name in sent if "mask" in name} == {
        "mask": "self",
        "mask_margin": 1.5,
        "mask_margin_kind": "relative",
    }


def titles(app: AppTest) -> str:
    return "\n".join(str(element.value) for element in (*app.markdown, *app.caption, *app.text))


def test_the_plan_at_first_is_that_of_the_preset(dataset: str, tiny_encoder: Path) -> None:
    app = open_page_in_app("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.button(key="batches.train").click().run()
    assert not app.exception
    assert not [one.value for one in app.caption if "batching." in one.value or "training." in one.value]


def test_a_missing_encoder_is_reported(dataset: str) -> None:
    app = open_page("batches", dataset=dataset, encoder="/no/such/folder")
    assert not app.exception
    assert "**Error**" in page_text(app)


@pytest.fixture
def marks(dataset: str) -> Path:
    return data_cache.false_negatives_file(dataset)


def test_a_marked_pair_is_stored_and_can_be_unmarked(dataset: str, marks: Path, tiny_encoder: Path) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    collisions = shown_collisions(app)
    assert pinned_cell(app) is not None
    decide(app, "drop")
    assert not app.exception
    (mark,) = read_decisions(marks)
    assert all(mark.pair)
    assert "1 decision applied: 1 dropped (ignored by the loss); 0 training rows removed" in page_text(app)
    assert [toast.value for toast in app.toast] == [
        "Decision saved: drop. The plans are being updated.",
        "1 decision applied: 1 dropped (ignored by the loss); 0 training rows removed.",
    ]
    assert set(mark.pair) < {element.value for element in app.text}, "the marked pair is no longer pinned"
    assert "This pair is not in this batch" in page_text(app)
    assert pinned_cell(app) is None, "a cell of another pair is outlined"
    decide(app, None)
    assert read_decisions(marks) == []
    decide(app, "drop")
    assert [one.pair for one in read_decisions(marks)] == [mark.pair], "another pair was pinned"
    assert shown_collisions(app) == counted_collisions(dataset, tiny_encoder)
    assert separated(dataset, tiny_encoder, read_decisions(marks)[0].pair)
    assert data_cache.data_config(dataset).false_negatives == str(marks)
    undo_decisions(marks, [mark.pair])
    app.run()
    assert not app.exception
    assert shown_collisions(app) == collisions


def decide(app: AppTest, kind: str | None) -> None:
    """Decide the pinned pair, or remove its decision."""
    app.segmented_control(key="batches.decide").set_value(kind).run()


def pinned_cell(app: AppTest) -> list[int] | None:
    """Return row and column of the outlined cell of the matrix."""
    (matrix,) = (json.loads(one.proto.json) for one in app.get("bidi_component") if '"pinned"' in one.proto.json)
    return matrix["pinned"]


def counted_collisions(dataset: str, encoder: Path) -> int:
    """Count the collisions of the nearest plan."""
    train, vectors = data_cache.dataset_splits(dataset).train, data_cache.vectors(dataset, str(encoder))
    plan = build_plan(BatchingConfig.model_validate(PRESET["batching"]), train, vectors, seed=0, epoch=0)
    return plan_hardness(plan, train, vectors, BATCH_SIZE).collisions


def shown_collisions(app: AppTest) -> int:
    """Read the collisions of the nearest plan from the table."""
    shown = app.table[0].value.set_index("Statistic")["nearest"]
    return int(shown[COLLISIONS].split(" ")[0].replace(",", ""))


def test_a_plan_without_collisions_separates_marked_rows(dataset: str, marks: Path, tiny_encoder: Path) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    decide(app, "drop")
    (mark,) = read_decisions(marks)
    app.toggle(key="batches.no_duplicates").set_value(True).run()
    assert not app.exception
    assert shown_collisions(app) == 0
    assert separated(dataset, tiny_encoder, mark.pair, no_duplicates=True)


def separated(dataset: str, encoder: Path, mark: tuple[str, str], **options: bool) -> bool:
    """Whether the rows of a marked pair are in different batches of the nearest plan."""
    data, vectors = data_cache.dataset_splits(dataset).train, data_cache.vectors(dataset, str(encoder))
    plan = build_plan(BatchingConfig.model_validate({**PRESET["batching"], **options}), data, vectors, seed=0, epoch=0)
    query = {row for row in range(len(data)) if data.texts[int(data.query[row])] == mark[0]}
    document = {row for row in range(len(data)) if data.texts[int(data.document[row])] == mark[1]}
    assert query
    assert document
    return not any(query & set(rows.tolist()) and document & set(rows.tolist()) for rows in plan.batches(BATCH_SIZE))


def test_texts_of_the_corpus_alone_are_not_encoded(runs: RunStore, tmp_path: Path, tiny_encoder: Path) -> None:
    corpus, path = tmp_path / "corpus.csv", tmp_path / "pairs.csv"
    corpus.write_text("text\n" + "".join(f"other {n}\n" for n in range(50)), encoding="utf-8")
    path.write_text("query,document\n" + "".join(f"query {n},answer {n}\n" for n in range(40)), encoding="utf-8")
    data = DataConfig(train=str(path), corpus=str(corpus), dev_size=0.3)
    key = uploads.register(uploads.folder_for(path), "With corpus", data)
    app = open_page("batches", dataset=key, encoder=str(tiny_encoder))
    assert not app.exception
    assert app.table[0].value.columns.tolist()[1:] == ["random", "nearest"]
    splits, config = data_cache.dataset_splits(key), data_cache.encoder_config(str(tiny_encoder))
    assert source.cached_vectors(config, splits.texts) is None
    cached = source.cached_vectors(config, splits.train.compact().texts)
    assert cached is not None
    assert len(cached) == 2 * len(splits.train)


def test_every_strategy_can_be_shown(dataset: str, tiny_encoder: Path) -> None:
    app = prepare_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.session_state["batches.strategies"] = list(plan_controls.ORDER)
    app.run()
    assert not app.exception
    assert app.table[0].value.columns.tolist()[1:] == list(plan_controls.ORDER)
    assert set(plan_controls.ORDER) == set(STRATEGIES)


def test_only_settings_of_selected_strategies_are_shown(dataset: str, tiny_encoder: Path) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    keys = {widget.key for widget in app.number_input}
    assert "batches.neighbors" in keys
    assert not keys & {"batches.clusters", "batches.shingle_size", "batches.stop_count"}
    app.session_state["batches.strategies"] = ["random", "words", "clusters"]
    app.run()
    keys = {widget.key for widget in app.number_input}
    assert {"batches.clusters", "batches.shingle_size", "batches.stop_count"} <= keys
    assert "batches.neighbors" not in keys


def test_batches_of_one_file_are_offered_for_mixed_data_only(
    dataset: str, small_pairs: Path, tmp_path: Path, tiny_encoder: Path
) -> None:
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    assert "batches.single_source" not in {toggle.key for toggle in app.toggle}
    second = tmp_path / f"second{small_pairs.suffix}"
    second.write_bytes(small_pairs.read_bytes())
    data = DataConfig(train=str(small_pairs), mix=(str(second),), dev_size=0.3)
    mixed = uploads.register(uploads.folder_for(second), "Mixed", data)
    app = open_page_in_app("batches", dataset=mixed, encoder=str(tiny_encoder), **{"batches.strategies": "communities"})
    app.toggle(key="batches.single_source").set_value(True).run()
    app.segmented_control(key="batches.mixing").set_value("temperature").run()
    app.number_input(key="batches.mixing_temperature").set_value(2.5).run()
    assert app.table[0].value.columns.tolist()[1:] == ["communities"]
    app.button(key="batches.train").click().run()
    assert not app.exception
    sent = app.session_state["sent_settings"]["batching"]
    names = ("strategy", "single_source", "mixing", "mixing_temperature")
    assert [sent[name] for name in names] == ["communities", True, "temperature", 2.5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("query\tdocument\tdecision\na\tb\tdrop\na\tb\tpositive\n", "row 3 decides positive for a pair"),
        ("query\tanswer\na\tb\n", "document is missing"),
    ],
)
def test_an_unusable_file_of_decisions_is_reported(
    dataset: str, marks: Path, tiny_encoder: Path, content: str, message: str
) -> None:
    marks.parent.mkdir(parents=True, exist_ok=True)
    marks.write_text(content, encoding="utf-8")
    app = open_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    assert not app.exception
    assert message in page_text(app)


def test_an_update_of_the_plans_says_how_many_new_decisions_concern_them(small_pairs: Path) -> None:
    rows = load_data(DataConfig(train=str(small_pairs), dev_size=0.3), seed=0).train
    build = partial(build_plan, BatchingConfig(strategy="random"), rows, None, seed=0, epoch=0)
    stats = plan_stats(build, rows, np.eye(len(rows.texts), 8, dtype=np.float32), 4)

    def decision(query: int, document: int) -> Decision:
        return Decision(rows.texts[int(rows.query[query])], rows.texts[int(rows.document[document])])

    def sentence(decisions: list[Decision], dataset: PairDataset = rows) -> str:
        return triage._update_sentence(decisions, SimpleNamespace(dataset=dataset, strategy="random"), stats)

    number_of = {row: number for number, batch in enumerate(stats.batches) for row in batch.tolist()}

    def shares_batch(one: Decision) -> bool:
        of_query, of_document = (
            {row for row in range(len(rows)) if rows.texts[int(column[row])] == text}
            for column, text in ((rows.query, one.query), (rows.document, one.document))
        )
        return any(number_of[i] == number_of[j] for i in of_query for j in of_document if i != j)

    cells = [decision(i, j) for i in range(len(rows)) for j in range(len(rows)) if i != j]
    together, apart = (next(one for one in cells if shares_batch(one) == is_shared) for is_shared in (True, False))
    unknown = Decision("no query", "of these rows")
    start = "Plans updated with 2 new decisions. Before, 1 of these pairs shared a batch of random."
    assert sentence([together, apart, unknown]).startswith(start)
    assert sentence([apart]).startswith("Plans updated with 1 new decision. Before, 0 of these pairs shared a batch")
    decided = with_decisions(rows, [together, apart])
    assert sentence([together, apart, unknown], decided) == "The plans had all decisions already."


def test_mined_negatives_are_queued_with_the_number_of_further_suspects(
    runs: RunStore, tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triage, "MAX_QUEUE", 3)
    path = tmp_path / "positives.csv"
    path.write_text("query,document\n" + "\n".join(f"how {n},it is {n}" for n in range(12)), encoding="utf-8")
    mining = NegativesConfig(method="window", encoder=str(tiny_encoder), count=2, as_triplets=True)
    dataset = uploads.register(uploads.folder_for(path), "Mined", DataConfig(train=str(path), negatives=mining))
    app = prepare_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.session_state["batches.triage.scope"] = triage.MINED
    app.run()
    assert not app.exception
    train = data_cache.dataset_splits(dataset).train
    mined = set(zip(train.texts.take(train.query), train.texts.take(train.negative), strict=True))
    _, pairs, more = app.session_state[triage.QUEUE]
    assert (len(pairs), more) == (3, len(mined) - 3)
    assert {(pair["query"], pair["document"]) for pair in pairs} < mined


def test_decisions_of_the_browser_are_added_and_undone() -> None:
    pairs = [{"query": "q", "document": f"d{number}"} for number in range(3)]
    changes = {"0": "positive", "1": None, "2": "unknown", "7": "drop", "x": "drop"}
    assert triage._changes(changes, pairs, "Ada") == ([Decision("q", "d0", "positive", "Ada")], [("q", "d1")])


def test_long_texts_are_cut_for_the_browser_only() -> None:
    pair = dict.fromkeys(("query", "positive", "document"), "a" * 10_000) | {"cosine": 0.5}
    shown = triage._shown(pair)
    assert len(shown["query"]) == len(shown["positive"]) == len(shown["document"]) == display.MAX_CELL
    assert (shown["cosine"], len(pair["query"])) == (0.5, 10_000)


def test_a_merge_offers_a_choice_for_the_first_conflicts_only(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw() -> None:
        from pathlib import Path

        from bsc_core.data.decisions import Decision
        from pages.ui.batches import triage

        mine, theirs = ([Decision("q", f"d{row}", kind) for row in range(60)] for kind in ("drop", "positive"))
        triage._draw_merge(Path("decisions.tsv"), mine, theirs)

    app = AppTest.from_function(draw, default_timeout=PATIENCE_SECONDS).run()
    assert len(app.radio) == triage.MAX_CONFLICTS
    assert f"The first {triage.MAX_CONFLICTS} are shown" in page_text(app)


def test_a_refused_strategy_leaves_the_others(
    dataset: str, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(config: BatchingConfig, *arguments: Any, **options: Any) -> BatchPlan:
        if config.strategy == "clusters":
            raise InputError("embeddings are not finite")
        return build_plan(config, *arguments, **options)

    monkeypatch.setattr(plans, "build_plan", build)
    app = prepare_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.session_state["batches.strategies"] = ["random", "clusters"]
    app.session_state["batches.group_size"] = 11  # of no plan that is cached
    app.run()
    assert not app.exception
    assert "embeddings are not finite" in page_text(app)
    assert app.table[0].value.columns.tolist()[1:] == ["random"]


@pytest.mark.parametrize("figure", ["Group sizes", "Over epochs"])
def test_the_other_figures_are_drawn(dataset: str, tiny_encoder: Path, figure: str) -> None:
    app = prepare_page("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.session_state["batches.picture"] = figure
    app.run()
    assert not app.exception
    assert len(app.get("vega_lite_chart")) >= 2


def test_a_run_shows_its_saved_plans_over_the_epochs(finished: Run) -> None:
    app = prepare_page("batches", run=finished.id)
    app.session_state["batches.picture"] = "Over epochs"
    app.run()
    assert not app.exception
    assert plans.RUN_PLANS in app.table[0].value.columns
    assert "evaluated with its embeddings before and after training" in page_text(app)
    saved = BatchPlan.load(finished.plans_folder / "epoch-001.npz")
    assert app.number_input(key="batches.batch").max == len(saved.batches(finished.config().training.batch_size))


def test_a_run_with_a_large_batch_size_shows_smaller_batches(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_controls, "MAX_BATCH_SIZE", 4)
    app = open_page("batches", run=finished.id)
    assert "The batches of the run have 8 rows; batches of 4 rows are shown." in page_text(app)
    saved = BatchPlan.load(finished.plans_folder / "epoch-001.npz")
    assert app.number_input(key="batches.batch").max == len(saved.batches(4))


def test_a_run_shows_its_rows_unaffected_by_later_marks(
    runs: RunStore, small_config: RunConfig, small_pairs: Path, tmp_path: Path
) -> None:
    marks = tmp_path / "marked" / "marks.tsv"
    pairs = read_pairs(small_pairs)
    rows = np.flatnonzero(~pairs.positive)
    wrong = list(zip(pairs.texts.take(pairs.query[rows]), pairs.texts.take(pairs.document[rows]), strict=True))
    add_decisions(marks, [Decision(*wrong[0])])
    data = small_config.data.model_copy(update={"false_negatives": str(marks)})
    config = small_config.model_copy(update={"data": data})
    run = runs.create(config)
    run_experiment(config, run)
    run.update_status(state="done")
    for pair in wrong:
        add_decisions(marks, [Decision(*pair)])
    app = open_page("batches", run=run.id)
    assert not app.exception
    assert not app.error
    saved = BatchPlan.load(run.plans_folder / "epoch-001.npz")
    assert app.number_input(key="batches.batch").max == len(saved.batches(config.training.batch_size))


def test_a_large_batch_is_an_image_with_a_text_alternative(large: str, tiny_encoder: Path) -> None:
    app = prepare_page("batches", dataset=large, encoder=str(tiny_encoder))
    app.session_state["batches.batch_size"] = 100
    app.run()
    assert not app.exception
    drawn = [one.proto.SerializeToString().decode("utf-8", errors="replace") for one in app.get("bidi_component")]
    assert sum("100 pairs" in one and "arrow keys" in one for one in drawn) == 1


@pytest.fixture
def large(runs: RunStore, tmp_path: Path) -> str:
    words = "soup bread salt garden rose seed tent train ticket bank cat dog bike wheel song book rain storm".split()
    lines = [f"{words[n % 18]} {words[n * 7 % 18]} {n}\t{words[n * 5 % 18]} {n}" for n in range(400)]
    path = runs.root / "large.tsv"
    path.write_text("query\tdocument\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return uploads.register(uploads.folder_for(path), "Large", DataConfig(train=str(path), dev_size=0.2))


def test_a_large_plan_is_built_in_a_background_task(
    large: str, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "MAX_ROWS_INLINE", 100)
    monkeypatch.setattr(source, "MAX_TEXTS_INLINE", 100)
    app = open_page("batches", dataset=large, encoder=str(tiny_encoder))
    assert not app.exception
    assert not app.table, "the page waits for the task"
    train = data_cache.dataset_splits(large).train
    (request,) = (plans.plans_folder(train) / "requests").iterdir()
    assert wait_for_task(request) == 0, (request / "log.txt").read_text()
    app.run()
    assert not app.exception
    shown = app.table[0].value.set_index("Statistic")["random"]
    vectors = data_cache.vectors(large, str(tiny_encoder))
    plan = build_plan(BatchingConfig(strategy="random"), train, vectors, seed=0, epoch=0)
    hardness = plan_hardness(plan, train, vectors, BATCH_SIZE)
    assert shown["queries with a negative closer than the positive"] == formatting.percent(hardness.closer_share)


@pytest.fixture
def planned() -> tuple[PairDataset, np.ndarray, PlanStats]:
    """Thirty positive pairs in three tight clusters, grouped by the nearest strategy."""
    generator = np.random.default_rng(5)
    dataset = PairDataset.from_pairs([f"q{n}" for n in range(30)], [f"d{n}" for n in range(30)])
    centers = generator.normal(size=(3, 16))[np.arange(30) % 3]
    sides = [centers + 0.1 * generator.normal(size=(30, 16)) for _ in range(2)]
    vectors = np.concatenate(sides).astype(np.float32)
    config = BatchingConfig(strategy="nearest", group_size=5)
    build = partial(build_plan, config, dataset, vectors, seed=0, epoch=0)
    return dataset, vectors, plan_stats(build, dataset, vectors, 5)


def test_the_rows_of_a_group_are_adjacent_and_complete(planned: tuple) -> None:
    _, _, stats = planned
    for batch in range(len(stats.positions)):
        rows, groups = plans.batch_by_group(stats, batch)
        assert sorted(rows) == sorted(stats.batches[batch])
        assert len(similarity.group_borders(groups)) == len(set(groups.tolist()))


def test_a_group_starts_with_its_anchor(planned: tuple) -> None:
    dataset, vectors, stats = planned
    config = BatchingConfig(strategy="nearest", group_size=5)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first_formed = int(stats.plan.groups.max())
    rows = plans.group_rows(stats, first_formed, config)
    similar = units[dataset.query[rows]] @ units[dataset.query[rows[0]]]
    assert similar[0] == pytest.approx(1)
    assert list(similar) == sorted(similar, reverse=True)


@pytest.mark.parametrize(("positive", "name"), [(True, "the positive"), (False, "its own document")])
def test_only_a_document_that_is_labeled_positive_is_called_so(
    runs: RunStore, tmp_path: Path, positive: bool, name: str
) -> None:
    path = tmp_path / "pairs.tsv"
    rows = [f"question {number} about tea\tanswer {number}\t{number % 2}" for number in range(20)]
    path.write_text("\n".join(["query\tdocument\tlabel", *rows]) + "\n", encoding="utf-8")
    dataset = uploads.register(uploads.folder_for(path), "Graded", DataConfig(train=str(path), dev_size=0.2))
    train = load_data(data_cache.data_config(dataset), seed=0).train
    row = int(np.flatnonzero(train.positive == positive)[0])
    pin = f"{train.line[row]}-{train.line[row]}"
    options = {"encoder": "static", "batches.batch_size": "20", "batches.labeled": "true", "batches.pin": pin}
    app = open_page("batches", dataset=dataset, **options)
    assert not app.exception
    assert f"Cosine of {name}" in [metric.label for metric in app.metric]


@pytest.mark.parametrize(
    ("sent", "cell"),
    [([1, 2], (1, 2)), ([3, 0], None), ([-1, 0], None), (None, None), ("ab", None), ([1], None), ([0.5, 1], None)],
)
def test_only_a_cell_of_the_matrix_can_be_clicked(
    monkeypatch: pytest.MonkeyPatch, sent: object, cell: tuple[int, int] | None
) -> None:
    monkeypatch.setattr(batch_view.st, "session_state", {"matrix": {"cell": sent}})
    assert batch_view.clicked_cell("matrix", 3) == cell


def test_the_plan_of_a_run_is_trained_with_all_its_settings(finished: Run) -> None:
    data = finished.config().data
    uploads.register(uploads.folder_for(data.train), "Other", data.model_copy(update={"dev_size": 0.1}))
    app = open_page_in_app("batches", run=finished.id)
    assert "All settings are those of the run." in page_text(app)
    app.button(key="batches.train").click().run()
    config = finished.config().model_dump()
    assert app.session_state["sent_settings"] == {section: config[section] for section in SECTIONS}
    assert app.title[0].value.startswith("New run ")
    launched = make_config(config_file(app)).data
    assert launched == finished.config().data  # also where a dataset of the same file has other settings
