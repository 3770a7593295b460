"""Batches: strategies side by side, one batch cell by cell, and a plan that goes on to training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.batching import STRATEGIES, BatchPlan, MeasuredPlan, build_plan, measure_plan, plan_hardness
from bsc_core.config import BatchingConfig, DataConfig, RunConfig
from bsc_core.data import PairDataset, load_data, read_pairs
from bsc_core.data.marks import add_mark, read_marks, remove_mark
from bsc_core.figures import similarity, theme
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore
from pages.ui import batch_source, plan_controls, plan_job, plans, store, uploads


@pytest.fixture
def dataset(runs: RunStore, small_pairs: Path) -> str:
    data = DataConfig(train=str(small_pairs), dev_share=0.3)
    return uploads.describe(uploads.folder_for(small_pairs), "Small", data)


def told(app: AppTest) -> str:
    kinds = ("caption", "markdown", "text", "subheader")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def test_two_strategies_stand_side_by_side(visit: Callable[..., AppTest], dataset: str, tiny_encoder: Path) -> None:
    app = visit("batches", dataset=dataset, encoder=str(tiny_encoder))
    assert not app.exception
    assert app.table[0].value.columns.tolist()[1:] == ["random", "examples"]
    assert "under random" in told(app)
    assert "Pinned pair" in told(app)


def test_the_numbers_beside_the_picture_are_those_of_the_core(pages: type, dataset: str, tiny_encoder: Path) -> None:
    from bsc_core.config import EncoderConfig
    from bsc_core.encoders import embed

    app = pages.alone("batches", dataset=dataset, encoder=str(tiny_encoder))
    data = load_data(store.data_config(dataset), seed=0)
    vectors = embed(EncoderConfig(name=str(tiny_encoder)), data.texts)
    plan = build_plan(BatchingConfig(strategy="random"), data.train, vectors, seed=0, epoch=0)
    hardness = plan_hardness(plan, data.train, vectors, 30)
    shown = app.table[0].value.set_index("")["random"]
    assert shown["nearer than the own document"] == theme.share(hardness.closer_share)
    assert int(shown["collisions"].split(" ")[0]) == hardness.collisions


def test_stepping_stays_within_the_plan(pages: type, dataset: str, tiny_encoder: Path) -> None:
    app = pages.alone("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.number_input(key="batches.batch_size").set_value(8).run()
    last = app.number_input(key="batches.batch").max
    app.number_input(key="batches.batch").set_value(last).run()
    app.button(key="batches.next").click().run()
    assert app.number_input(key="batches.batch").value == last
    app.button(key="batches.suspicious").click().run()
    app.button(key="batches.hardest").click().run()
    assert not app.exception
    assert 1 <= app.number_input(key="batches.batch").value <= last


def test_fewer_batches_bring_the_stepper_back(pages: type, dataset: str, tiny_encoder: Path) -> None:
    app = pages.alone("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.number_input(key="batches.batch_size").set_value(4).run()
    app.number_input(key="batches.batch").set_value(app.number_input(key="batches.batch").max).run()
    app.number_input(key="batches.batch_size").set_value(28).run()
    assert not app.exception
    assert app.number_input(key="batches.batch").value == 1


def test_the_plan_goes_on_to_the_new_run(pages: type, dataset: str, tiny_encoder: Path) -> None:
    app = pages.in_app("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.number_input(key="batches.group_size").set_value(4).run()
    app.button(key="batches.train").click().run()
    assert not app.exception
    assert app.session_state["plan"]["batching"]["strategy"] == "examples"
    assert app.session_state["plan"]["batching"]["group_size"] == 4
    assert app.session_state["plan"]["training"] == {"batch_size": 30, "seed": 0}
    assert app.title[0].value.startswith("What should the encoder learn")


def test_an_encoder_that_is_not_there_is_refused_calmly(pages: type, dataset: str) -> None:
    app = pages.alone("batches", dataset=dataset, encoder="/no/such/folder")
    assert not app.exception
    assert "This cannot be used as it is" in told(app)


@pytest.fixture
def marks(dataset: str) -> Path:
    return store.marks_file(dataset)


def test_marking_the_pinned_pair_persists_and_is_taken_back(
    pages: type, dataset: str, marks: Path, tiny_encoder: Path
) -> None:
    app = pages.alone("batches", dataset=dataset, encoder=str(tiny_encoder))
    collisions = shown_collisions(app)
    app.button(key="batches.mark").click().run()
    assert not app.exception
    (mark,) = read_marks(marks)
    assert all(mark)
    assert "Marked as false negatives: 1 pair" in told(app)
    assert shown_collisions(app) == counted_collisions(dataset, tiny_encoder)
    assert parted(dataset, tiny_encoder, read_marks(marks)[0])
    assert store.data_config(dataset).false_negatives == str(marks)
    remove_mark(marks, *read_marks(marks)[0])
    app.run()
    assert not app.exception
    assert shown_collisions(app) == collisions


def counted_collisions(dataset: str, encoder: Path) -> int:
    """Collisions of the plan by examples, counted by the core."""
    train, vectors = store.experiment_data(dataset).train, store.vectors(dataset, str(encoder))
    plan = build_plan(BatchingConfig(strategy="examples"), train, vectors, seed=0, epoch=0)
    return plan_hardness(plan, train, vectors, 30).collisions


def shown_collisions(app: AppTest) -> int:
    """Collisions of the plan by examples, as the table says."""
    shown = app.table[0].value.set_index("")["examples"]
    return int(shown["collisions"].split(" ")[0].replace(",", ""))


def test_a_plan_without_collisions_parts_the_marked_rows(
    pages: type, dataset: str, marks: Path, tiny_encoder: Path
) -> None:
    app = pages.alone("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.button(key="batches.mark").click().run()
    (mark,) = read_marks(marks)
    app.toggle(key="batches.forbid_collisions").set_value(True).run()
    assert not app.exception
    assert shown_collisions(app) == 0
    assert parted(dataset, tiny_encoder, mark, forbid_collisions=True)


def parted(dataset: str, encoder: Path, mark: tuple[str, str], **options: bool) -> bool:
    """Whether the rows of a marked pair stand in different batches of the plan by examples."""
    data, vectors = store.experiment_data(dataset).train, store.vectors(dataset, str(encoder))
    plan = build_plan(BatchingConfig(strategy="examples", **options), data, vectors, seed=0, epoch=0)
    query = {row for row in range(len(data)) if data.texts[int(data.query[row])] == mark[0]}
    document = {row for row in range(len(data)) if data.texts[int(data.document[row])] == mark[1]}
    assert query
    assert document
    return not any(query & set(rows.tolist()) and document & set(rows.tolist()) for rows in plan.batches(30))


def test_every_strategy_can_be_looked_at(pages: type, dataset: str, tiny_encoder: Path) -> None:
    app = pages.closed("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.session_state["batches.strategies"] = list(plan_controls.ORDER)
    app.run()
    assert not app.exception
    assert app.table[0].value.columns.tolist()[1:] == list(plan_controls.ORDER)
    assert set(plan_controls.ORDER) == set(STRATEGIES)


def test_only_settings_that_a_chosen_strategy_reads_are_asked(pages: type, dataset: str, tiny_encoder: Path) -> None:
    app = pages.alone("batches", dataset=dataset, encoder=str(tiny_encoder))
    keys = {widget.key for widget in app.number_input}
    assert "batches.neighbours" in keys
    assert not keys & {"batches.clusters", "batches.shingle_size", "batches.stop_count"}
    app.session_state["batches.strategies"] = ["random", "words", "clusters"]
    app.run()
    keys = {widget.key for widget in app.number_input}
    assert {"batches.clusters", "batches.shingle_size", "batches.stop_count"} <= keys
    assert "batches.neighbours" not in keys


def test_more_clusters_than_texts_are_refused_and_the_others_stay(
    pages: type, dataset: str, tiny_encoder: Path
) -> None:
    app = pages.closed("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.session_state["batches.strategies"] = ["random", "clusters"]
    app.session_state["batches.clusters"] = 5000
    app.run()
    assert not app.exception
    assert "clusters is 5000" in told(app)
    assert app.table[0].value.columns.tolist()[1:] == ["random"]


@pytest.mark.parametrize("picture", ["Group sizes", "Over epochs"])
def test_the_other_pictures_of_a_plan_are_drawn(pages: type, dataset: str, tiny_encoder: Path, picture: str) -> None:
    app = pages.closed("batches", dataset=dataset, encoder=str(tiny_encoder))
    app.session_state["batches.picture"] = picture
    app.run()
    assert not app.exception
    assert len(app.get("vega_lite_chart")) >= 2


def test_a_run_shows_its_own_plans_and_how_they_moved(pages: type, finished: Run) -> None:
    app = pages.closed("batches", run=finished.id)
    app.session_state["batches.picture"] = "Over epochs"
    app.run()
    assert not app.exception
    assert plans.OWN in app.table[0].value.columns
    assert "as its encoder saw them before and sees them after training" in told(app)
    saved = BatchPlan.load(finished.plans_folder / "epoch-001.npz")
    assert app.number_input(key="batches.batch").max == len(saved.batches(finished.config().training.batch_size))


def test_a_run_shows_its_own_rows_whatever_was_marked_since(
    pages: type, runs: RunStore, small_config: RunConfig, small_pairs: Path, tmp_path: Path
) -> None:
    marks = tmp_path / "marked" / "marks.tsv"
    pairs = read_pairs(small_pairs)
    rows = np.flatnonzero(~pairs.positive)
    wrong = list(zip(pairs.texts.take(pairs.query[rows]), pairs.texts.take(pairs.document[rows]), strict=True))
    add_mark(marks, *wrong[0])
    data = small_config.data.model_copy(update={"false_negatives": str(marks)})
    config = small_config.model_copy(update={"data": data})
    run = runs.create(config)
    run_experiment(config, run)
    run.update_status(state="done")
    for pair in wrong:
        add_mark(marks, *pair)
    app = pages.alone("batches", run=run.id)
    assert not app.exception
    assert not app.error
    saved = BatchPlan.load(run.plans_folder / "epoch-001.npz")
    assert app.number_input(key="batches.batch").max == len(saved.batches(config.training.batch_size))


def test_a_large_batch_is_an_image_that_tells_its_numbers(pages: type, large: str, tiny_encoder: Path) -> None:
    app = pages.closed("batches", dataset=large, encoder=str(tiny_encoder))
    app.session_state["batches.batch_size"] = 100
    app.run()
    assert not app.exception
    (canvas,) = app.get("bidi_component")
    assert "100 pairs" in canvas.proto.SerializeToString().decode("utf-8", errors="replace")


@pytest.fixture
def large(runs: RunStore, tmp_path: Path) -> str:
    words = "soup bread salt garden rose seed tent train ticket bank cat dog bike wheel song book rain storm".split()
    lines = [f"{words[n % 18]} {words[n * 7 % 18]} {n}\t{words[n * 5 % 18]} {n}" for n in range(400)]
    path = runs.root / "large.tsv"
    path.write_text("query\tdocument\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return uploads.describe(uploads.folder_for(path), "Large", DataConfig(train=str(path), dev_share=0.2))


def test_a_plan_of_many_rows_is_built_by_a_child_process(
    pages: type, large: str, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "ROWS_AT_ONCE", 100)
    monkeypatch.setattr(batch_source, "TEXTS_AT_ONCE", 100)
    app = pages.alone("batches", dataset=large, encoder=str(tiny_encoder))
    assert not app.exception
    assert not app.table, "the page waits for the child"
    train = store.experiment_data(large).train
    (request,) = (plan_job.folder_of(train) / "requests").iterdir()
    child = plan_job._child(str(plan_job.folder_of(train)), str(request))
    assert child.wait(60) == 0, (request / "log.txt").read_text()
    app.run()
    assert not app.exception
    shown = app.table[0].value.set_index("")["random"]
    vectors = store.vectors(large, str(tiny_encoder))
    plan = build_plan(BatchingConfig(strategy="random"), train, vectors, seed=0, epoch=0)
    hardness = plan_hardness(plan, train, vectors, 30)
    assert shown["nearer than the own document"] == theme.share(hardness.closer_share)


@pytest.fixture
def planned() -> tuple[PairDataset, np.ndarray, MeasuredPlan]:
    """Thirty positive pairs in three tight clusters, grouped by examples."""
    generator = np.random.default_rng(5)
    dataset = PairDataset.from_pairs([f"q{n}" for n in range(30)], [f"d{n}" for n in range(30)])
    centres = generator.normal(size=(3, 16))[np.arange(30) % 3]
    sides = [centres + 0.1 * generator.normal(size=(30, 16)) for _ in range(2)]
    vectors = np.concatenate(sides).astype(np.float32)
    config = BatchingConfig(strategy="examples", group_size=5)
    build = partial(build_plan, config, dataset, vectors, seed=0, epoch=0)
    return dataset, vectors, measure_plan(build, dataset, vectors, 5)


def test_rows_of_a_group_stand_side_by_side_and_none_is_lost(planned: tuple) -> None:
    _, _, look = planned
    for batch in range(len(look.places)):
        rows, groups = plans.by_group(look, batch)
        assert sorted(rows) == sorted(look.batches[batch])
        assert len(similarity.group_borders(groups)) == len(set(groups.tolist()))


def test_a_group_begins_with_its_anchor(planned: tuple) -> None:
    dataset, vectors, look = planned
    config = BatchingConfig(strategy="examples", group_size=5)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first_formed = int(look.plan.groups.max())
    rows = plans.group_rows(look, first_formed, config)
    similar = units[dataset.query[rows]] @ units[dataset.query[rows[0]]]
    assert similar[0] == pytest.approx(1)
    assert list(similar) == sorted(similar, reverse=True)
