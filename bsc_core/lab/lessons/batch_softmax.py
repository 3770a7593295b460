"""Lessons one to six: the batch softmax and its settings, on batches small enough to see every cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bsc_core.lab.batch import LabBatch
from bsc_core.lab.lessons.lesson import Facts, LabLesson, decimal, percent, seen
from bsc_core.lab.presets import preset_batch
from bsc_core.lab.settings import LabSettings

LOW, USUAL, HIGH = 0.02, 0.1, 2.0
"""Temperatures that the second lesson compares."""
STRETCH = 3.0
"""How much longer the third lesson makes one document."""


def confusable() -> LabBatch:
    """Six questions whose answers lie close together."""
    return preset_batch("confusable")


def easy() -> LabBatch:
    """Six questions of six topics."""
    return preset_batch("easy")


def near_misses() -> LabBatch:
    """Questions with their labelled near misses."""
    return preset_batch("near_misses")


def repeats() -> LabBatch:
    """A batch in which two pairs stand twice."""
    return preset_batch("repeats")


def stretched() -> LabBatch:
    """The confusable questions, with one document's vector made longer: same direction, other length."""
    batch = confusable()
    documents = batch.documents.copy()
    documents[LONGER] *= STRETCH
    return replace(batch, title=f"{batch.title}, document {LONGER + 1} longer", documents=documents)


LONGER = 2
"""The document that is made longer, from 0."""


def in_batch_facts() -> Facts:
    """How many negatives a batch gives for nothing, and what the loss is when nothing is known yet."""
    batch = confusable()
    pairs = len(batch)
    alike = replace(batch, queries=np.ones_like(batch.queries), documents=np.ones_like(batch.documents))
    return {
        "pairs": str(pairs),
        "negatives": str(pairs - 1),
        "cells": str(pairs * (pairs - 1)),
        "blind": decimal(seen(alike).query_to_document),
        "blind_share": decimal(1 / pairs),
        "loss": decimal(seen(batch).query_to_document),
    }


def temperature_facts() -> Facts:
    """How many negatives count at a low, a usual and a high temperature, and who gets the push."""
    batch = confusable()
    found = {name: seen(batch, temperature=tau) for name, tau in (("low", LOW), ("usual", USUAL), ("high", HIGH))}
    facts = {f"{name}_negatives": decimal(one.effective_negatives, 1) for name, one in found.items()}
    row = found["usual"].hardest_row
    shares = {}
    for name, one in found.items():
        push = np.where(one.row_positives[row], 0.0, one.rows[row])
        shares[f"{name}_share"] = percent(float(push.max() / push.sum()))
    taus = {"low": f"{LOW:g}", "usual": f"{USUAL:g}", "high": f"{HIGH:g}"}
    return facts | shares | taus | {"row": str(row + 1), "negatives": str(len(batch) - 1)}


def normalization_facts() -> Facts:
    """Who is chosen where length counts, and how far column normalization spreads the scores."""
    batch = stretched()
    raw, unit = seen(batch, normalization="none"), seen(batch)
    columns = {name: seen(batch, normalization=name, temperature=1.0) for name in ("l2_columns", "range_columns")}
    own = np.arange(len(batch))
    compared = {"unit": seen(batch, temperature=1.0), **columns}
    spread = {name: decimal(float(np.ptp(one.logits)), 1) for name, one in compared.items()}
    return {
        "longer": str(LONGER + 1),
        "stretch": f"{STRETCH:g}",
        "pairs": str(len(batch)),
        "raw_takes": str(int((raw.rows.argmax(axis=1) == LONGER).sum())),
        "unit_takes": str(int((unit.rows.argmax(axis=1) == LONGER).sum())),
        "raw_right": str(int((raw.rows.argmax(axis=1) == own).sum())),
        "unit_right": str(int((unit.rows.argmax(axis=1) == own).sum())),
        "unit_spread": spread["unit"],
        "columns_spread": spread["l2_columns"],
        "range_spread": spread["range_columns"],
    }


def symmetric_facts() -> Facts:
    """The two directions of one matrix, and a pair on which they disagree most."""
    found = seen(confusable())
    assert found.columns is not None
    rows, columns = np.diag(found.rows), np.diag(found.columns)
    pair = int(np.abs(rows - columns).argmax())
    return {
        "first": decimal(found.query_to_document),
        "second": decimal(found.document_to_query or 0.0),
        "pair": str(pair + 1),
        "row": decimal(float(rows[pair])),
        "column": decimal(float(columns[pair])),
        "asked": "query" if rows[pair] < columns[pair] else "document",
        "surer": "document" if rows[pair] < columns[pair] else "query",
    }


def negatives_facts() -> Facts:
    """What labelled negatives change: how many choices there are, and what they take from the right answer."""
    batch = near_misses()
    kept, dropped = seen(batch), seen(batch, labelled_negatives=False)
    anchors = np.flatnonzero(kept.row_positives.any(axis=1))
    negatives = ~kept.row_positives.any(axis=1)
    return {
        "pairs": str(len(batch)),
        "positives": str(len(anchors)),
        "negatives": str(int(negatives.sum())),
        "kept": decimal(kept.query_to_document),
        "dropped": decimal(dropped.query_to_document),
        "taken": percent(float(kept.rows[anchors][:, negatives].sum(axis=1).mean())),
        "own": percent(float(kept.rows[anchors, anchors].mean())),
        "own_dropped": percent(float(dropped.rows[anchors, anchors].mean())),
    }


def duplicates_facts() -> Facts:
    """What a pair that stands twice costs, and what the two remedies make of it."""
    batch = repeats()
    found = {name: seen(batch, duplicates=name) for name in ("keep", "merge", "multi_positive")}
    twice = [row for row in range(len(batch)) if batch.query_texts.count(batch.query_texts[row]) > 1]
    kept = found["keep"]
    return {
        "twice": str(len(twice) // 2),
        "keep": decimal(kept.total),
        "merge": decimal(found["merge"].total),
        "multi": decimal(found["multi_positive"].total),
        "share": percent(float(kept.rows[twice, twice].mean())),
        "merged_share": percent(float(found["merge"].rows[twice, twice].mean())),
        "floor": decimal(float(np.log(2))),
    }


BATCH_SOFTMAX = (
    LabLesson(
        slug="in-batch-negatives",
        title="In-batch negatives",
        claim="In a batch of {pairs} pairs every query gets {negatives} wrong answers for nothing: the documents "
        "of the other pairs. Nobody had to label those {cells} cells.",
        move="Lower the temperature and watch each row make up its mind between its own document and the others.",
        question="If the encoder knew nothing and found all documents alike, how large would the loss be?",
        answer="Each of the {pairs} documents would get a probability of {blind_share}, and the loss would be the "
        "logarithm of {pairs}: {blind}. This batch starts at {loss}, so the encoder already knows something.",
        facts=in_batch_facts,
        link={"preset": "confusable", "symmetric": "0"},
        batch=confusable,
        settings=LabSettings(symmetric=False),
        panels=("similarity", "softmax"),
    ),
    LabLesson(
        slug="temperature",
        title="Temperature: too low, too high",
        claim="A low temperature listens to the hardest negative alone, a high one to all alike: of the {negatives} "
        "negatives of a row, {low_negatives} count at {low}, {usual_negatives} at {usual} and {high_negatives} at "
        "{high}.",
        move="Move the temperature from one end to the other and watch the orange cells of the gradient.",
        question="In the hardest row, row {row}, how much of the push goes to the one hardest negative?",
        answer="At {low} it takes {low_share} of the push on the negatives, at {usual} {usual_share}, at {high} only "
        "{high_share}. Too low, and one mislabelled neighbour decides; too high, and the hard ones teach no more "
        "than the rest.",
        facts=temperature_facts,
        link={"preset": "confusable"},
        batch=confusable,
    ),
    LabLesson(
        slug="normalization",
        title="Why normalise",
        claim="Without normalization length counts as similarity: document {longer}, made {stretch} times longer, is "
        "chosen by {raw_takes} of {pairs} queries; with l2, which compares directions, by {unit_takes}.",
        move="Switch the normalization and watch the column of document {longer}.",
        question="Column normalization scales each coordinate over the batch instead. Why does it want another "
        "temperature?",
        answer="Because its scores are of another size: at a temperature of one, cosines spread over {unit_spread}, "
        "column-normalised products over {columns_spread} (length) and {range_spread} (range). With l2 "
        "{unit_right} of {pairs} queries find their own document here, without it {raw_right}.",
        facts=normalization_facts,
        link={"preset": "confusable", "normalization": "none"},
        batch=stretched,
        settings=LabSettings(normalization="none"),
        controls=("normalization",),
    ),
    LabLesson(
        slug="symmetrization",
        title="Both directions",
        claim="One matrix asks two questions. Queries choosing documents gives L0 = {first}; documents choosing "
        "queries gives L1 = {second}. The symmetric loss answers both.",
        move="Switch Symmetric off and see which pushes vanish from the gradient; show the documents choosing.",
        question="For pair {pair} the two directions disagree most. Which side is surer of the other?",
        answer="The query gives its document a probability of {row}, the document its query {column}: the {surer} "
        "is the surer one. Without the second direction nobody would ask the documents.",
        facts=symmetric_facts,
        link={"preset": "confusable"},
        batch=confusable,
        controls=("symmetric",),
    ),
    LabLesson(
        slug="labelled-negatives",
        title="Labelled negatives",
        claim="A pair labelled negative asks nothing, but its document stays a choice for everyone. Here {positives} "
        "positive pairs meet {negatives} near misses, which take {taken} of the probability.",
        move="Switch the labelled negatives off and on: their rows and columns leave the batch.",
        question="Does the loss look better without them, and is that good news?",
        answer="It looks better: L0 falls from {kept} to {dropped}, and the right answers' probability rises from "
        "{own} to {own_dropped}. But only because the hardest choices are gone; the encoder would learn nothing "
        "about them.",
        facts=negatives_facts,
        link={"preset": "near_misses"},
        batch=near_misses,
        controls=("labelled_negatives",),
    ),
    LabLesson(
        slug="duplicates",
        title="Repeated texts are false negatives",
        claim="When a pair stands in the batch twice, its copy is counted as wrong though it is right: the {twice} "
        "doubled pairs give their own document {share} on average, and no training can bring that above one half.",
        move="Switch Repeated texts from keep to merge and to multi_positive, and watch the dotted cells.",
        question="How large does the loss of a doubled row stay, however good the encoder becomes?",
        answer="The logarithm of two, {floor}: the copy always takes as much as the original. Merged, a text counts "
        "once, and the share is {merged_share}. The loss of this batch is {keep} as it is, {merge} merged, and {multi} "
        "with the copies as further positives.",
        facts=duplicates_facts,
        link={"preset": "repeats"},
        batch=repeats,
        controls=("duplicates",),
    ),
)
