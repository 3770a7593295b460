"""The claims of the lessons as computations; no number in their sentences is literal."""

from __future__ import annotations

import re
import string
from dataclasses import fields

import numpy as np
import pytest

from bsc_core.lab.lessons import LESSONS, LabLesson
from bsc_core.lab.lessons import facts as facts_of
from bsc_core.lab.lessons.facts import MIXES, MUS, gradient_mass
from bsc_core.lab.lessons.margins import (
    GRID,
    active,
    active_share,
    gradient_difference,
    margin_batch,
    query_gradient,
    triplet_distances,
    triplet_loss,
)
from bsc_core.lab.lessons.training import train_on_classes, train_on_grades
from bsc_core.lab.link import read_link
from bsc_core.lab.presets import preset_batch, thumbnails
from bsc_core.lab.settings import LabSettings, explain_batch

SENTENCES = ("claim", "move", "question", "answer")


def test_there_are_ten_lessons_in_order() -> None:
    assert len(LESSONS) == 10
    assert all(re.fullmatch(r"[a-z-]+", slug) for slug in LESSONS)


@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_has_no_literal_number(slug: str) -> None:
    lesson = LESSONS[slug]
    for name in SENTENCES:
        literal = "".join(part for part, *_ in string.Formatter().parse(getattr(lesson, name)))
        names_of_terms = re.sub(r"\bl2\b|\bL[01]\b", "", literal)
        assert not re.search(r"\d", names_of_terms), literal


@pytest.mark.parametrize("slug", LESSONS)
def test_every_number_of_a_lesson_is_computed_and_used(slug: str) -> None:
    lesson = LESSONS[slug]
    facts = lesson.facts()
    names = {field for name in SENTENCES for _, field, *_ in string.Formatter().parse(getattr(lesson, name)) if field}
    assert names == set(facts) & names
    assert all("nan" not in text for text in facts.values())
    assert all("{" not in text for text in lesson.sentences().values())


@pytest.mark.parametrize("slug", LESSONS)
def test_the_link_to_the_lab_is_valid(slug: str) -> None:
    assert read_link(dict(LESSONS[slug].link))[1] == []


@pytest.mark.parametrize("slug", [slug for slug, lesson in LESSONS.items() if isinstance(lesson, LabLesson)])
def test_a_lesson_in_the_lab_has_one_control_of_its_settings(slug: str) -> None:
    lesson = LESSONS[slug]
    assert len(lesson.controls) == 1
    assert lesson.controls[0] in {field.name for field in fields(LabSettings)}
    explain_batch(lesson.batch(), **{field.name: getattr(lesson.settings, field.name) for field in fields(LabSettings)})


def test_equal_documents_give_the_logarithm_of_the_batch() -> None:
    assert facts_of.in_batch_facts()["blind"] == f"{np.log(len(preset_batch('confusable'))):.3f}"


def test_effective_negatives_rise_with_the_temperature() -> None:
    counts = [
        explain_batch(preset_batch("confusable"), temperature=tau).effective_negatives for tau in (0.02, 0.1, 0.5, 2.0)
    ]
    assert counts == sorted(counts)
    assert counts[0] < 2
    assert counts[-1] > 4.9


def test_length_wins_without_normalization_and_does_not_with_it() -> None:
    facts = facts_of.normalization_facts()
    assert int(facts["raw_takes"]) > int(facts["unit_takes"])
    assert int(facts["raw_right"]) < int(facts["unit_right"])
    assert float(facts["columns_spread"]) > 10 * float(facts["unit_spread"])


def test_the_two_directions_are_two_losses() -> None:
    facts = facts_of.symmetric_facts()
    assert facts["first"] != facts["second"]
    explained = explain_batch(preset_batch("confusable"))
    pair = int(facts["pair"]) - 1
    assert (explained.rows[pair, pair] < explained.columns[pair, pair]) == (facts["larger"] == "document")


def test_leaving_out_labeled_negatives_only_looks_better() -> None:
    facts = facts_of.negatives_facts()
    assert float(facts["dropped"]) < float(facts["included"])


def test_a_copy_takes_as_much_as_the_original() -> None:
    batch = preset_batch("repeats")
    unchanged, several, merged = (explain_batch(batch, duplicates=mode) for mode in ("keep", "multi_positive", "merge"))
    np.testing.assert_allclose(unchanged.rows[0, 0], unchanged.rows[0, 4])
    assert unchanged.row_losses[0] >= np.log(2)
    assert merged.total < unchanged.total
    assert several.total == pytest.approx(unchanged.total)  # equations 3 and 4 of the BSC paper


def test_grouping_makes_negatives_harder_and_hard_batches_pull_more() -> None:
    assert thumbnails()["hardness"]["closer_share"]["nearest"] > thumbnails()["hardness"]["closer_share"]["random"]
    assert gradient_mass(preset_batch("confusable")) > 1.5 * gradient_mass(preset_batch("easy"))


def test_squared_error_alone_loses_the_order_and_the_sum_preserves_both() -> None:
    results = {mu: train_on_grades(mu) for mu in MUS}
    assert results[0.0].mrr < 0.7 < results[0.5].mrr
    assert results[1.0].spearman < 0.8 < results[0.5].spearman
    assert results[0.0].error < results[1.0].error


def test_margins_beyond_the_farthest_distance_give_identical_gradients() -> None:
    batch = margin_batch()
    assert gradient_difference(batch, 5.0, 7.5) == gradient_difference(batch, 7.5, 10.0) == 0
    assert gradient_difference(batch, 0.1, 5.0) > 0
    assert active_share(batch, 10.0) == 1
    shares = [active_share(batch, margin) for margin in GRID]
    assert shares == sorted(shares)
    assert triplet_loss(batch, 10.0) - triplet_loss(batch, 5.0) == pytest.approx(5.0)


def test_the_gradient_of_triplets_is_that_of_finite_differences() -> None:
    batch, margin, step = margin_batch(), 0.1, 1e-6
    row = int(np.flatnonzero(active(batch, margin))[0])
    tangent = np.array([-batch.queries[row, 1], batch.queries[row, 0]])
    values = []
    for side in (-step, step):
        query = batch.queries[row] + side * tangent
        batch_queries = batch.queries.copy()
        batch_queries[row] = query / np.linalg.norm(query)
        moved = type(batch)(**{**vars(batch), "queries": batch_queries})
        near, far = triplet_distances(moved)
        values.append(np.maximum(0, near - far + margin).mean())
    assert query_gradient(batch, margin)[row] @ tangent == pytest.approx((values[1] - values[0]) / (2 * step), rel=1e-4)


def test_the_contrastive_term_moves_premises_to_what_they_entail() -> None:
    alone, mixed = train_on_classes(MIXES[0]), train_on_classes(0.5)
    assert alone.accuracy == mixed.accuracy == 1
    assert alone.nearest < 0.5 < mixed.nearest
    assert mixed.cosines[0] > max(mixed.cosines[1:]) + 0.5
