"""Batches: strategies side by side, one batch cell by cell, and a plan that goes on to training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.batching import KnownPairs, build_plan, plan_hardness
from bsc_core.config import BatchingConfig, DataConfig
from bsc_core.data import PairDataset, load_data
from bsc_core.figures import similarity
from bsc_core.runs import RunStore
from pages.ui import plans, uploads


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
    from bsc_core.figures import theme
    from pages.ui import store

    app = pages.alone("batches", dataset=dataset, encoder=str(tiny_encoder))
    data = load_data(store.data_config(dataset), seed=0)
    vectors = embed(EncoderConfig(name=str(tiny_encoder)), data.texts)
    plan = build_plan(BatchingConfig(strategy="random"), data.train, vectors, seed=0, epoch=0)
    hardness = plan_hardness(plan, data.train, vectors, 30)
    shown = app.table[0].value.set_index("")["random"]
    assert shown["nearer than the own document"] == theme.share(hardness.closer_share)
    assert shown["collisions"] == theme.count(hardness.collisions)


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
def planned() -> tuple[PairDataset, np.ndarray, dict[str, plans.Look]]:
    """Thirty positive pairs in three tight clusters, with both plans."""
    generator = np.random.default_rng(5)
    dataset = PairDataset.from_pairs([f"q{n}" for n in range(30)], [f"d{n}" for n in range(30)])
    centres = generator.normal(size=(3, 16))[np.arange(30) % 3]
    sides = [centres + 0.1 * generator.normal(size=(30, 16)) for _ in range(2)]
    vectors = np.concatenate(sides).astype(np.float32)
    configs = {name: BatchingConfig(strategy=name, group_size=5) for name in ("random", "examples")}
    name = f"test {dataset.digest}"
    return dataset, vectors, plans.looks(name, configs, (5, 0, 0), (dataset, vectors))


def test_the_hardest_batch_has_the_highest_mean_of_row_maxima(planned: tuple) -> None:
    dataset, vectors, looks = planned
    known = KnownPairs(dataset)
    means = []
    for rows in looks["random"].batches:
        values = plans.cells(rows, rows, dataset, vectors, known).similarity.astype(float)
        means.append(np.mean([max(values[i, j] for j in range(len(rows)) if i != j) for i in range(len(rows))]))
    assert plans.hardest_batch(looks["random"], dataset, vectors) == int(np.argmax(means))


def test_rows_of_a_group_stand_side_by_side_and_none_is_lost(planned: tuple) -> None:
    _, _, looks = planned
    for batch in range(len(looks["examples"].batches)):
        rows, groups = plans.by_group(looks["examples"], batch)
        assert sorted(rows) == sorted(looks["examples"].batches[batch])
        assert len(similarity.group_borders(groups)) == len(set(groups.tolist()))


def test_a_group_begins_with_its_anchor(planned: tuple) -> None:
    dataset, vectors, looks = planned
    config = BatchingConfig(strategy="examples", group_size=5)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    look = looks["examples"]
    first_formed = int(look.plan.groups.max())
    rows = plans.group_rows(look, first_formed, config)
    similar = units[dataset.query[rows]] @ units[dataset.query[rows[0]]]
    assert similar[0] == pytest.approx(1)
    assert list(similar) == sorted(similar, reverse=True)


def test_own_cosines_are_those_of_the_positive_pairs(planned: tuple) -> None:
    dataset, vectors, _ = planned
    found = plans.own_cosines(dataset, vectors)
    slow = [
        float(np.dot(vectors[q], vectors[d]) / np.linalg.norm(vectors[q]) / np.linalg.norm(vectors[d]))
        for q, d in zip(dataset.query, dataset.document, strict=True)
    ]
    np.testing.assert_allclose(found, slow, atol=1e-5)
