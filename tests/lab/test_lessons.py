"""The claims of the lessons as computations; no number in their sentences is literal."""

from __future__ import annotations

import inspect
import re
import string
import tomllib
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bsc_core.config import BSCLossConfig, ContrastiveLossConfig
from bsc_core.lab.lessons import LESSONS, LabLesson
from bsc_core.lab.lessons import facts as facts_of
from bsc_core.lab.lessons.batches import (
    HIGH,
    LOW,
    SIZES,
    USUAL,
    losses_by_size,
    negative_shares,
    ordered_batch,
    training_batch,
)
from bsc_core.lab.lessons.facts import CUT, PRIOR_PAIR, STRENGTH, SUM, WIDE, gradient_mass
from bsc_core.lab.lessons.margins import (
    FARTHEST,
    GRID,
    LENGTH,
    MARGINS,
    active,
    active_share,
    gradient_difference,
    margin_batch,
    negative_rows,
    negatives,
    query_gradient,
    triplet_distances,
    triplet_loss,
)
from bsc_core.lab.lessons.margins import USUAL as USUAL_MARGINS
from bsc_core.lab.lessons.negatives import (
    HARD_WRONG,
    MASK_MARGINS,
    PRIORS,
    STRENGTHS,
    cosine_gaps,
    equal_temperature,
    kinds_of_negatives,
    logit_gradient,
    masked_batch,
    masked_cells,
    probabilities,
    pulls,
    removed_counts,
    removed_gradient,
    shares_by_rank,
    weighted,
)
from bsc_core.lab.lessons.training import (
    DIMENSIONS,
    KEPT_SHARE,
    MUS,
    RESULTS,
    SEEDS,
    TIE,
    circle_gaps,
    class_results,
    graded_results,
    paraphrase_results,
    question_results,
    train,
)
from bsc_core.lab.link import read_link
from bsc_core.lab.presets import preset_batch, rows_batch, sample_rows
from bsc_core.lab.settings import LabSettings, explain_batch
from bsc_core.lab.toy_training import train_points
from bsc_core.losses import build_loss
from bsc_core.losses import margin as margin_losses
from bsc_core.losses.explain import explain, normalize
from bsc_core.paths import sample_data_folder
from bsc_core.reproduction import claims
from bsc_core.reproduction.findings import read_findings

ONE_DIRECTION = LabSettings(symmetric=False).config()
SENTENCES = ("claim", "before", "move", "question", "answer", "practice")


def templates(slug: str) -> list[str]:
    lesson = LESSONS[slug]
    cells = [cell for row in lesson.table for cell in row]
    return [*(getattr(lesson, name) for name in SENTENCES), *lesson.options, *lesson.replies, *cells]


def statement_of(claim: str, better: str, worse: str, metric: str) -> dict[str, Any]:
    """Return the statement of a finding that one arm is better than another."""
    names = [better, worse, metric]
    [one] = [
        one for one in read_findings()[claim]["statements"] if [one["better"], one["worse"], one["metric"]] == names
    ]
    return one


def test_there_are_fourteen_lessons_in_order() -> None:
    assert len(LESSONS) == 14
    assert all(re.fullmatch(r"[a-z-]+", slug) for slug in LESSONS)


@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_has_no_literal_number(slug: str) -> None:
    for template in templates(slug):
        literal = "".join(part for part, *_ in string.Formatter().parse(template))
        names_of_terms = re.sub(r"\bl2(_columns)?\b|\bL[01]\b", "", literal)
        assert not re.search(r"\d", names_of_terms), literal


@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_has_a_short_title_and_short_sentences(slug: str) -> None:
    assert 1 <= len(LESSONS[slug].title.split()) <= 3
    for text in LESSONS[slug].sentences().values():
        for sentence in re.split(r"(?<=[.?!;:])\s+", text):
            assert len(sentence.split()) <= 22, sentence


@pytest.mark.parametrize("slug", LESSONS)
def test_every_number_of_a_lesson_is_computed_and_used(slug: str) -> None:
    lesson = LESSONS[slug]
    facts = lesson.facts()
    names = {field for text in templates(slug) for _, field, *_ in string.Formatter().parse(text) if field}
    assert names == set(facts)
    assert all("nan" not in text for text in facts.values())
    assert all("{" not in text for text in lesson.sentences().values())
    assert 0 <= lesson.correct < len(lesson.options)
    wrong = [bool(reply) for reply in lesson.replies]  # one reply for each wrong option
    assert wrong == [number != lesson.correct for number in range(len(lesson.options))]


@pytest.mark.parametrize("slug", LESSONS)
def test_no_statement_of_a_quoted_claim_has_another_result_than_the_lesson_says(slug: str) -> None:
    for entry in LESSONS[slug].findings:
        name, *statement = entry.split(": ", 2)
        finding = read_findings()[name]
        others = {one["verdict"] for one in finding["statements"] if not one["informational"]} - {finding["verdict"]}
        assert statement or others <= {"inconclusive"}, f"quote a statement of {name}"


@pytest.mark.parametrize("slug", LESSONS)
def test_the_link_to_the_lab_is_valid(slug: str) -> None:
    assert read_link(dict(LESSONS[slug].link))[1] == []


@pytest.mark.parametrize("slug", [slug for slug, lesson in LESSONS.items() if isinstance(lesson, LabLesson)])
def test_a_lesson_in_the_lab_has_one_control_of_its_settings(slug: str) -> None:
    lesson = LESSONS[slug]
    asks_about_temperature = slug == "normalization"
    assert len(lesson.controls) == 1 + asks_about_temperature
    assert set(lesson.controls) <= {field.name for field in fields(LabSettings)}
    explain_batch(lesson.batch(), **{field.name: getattr(lesson.settings, field.name) for field in fields(LabSettings)})


def test_the_loss_of_one_encoder_rises_with_the_batch_size_and_stays_below_that_of_equal_similarities() -> None:
    losses = losses_by_size()
    means = [losses[size].mean() for size in SIZES]
    assert means == sorted(means)
    assert all(mean < np.log(size) for mean, size in zip(means, SIZES, strict=True))
    assert np.ptp(losses[SIZES[-1]]) < 1e-9, "all batches of all pairs are the same"
    rows = sample_rows("sixteen")[0]
    assert len(set(rows.query.tolist())) == len(set(rows.document.tolist())) == SIZES[-1]
    batch = preset_batch("confusable")
    equal = replace(batch, queries=np.ones_like(batch.queries), documents=np.ones_like(batch.documents))
    assert explain_batch(equal).query_to_document == pytest.approx(np.log(len(batch)))


def test_the_loss_by_size_is_that_of_the_batch_softmax() -> None:
    dataset, vectors = sample_rows("sixteen")
    batch = rows_batch("all", dataset, vectors)
    assert losses_by_size()[SIZES[-1]] == pytest.approx(explain_batch(batch).query_to_document)


def test_the_loss_of_the_first_rows_of_the_matrix_is_close_to_the_mean_loss_of_that_size() -> None:
    batch = ordered_batch()
    assert sorted(batch.query_texts) == sorted(rows_batch("all", *sample_rows("sixteen")).query_texts)
    for size, losses in losses_by_size().items():
        part = explain(batch.queries[:size], batch.documents[:size], np.ones(size), config=ONE_DIRECTION)
        assert abs(part.total - losses.mean()) < 0.07, size
        assert losses.min() - 1e-6 <= part.total <= losses.max() + 1e-6


def test_the_divisor_of_the_first_lesson_is_the_temperature_of_its_losses() -> None:
    temperature = float(facts_of.in_batch_facts()["temperature"])
    explained = explain_batch(ordered_batch(), symmetric=False)
    exponentials = np.exp(explained.similarity / temperature)
    np.testing.assert_allclose(exponentials / exponentials.sum(axis=1, keepdims=True), explained.rows)


def test_a_lower_temperature_gives_the_hardest_negative_of_every_query_more_and_enlarges_the_gradient() -> None:
    shares = [negative_shares(tau) for tau in (LOW, USUAL, HIGH)]
    for one in shares:
        np.testing.assert_allclose(one.sum(axis=1), 1)
    largest = [one.max(axis=1) for one in shares]
    assert (largest[0] > largest[1]).all()
    assert (largest[1] > largest[2]).all()
    explained = [
        explain_batch(preset_batch("confusable"), temperature=tau, symmetric=False) for tau in (LOW, USUAL, 0.5, HIGH)
    ]
    diagonal = np.eye(len(explained[0].rows), dtype=bool)
    for one in explained:
        assert (one.gradient[diagonal] < 0).all(), "the partner of a text pulls it"
        assert (one.gradient[~diagonal] > 0).all(), "the texts of other pairs push it"
    counts = [one.effective_negatives for one in explained]
    assert counts == sorted(counts)
    sums = [np.abs(one.gradient).sum() for one in explained]
    assert sums == sorted(sums, reverse=True)
    losses = [one.total for one in explained]
    assert losses[0] + 0.1 < losses[1] < losses[3] - 0.1, "the loss of the same encoder depends on the temperature"
    facts = facts_of.temperature_facts()
    queries = [-np.log(np.diag(one.rows)).mean() for one in explained]
    assert [float(facts[f"{name}_loss"]) for name in ("low", "usual", "high")] == pytest.approx(
        [queries[0], queries[1], queries[3]], abs=1e-3
    )
    for shares_of_tau, one in zip(shares, (explained[0], explained[1], explained[3]), strict=True):
        entropies = -(shares_of_tau * np.log(np.where(shares_of_tau > 0, shares_of_tau, 1))).sum(axis=1)
        assert one.effective_negatives == pytest.approx(np.exp(entropies).mean())
    row = int(np.argmin(largest[0]))
    similarity = np.delete(explained[0].similarity[row], row)
    assert np.diff(np.sort(similarity)[-2:])[0] < 0.01, "two negatives are almost equally similar"
    assert np.ptp(np.sort(similarity)[-3:]) < 0.02 < similarity.max() - np.sort(similarity)[-4]
    assert 0.4 < largest[0][row] < 0.6 < 0.9 < np.sort(largest[0])[1]


def test_a_low_temperature_ends_the_training_on_the_circle_with_a_smaller_gap() -> None:
    batch = training_batch()
    traces = [train_points(batch, BSCLossConfig(temperature=tau)) for tau in (LOW, USUAL, 0.3)]
    gaps = [float(trace.gap[-1]) for trace in traces]
    assert 0.1 < gaps[0] < gaps[1] - 0.1 < gaps[2] - 0.2
    np.testing.assert_allclose(circle_gaps(), [trace.gap for trace in traces[:2]], atol=0.005)
    facts = facts_of.temperature_facts()
    assert [float(facts[name]) for name in ("low_gap", "usual_gap")] == pytest.approx(gaps[:2], abs=0.01)
    assert int(facts["toy_steps"]) == len(traces[0].gap) - 1
    for trace in traces:
        assert trace.correct[0] * len(batch) == pytest.approx(2)
        assert trace.correct[-1] == 1


def test_length_wins_without_normalization_and_does_not_with_it() -> None:
    facts = facts_of.normalization_facts()
    assert int(facts["raw_takes"]) > int(facts["unit_takes"])
    assert int(facts["raw_right"]) < int(facts["unit_right"])
    assert int(facts["range_takes"]) == int(facts["pairs"]) > int(facts["unit_takes"])
    assert float(facts["range_lead"]) > 100 * float(facts["unit_lead"])
    batches = [preset_batch(name) for name in ("confusable", "stretched")]
    others = np.arange(len(batches[0])) != int(facts["longer"]) - 1
    np.testing.assert_array_equal(*(batch.documents[others] for batch in batches))
    np.testing.assert_array_equal(*(batch.queries for batch in batches))
    plain = explain_batch(batches[0], normalization="range_columns").rows
    assert plain.max(axis=1).min() > 0.9
    longer = int(facts["longer"]) - 1
    by_range = explain_batch(preset_batch("stretched"), normalization="range_columns").similarity
    assert (by_range.argmax(axis=1) == longer).all()
    for normalization in ("none", "range_columns", "l2_columns", "minmax_columns"):
        lengths = np.linalg.norm(normalize(preset_batch("stretched").documents, normalization), axis=1)
        assert lengths.argmax() == longer
        assert np.ptp(lengths) > 0.1
    np.testing.assert_allclose(np.linalg.norm(normalize(preset_batch("stretched").documents, "l2"), axis=1), 1)
    by_column = explain_batch(preset_batch("stretched"), normalization="l2_columns").rows.argmax(axis=1)
    assert 0 < (by_column == longer).sum() == int(facts["columns_takes"]) < int(facts["pairs"])
    columns = explain_batch(preset_batch("stretched"), normalization="l2_columns").similarity
    assert columns[:, longer].min() > 0, "a longer document with positive dot products need not rank first"
    alone = explain_batch(preset_batch("stretched"), normalization="range_columns", temperature=1.0).rows
    assert (alone.max(axis=1) > 0.99).all()
    products = {"unit_lead": explain_batch(preset_batch("stretched")).similarity, "range_lead": by_range}
    for name, similarity in products.items():
        ordered = np.sort(similarity, axis=1)
        assert float(facts[name]) == pytest.approx((ordered[:, -1] - ordered[:, -2]).mean(), abs=0.005)
    for temperature in (0.1, 1.0, 10.0):  # does not change the order
        rows = explain_batch(preset_batch("stretched"), normalization="range_columns", temperature=temperature).rows
        assert (rows.argmax(axis=1) == int(facts["longer"]) - 1).all()


def test_the_two_directions_are_two_losses_and_give_a_pair_two_probabilities() -> None:
    facts = facts_of.symmetric_facts()
    assert facts["first"] != facts["second"]
    assert float(facts["row"]) - float(facts["column"]) > 0.1
    pair, cosines = int(facts["pair"]) - 1, explain_batch(preset_batch("confusable")).similarity
    assert (cosines[:, pair] > cosines[pair, pair]).sum() >= 2, "some queries are closer to the document than its own"
    assert cosines[pair].argmax() == pair
    explained = explain_batch(preset_batch("confusable"))
    assert explained.columns is not None
    differences = np.abs(np.diag(explained.rows) - np.diag(explained.columns))
    assert differences.argmax() == pair, "no other pair differs more"
    both, alone = (explain_batch(preset_batch("confusable"), symmetric=one).gradient for one in (True, False))
    np.testing.assert_allclose(alone.sum(axis=1), 0, atol=1e-9)  # L0: documents of a query compete
    np.testing.assert_allclose((2 * both - alone).sum(axis=0), 0, atol=1e-9)  # L1: queries of a document compete


def test_without_labeled_negatives_the_same_encoder_has_a_lower_loss() -> None:
    facts = facts_of.negatives_facts()
    assert float(facts["dropped"]) < float(facts["included"])
    batch = preset_batch("near_misses")
    explained = explain_batch(batch, average="positives")
    assert float(facts["included"]) == pytest.approx(explained.query_to_document, abs=1e-3)
    of_all = explain_batch(batch).query_to_document * len(batch) / int(facts["positives"])
    assert of_all == pytest.approx(explained.query_to_document), "by default, the rows of the negatives count"
    settings = LESSONS["labeled-negatives"].settings
    assert (settings.average, settings.symmetric) == ("positives", False)
    assert not explained.row_positives[batch.labels <= 0.5].any(), "a row of a hard negative has no positive"
    answers = {batch.query_texts[row] for row in np.flatnonzero(batch.labels > 0.5)}
    assert {batch.query_texts[row] for row in np.flatnonzero(batch.labels <= 0.5)} <= answers
    assert int(facts["taken"].rstrip("%")) > 90
    assert float(facts["near_cosine"]) > 2 * float(facts["own_cosine"])
    cosines, is_positive = np.diag(explained.similarity), batch.labels > 0.5
    for row in np.flatnonzero(~is_positive):
        (positive,) = (one for one in np.flatnonzero(is_positive) if batch.query_texts[one] == batch.query_texts[row])
        assert cosines[row] > cosines[positive], "each hard negative is closer than the positive"


def test_the_stored_results_are_those_of_the_training() -> None:
    trained = train()
    with np.load(sample_data_folder() / RESULTS) as arrays:
        stored = dict(arrays)
    assert stored.keys() == trained.keys()
    for name, values in trained.items():
        assert stored[name].dtype == values.dtype, name
        # single rows may change places on another processor
        np.testing.assert_allclose(stored[name].mean(axis=0), values.mean(axis=0), atol=0.03, err_msg=name)


def test_a_false_negative_that_counts_as_a_negative_is_pushed_away_in_every_batch() -> None:
    negative, excluded = paraphrase_results(excluded=False), paraphrase_results(excluded=True)
    np.testing.assert_allclose(negative.other[:, 0], excluded.other[:, 0])
    assert (negative.other[:, -1] < negative.other[:, 0]).all()
    assert (excluded.other[:, -1] > excluded.other[:, 0]).all()
    assert (excluded.other[:, -1] > negative.other[:, -1] + 0.5).all()
    assert (negative.own[:, -1] > negative.own[:, 0]).all()
    assert (excluded.own[:, -1] > excluded.own[:, 0]).all()
    change = abs(negative.own[:, -1].mean() - excluded.own[:, -1].mean())
    assert float(facts_of.duplicates_facts()["own_change"]) == pytest.approx(change, abs=0.005)
    assert change < 0.05
    documents = normalize(rows_batch("", *sample_rows("paraphrases")).documents, "l2")
    cosines = documents @ documents.T - 2 * np.eye(len(documents))
    others = np.arange(len(documents)) ^ 1
    np.testing.assert_array_equal(cosines.argmax(axis=1), others)
    assert cosines[np.arange(len(documents)), others].min() > 0.5, "both answers are similar"
    assert float(facts_of.duplicates_facts()["answers"]) == pytest.approx(cosines.max(axis=1).mean(), abs=0.005)


def test_a_copy_of_a_pair_only_sets_a_floor_of_the_loss() -> None:
    batch = preset_batch("repeats")
    unchanged, several = (explain_batch(batch, duplicates=mode) for mode in ("keep", "multi_positive"))
    np.testing.assert_allclose(unchanged.rows[0, 0], unchanged.rows[0, 4])
    assert unchanged.row_losses[0] >= np.log(2)
    assert several.total == pytest.approx(unchanged.total)  # equations 3 and 4 of the BSC paper
    pushes = [one.gradient @ batch.documents for one in (unchanged, several)]  # the gradient of the queries
    np.testing.assert_allclose(pushes[0], pushes[1], atol=1e-12)


def test_nearest_neighbors_are_harder_negatives_and_hard_batches_pull_more() -> None:
    assert facts_of.hard_share("nearest") > 2 * facts_of.hard_share("random")
    assert facts_of.closer_share("nearest") > 2 * facts_of.closer_share("random") > 0
    assert gradient_mass(preset_batch("confusable")) > 1.5 * gradient_mass(preset_batch("easy"))


def test_losses_with_batch_softmax_rank_held_out_queries_a_little_better_than_squared_error_and_no_training() -> None:
    untrained, alone, both, bsc = (
        np.array([one.mrr for one in graded_results(mu, held_out=True)]) for mu in (None, 0.0, SUM, 1.0)
    )
    assert len(alone) == SEEDS
    assert (np.minimum(both, bsc) > np.maximum(alone, untrained)).all()
    assert abs(alone.mean() - untrained.mean()) < 0.02 < min(both.mean(), bsc.mean()) - untrained.mean()
    facts = facts_of.combined_facts()
    queries = int(facts["held_out"])
    assert queries == sample_rows("graded_held_out")[0].positive.sum()  # one positive of each
    from_second_to_first = (1 - 1 / 2) / queries
    for one in (both, bsc):
        gain = one.mean() - untrained.mean()
        assert from_second_to_first < gain < 2 * from_second_to_first, "as if one or two queries moved by a rank"
    assert abs(both.mean() - bsc.mean()) < 0.01, "the combined loss ranks like BSC alone"
    expected = [one.mean() for one in (untrained, alone, both, bsc)]
    names = ["untrained", "mse", "both", "bsc"]
    assert [float(facts[f"{name}_mrr"]) for name in names] == pytest.approx(expected, abs=6e-4)
    errors = [np.mean([one.error for one in graded_results(mu)]) for mu in (None, 0.0, SUM, 1.0)]
    assert [float(facts[f"{name}_error"]) for name in names] == pytest.approx(errors, abs=6e-4)
    assert {one.mrr for one in graded_results(0.0)} == {1.0}  # MSE alone ranks the training pairs perfectly


def test_batch_softmax_alone_fits_the_grades_worse_than_the_sum_for_every_seed() -> None:
    mse, both, bsc = (graded_results(mu) for mu in (0.0, SUM, 1.0))
    dataset = sample_rows("graded")[0]
    grades = dataset.label
    assert grades is not None
    assert (dataset.positive == (grades == grades.max())).all()
    for one, two, three in zip(mse, both, bsc, strict=True):
        assert min(one.spearman, two.spearman) > three.spearman
        assert max(one.error, two.error) + 0.01 < three.error
        assert abs(one.error - two.error) < 0.001, "the sum fits the grades like squared error alone"
        trained = ~np.isnan(one.cosines)  # on these rows
        assert len(np.unique(dataset.query[trained])) == round(KEPT_SHARE * len(np.unique(dataset.query)))
        levels = np.unique(grades)
        by_grade = [[np.nanmean(result.cosines[grades == level]) for level in levels] for result in (one, three)]
        assert by_grade[0] == sorted(by_grade[0])
        assert np.ptp(by_grade[1][:-1]) < 0.1 < by_grade[1][-1] - max(by_grade[1][:-1])
        assert np.square(one.cosines - grades)[trained].mean() == pytest.approx(one.error)
    held_out = sample_rows("graded_held_out")[0].label
    assert held_out is not None
    for mu in MUS:
        errors = [result.error for result in graded_results(mu, held_out=True)]
        assert min(errors) > np.var(held_out), "no loss predicts held-out grades better than their mean"
    facts = facts_of.combined_facts()
    error = np.mean([result.error for result in graded_results(0.0, held_out=True)])
    assert float(facts["held_error"]) == pytest.approx(error, abs=6e-4)
    assert float(facts["mean_error"]) == pytest.approx(np.square(held_out - held_out.mean()).mean(), abs=6e-4)


def test_the_untrained_encoder_is_evaluated_on_the_rows_of_the_trained_ones() -> None:
    for untrained, trained in zip(graded_results(None), graded_results(1.0), strict=True):
        np.testing.assert_array_equal(np.isnan(untrained.cosines), np.isnan(trained.cosines))
    for before, after in zip(class_results(None), class_results(SUM), strict=True):
        np.testing.assert_array_equal(before.classes, after.classes)
    for first, second in zip(question_results(matryoshka=None), question_results(matryoshka=True), strict=True):
        assert first.gaps.shape == second.gaps.shape


def test_training_and_held_out_rows_share_no_query() -> None:
    for name in ("graded", "classes", "questions"):
        texts = [
            {dataset.texts.texts[text] for text in dataset.query}
            for dataset in (sample_rows(name)[0], sample_rows(f"{name}_held_out")[0])
        ]
        assert not texts[0] & texts[1]


def test_questions_with_a_gap_above_zero_rank_their_positive_first() -> None:
    for kind in (None, False, True):
        for result in question_results(matryoshka=kind, held_out=True):
            first = (result.gaps > -TIE).mean(axis=1)
            assert result.gaps.shape == (len(DIMENSIONS), len(sample_rows("questions_held_out")[0]))
            assert (first <= result.mrr).all()
            assert (result.mrr <= first + (1 - first) / 2).all()


def test_the_negative_of_a_triplet_is_another_document() -> None:
    batch = margin_batch()
    rows = negative_rows(batch)
    assert (rows != np.arange(len(batch))).all()
    np.testing.assert_array_equal(negatives(batch), batch.documents[rows])


def test_cosine_margins_beyond_the_farthest_distance_give_identical_gradients() -> None:
    batch = margin_batch()
    assert gradient_difference(batch, 5.0, 7.5) == gradient_difference(batch, 7.5, 10.0) == 0
    assert gradient_difference(batch, 0.1, 5.0) > 0
    assert active_share(batch, 10.0) == active_share(batch, 2.0) == 1
    shares = [active_share(batch, margin) for margin in GRID]
    assert shares == sorted(shares)
    assert len(set(shares)) > 5
    assert triplet_loss(batch, 10.0) - triplet_loss(batch, 5.0) == pytest.approx(5.0)
    assert set(MARGINS) <= set(GRID)
    near, far = triplet_distances(batch)
    assert (near - far >= -FARTHEST).all()
    usual = [active_share(batch, margin) for margin in GRID if MARGINS[0] <= margin <= USUAL_MARGINS[1]]
    assert len(usual) > 10
    assert set(usual) == {active_share(batch, USUAL_MARGINS[0])}, "the usual margins have the same active triplets"
    assert "Usual margins are {:g} to {:g}.".format(*USUAL_MARGINS) in inspect.getsource(margin_losses)


def test_the_tested_margins_have_the_effects_that_the_lesson_names() -> None:
    facts = facts_of.margin_facts()
    assert [facts[name] for name in ("tiny", "usual", "huge")] == ["0.01", "0.1", "5"]
    dataset = tomllib.loads((Path(claims.__file__).with_name("claims") / "margins.toml").read_text(encoding="utf-8"))
    examples = dataset["tasks"]["sst2"]["subsets"]["triplets"]["data"]["examples"]
    assert (examples["kind"], examples["class_label"]) == ("triplets", "label"), (
        "the triplets are of sentences with classes"
    )
    assert statement_of("margins", "triplet_01", "triplet_001", "polarity")["verdict"] == "supported"
    classes = statement_of("margins", "triplet_01", "triplet_5", "polarity")
    assert classes["verdict"] == "contradicted"
    assert classes["high"] < 0, "with the large margin, more neighbors have the class"
    assert statement_of("margins", "triplet_01", "triplet_5", "semantic")["verdict"] == "supported"


def test_a_contrastive_margin_above_the_farthest_distance_pushes_all_negative_pairs_and_harder_as_it_grows() -> None:
    batch, pushes = margin_batch(), []
    documents = torch.from_numpy(negatives(batch))
    for margin in (0.1, FARTHEST + 0.5, *(margin for margin in MARGINS if margin > FARTHEST)):
        queries = torch.from_numpy(batch.queries.copy()).requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", margin_losses.SaturatedMarginWarning)
            loss = build_loss(ContrastiveLossConfig(margin=margin))
        loss(queries, documents, torch.zeros(len(batch))).total.backward()
        assert queries.grad is not None
        pushes.append(queries.grad.norm(dim=1).numpy())
    assert (pushes[0] == 0).any(), "a small margin leaves pairs that are far enough apart"
    assert (pushes[1] > 0).all()
    assert (np.diff(pushes[1:], axis=0) > 0).all()


def test_euclidean_margins_beyond_two_still_differ() -> None:
    batch = margin_batch()
    shares = [active_share(batch, margin, "euclidean") for margin in (2.0, 5.0, 7.5, 10.0)]
    assert shares == sorted(set(shares))
    near, far = triplet_distances(batch, "euclidean")
    expected = np.linalg.norm(LENGTH * (batch.queries - batch.documents), axis=1)
    np.testing.assert_allclose(near, expected)
    np.testing.assert_allclose(far, np.linalg.norm(LENGTH * (batch.queries - negatives(batch)), axis=1))


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


def test_the_contrastive_term_moves_training_premises_to_what_they_entail_for_every_seed() -> None:
    alone, mixed = class_results(0.0), class_results(SUM)
    for one, two in zip(alone, mixed, strict=True):
        assert min(one.accuracy, two.accuracy) > 0.8
        assert two.nearest == 1, "both losses fit all training premises"
        assert two.nearest > one.nearest + 0.1
        assert two.means[0] > max(two.means[1:]) + 0.5
    before = np.mean([one.nearest for one in class_results(None)])
    share = np.mean([one.nearest for one in alone])
    assert abs(share - before) < 0.05
    assert 0.45 < share < 0.55, "for only half of the training premises"
    for one, untrained in zip(alone, class_results(None), strict=True):
        (first, second), (first_before, second_before) = (np.diff(np.sort(each.means)) for each in (one, untrained))
        assert first > first_before + 0.05, "the mean cosines of the classes move apart"
        assert second > second_before + 0.05
    assert statement_of("scl_mix", "mix_03", "classifier", "sts")["verdict"] == "supported", "it helps on much data"


def test_no_loss_finds_more_held_out_hypotheses_than_the_encoder_before_training() -> None:
    untrained, alone, mixed = (
        np.mean([result.nearest for result in class_results(mix, held_out=True)]) for mix in (None, 0.0, SUM)
    )
    assert alone < mixed < untrained
    premises = len(np.unique(sample_rows("classes_held_out")[0].query))
    gain = [result.nearest - untrained for result in class_results(SUM, held_out=True)]
    assert max(map(abs, gain)) <= 1 / premises + 1e-9  # at most one premise for every seed


def test_a_mask_removes_what_is_above_its_limit_and_no_margin_separates_right_from_wrong_documents() -> None:
    batch, kinds, gaps = masked_batch(), kinds_of_negatives(), cosine_gaps()
    documents = np.array(batch.document_texts)
    assert (sum(kinds.values()) + np.eye(len(batch)) == 1).all()
    assert (kinds[HARD_WRONG].sum(axis=1) == 1).all()
    for row, column in np.argwhere(kinds["false negatives"]):
        assert documents[row] != documents[column]
    largest = {name: float(gaps[cells].max()) for name, cells in kinds.items()}
    assert largest[HARD_WRONG] > largest["false negatives"]
    counts = [removed_counts(margin) for margin in MASK_MARGINS]
    for margin, count in zip(MASK_MARGINS, counts, strict=True):
        off_diagonal = ~np.eye(len(batch), dtype=bool)
        np.testing.assert_array_equal(masked_cells(margin), (gaps > -margin + 1e-6) & off_diagonal)
        assert not count["false negatives"] or count[HARD_WRONG]
    for name in kinds:
        assert [count[name] for count in counts] == sorted(count[name] for count in counts)


def test_a_narrow_margin_saves_false_negatives_and_a_wide_one_removes_most_hard_negatives() -> None:
    facts = facts_of.mask_facts()
    assert 0 < int(facts["narrow_false"]) < int(facts["wide_false"]) < int(facts["false"])
    assert 0 < int(facts["narrow_wrong"]) < int(facts["wide_wrong"])
    assert int(facts["wide_hard"]) > len(masked_batch()) / 2
    below = -cosine_gaps()[kinds_of_negatives()[HARD_WRONG]] < WIDE
    assert below.sum() == int(facts["wide_hard"])
    pairs = int(facts["queries"])
    assert int(facts["wrong"]) + int(facts["false"]) == pairs * (pairs - 1)
    assert removed_gradient(WIDE) > 0.5 > 2 * int(facts["wide_wrong"]) / int(facts["wrong"])


def test_hardness_weights_move_the_gradient_to_the_hardest_negative_of_every_query() -> None:
    shares = np.stack([shares_by_rank(strength) for strength in STRENGTHS])  # (strengths, 3, B)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (np.diff(shares[:, 0], axis=0) > 0).all()
    assert (np.diff(shares[:, 2], axis=0) < 0).all()


def test_hardness_weights_divide_the_gradient_as_a_lower_temperature_but_lower_every_positive() -> None:
    for strength in STRENGTHS[1:]:
        own, negatives = probabilities(**weighted(strength))
        colder, others = probabilities(temperature=equal_temperature(strength), symmetric=False)
        np.testing.assert_allclose(
            negatives / negatives.sum(axis=1, keepdims=True), others / others.sum(axis=1, keepdims=True), rtol=1e-9
        )
        assert (own < colder).all()
        assert (own < probabilities(symmetric=False)[0]).all()
        none = explain_batch(preset_batch("confusable"), symmetric=False).rows
        change = explain_batch(preset_batch("confusable"), **weighted(strength)).rows - none
        hardest = np.where(np.eye(len(none), dtype=bool), -1, none).argmax(axis=1)
        assert (np.diag(change) < 0).all()
        np.testing.assert_array_equal(change.argmax(axis=1), hardest)
        similarity = explain_batch(preset_batch("confusable")).similarity
        least = np.where(np.eye(len(none), dtype=bool), np.inf, similarity).argmin(axis=1)
        assert (change[np.arange(len(none)), least] < 0).all(), "the least similar negative loses probability"
        pulled, usual = (
            explain_batch(preset_batch("confusable"), **weighted(one)).gradient.diagonal() for one in (strength, 0.0)
        )
        assert (pulled < usual).all(), "each positive is pulled more strongly"
    facts = facts_of.hardness_facts()
    assert float(facts["own_weights"]) < float(facts["own"]) < float(facts["own_temperature"])
    assert STRENGTH in STRENGTHS
    assert float(facts["equal"]) == pytest.approx(float(facts["usual"]) / 2), "the logit of the positive doubles"


def test_matryoshka_improves_the_cut_vectors_of_held_out_questions_for_every_seed_and_not_the_full_ones() -> None:
    untrained, plain, nested = (
        np.stack([one.mrr for one in question_results(matryoshka=kind, held_out=True)]) for kind in (None, False, True)
    )  # (seeds, dimensions)
    at = DIMENSIONS.index(CUT)
    assert plain.shape == nested.shape == (SEEDS, len(DIMENSIONS))
    assert (nested[:, at] > plain[:, at] + 0.02).all()
    assert (nested[:, at] > untrained[:, at]).all()
    assert (nested[:, at] < np.minimum(nested, plain)[:, -1] - 0.2).all()
    assert abs(nested[:, -1].mean() - plain[:, -1].mean()) < 0.02
    assert (untrained[:, -1] > np.maximum(nested, plain)[:, -1] + 0.05).all()
    np.testing.assert_array_equal(untrained, untrained[:1].repeat(SEEDS, axis=0))
    facts, names = facts_of.matryoshka_facts(), [str(number) for number in DIMENSIONS]
    listed = {
        name: [names.index(one) for one in re.findall(r"\d+", facts[name])] for name in ("better", "worse", "mixed")
    }
    queries = np.unique(sample_rows("questions")[0].query)
    assert int(facts["trained"]) == round(KEPT_SHARE * len(queries))
    for column in range(len(DIMENSIONS)):
        assert (column in listed["better"]) == (nested[:, column] > untrained[:, column]).all()
        assert (column in listed["worse"]) == (nested[:, column].mean() < untrained[:, column].mean())
        signs = np.sign(nested[:, column] - untrained[:, column])
        assert (column in listed["mixed"]) <= (signs.min() < signs.max()), "depends on the subset"
        assert sum(column in columns for columns in listed.values()) == 1
    trained = [np.stack([one.mrr for one in question_results(matryoshka=kind)]) for kind in (False, True)]
    assert (trained[1][:, 0] > trained[0][:, 0]).all()


def test_a_prior_ends_the_gradient_of_the_most_probable_positives_first() -> None:
    softmax = pulls(0.0)[0]
    by_prior = np.stack([pulls(prior)[1] for prior in PRIORS])  # (priors, B)
    ended = by_prior == 0
    batch, tau = preset_batch("easy"), LabSettings().temperature
    opposite = (len(batch) - 1) * np.exp(-1 / tau)  # sum over the negatives if all cosines are -1
    terms = np.exp(explain_batch(batch).similarity / tau)
    positive = np.diag(terms)
    for prior, at_bound in zip(PRIORS, ended, strict=True):
        sums = terms.sum(axis=1) - positive
        rest = (sums - (len(batch) - 1) * prior * positive) / (1 - prior)
        np.testing.assert_array_equal(rest <= opposite, at_bound)
    on_positives = np.stack([pulls(prior)[0] for prior in PRIORS])
    assert on_positives[ended].max() < 0.01 < on_positives[~ended].min()
    assert (np.diff(ended.astype(int), axis=0) >= 0).all()  # once at the bound, always
    ends = [PRIORS[int(column.argmax())] for column in ended.T]
    assert [ends[row] for row in np.argsort(softmax)] == sorted(ends)
    for column, stop in zip(by_prior.T, ended.T, strict=True):
        assert (np.diff(column[~stop]) > 0).all()
    losses = [explain_batch(preset_batch("easy"), debiased_prior=prior, symmetric=False).total for prior in PRIORS]
    assert losses == sorted(losses, reverse=True)
    low, high = (ended[PRIORS.index(prior)].sum() for prior in PRIOR_PAIR)
    assert 0 < low < high == len(softmax)


def test_the_matrix_of_the_prior_has_the_unit_of_its_figures() -> None:
    for prior in (0.0, *PRIOR_PAIR):
        gradient, (positive, negatives_of_query) = logit_gradient(prior), pulls(prior)
        np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=5e-4)  # as displayed, also at the bound
        np.testing.assert_allclose(-np.diag(gradient), positive)
        np.testing.assert_allclose(gradient.sum(axis=1) - np.diag(gradient), negatives_of_query, atol=1e-12)
    facts = facts_of.debiased_facts()
    row = int(facts["hardest"]) - 1
    assert float(facts["most"]) == pytest.approx(pulls(0.0)[1][row], abs=0.005)
    assert float(facts["peak"]) == pytest.approx(max(pulls(prior)[1][row] for prior in PRIORS), abs=0.005)
    assert all(max(pulls(prior)[1]) <= float(facts["peak"]) + 0.005 for prior in PRIORS)


def test_a_gradient_on_a_negative_is_its_term_divided_by_a_product_that_a_higher_prior_makes_smaller() -> None:
    batch, tau = preset_batch("easy"), LabSettings().temperature
    wrong = replace(batch, documents=np.roll(batch.documents, 1, axis=0))  # the positives are less similar
    for one, denominators_rise in ((batch, False), (wrong, True)):
        terms = np.exp(explain_batch(one).similarity / tau)
        positive = np.diag(terms)
        count, sums = len(one) - 1, terms.sum(axis=1) - positive
        products, denominators = [], []
        parts = sums - count * np.array(PRIORS)[:, None] * positive  # (priors, B)
        assert (np.diff(parts, axis=0) < 0).all(), "the subtraction makes the rest of the sum smaller"
        for prior in PRIORS:
            rest = (sums / count - prior * positive) / (1 - prior)
            above = rest > np.exp(-1 / tau)
            denominators.append(np.where(above, positive + count * rest, np.nan))
            products.append((1 - prior) * denominators[-1])
            gradient = explain_batch(one, debiased_prior=prior, symmetric=False).gradient * len(one) * tau
            negatives = ~np.eye(len(one), dtype=bool) & above[:, None]
            np.testing.assert_allclose(gradient[negatives], (terms / products[-1][:, None])[negatives])
        changes = [np.diff(values, axis=0) for values in (products, denominators)]
        assert np.nanmax(changes[0]) < 0
        assert (np.nanmax(changes[1]) > 0) == denominators_rise


def test_decoupled_pulls_every_positive_equally_and_the_softmax_by_its_missing_probability() -> None:
    explained = explain_batch(preset_batch("easy"), symmetric=False)
    np.testing.assert_allclose(pulls(0.0), 2 * [1 - np.diag(explained.rows)])
    np.testing.assert_allclose(pulls(0.0, decoupled=True), 1)
    assert float(facts_of.debiased_facts()["decoupled"]) == 1
    copies = statement_of("planted_40", "decoupled_40", "none_40", "mrr")
    assert copies["verdict"] == "contradicted"
    assert copies["high"] < 0, "with added false negatives, the decoupled loss is worse"
    positive, negative = pulls(PRIOR_PAIR[1], decoupled=True)
    np.testing.assert_allclose(positive, 1)
    np.testing.assert_array_equal(negative, 0)
