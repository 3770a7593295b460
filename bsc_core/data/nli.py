"""Natural language inference rows: premise groups, the anchors of the supervised contrastive loss, and added pairs.

A premise with its entailed hypothesis is an anchor with its positive. The paper's baseline adds to each of them a
negative under a class: a hypothesis of the same premise keeps its own, and one of another premise is neutral, which is
our choice where the paper says nothing.
"""

# N rows, E entailed rows, A added rows

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bsc_core.config import NLIConfig
from bsc_core.data.classes import NLI
from bsc_core.data.pairs import PairDataset
from bsc_core.data.splits import connected_queries
from bsc_core.data.stages import Stage, spread
from bsc_core.data.texts import Ids
from bsc_core.errors import DataError

Rows = npt.NDArray[np.int64]
ENTAILMENT, NEUTRAL = NLI.index("entailment"), NLI.index("neutral")
NO_CLASS = "the row has no class"
TRIES = 40  # draws for an added pair before it is left out, which happens where nearly all hypotheses are the premise's


def nli_rows(dataset: PairDataset, config: NLIConfig) -> tuple[PairDataset, tuple[Stage, ...]]:
    """The rows, with added pairs after them where the config says so, and how many there are of each kind.

    Raises DataError for rows without NLI's classes, and where none is entailed.
    """
    classes = _nli_classes(dataset)
    anchors = np.flatnonzero(classes == ENTAILMENT)
    if not len(anchors):
        raise DataError(
            f"{dataset.report.source}: no row is an entailment, and anchors are made of these; check the class column"
        )
    stages = [*_read_stages(dataset, classes), _anchor_stage(dataset, anchors)]
    if not config.augment:
        return dataset, tuple(stages)
    own, other = added_pairs(dataset, config)
    parts = [_pairs(dataset, *own, classes[own[1]]), _pairs(dataset, *other, np.full(len(other[0]), NEUTRAL))]
    stages.append(_stage("added with a hypothesis of the premise", parts[0], "under its own class"))
    stages.append(_stage("added with a hypothesis of another premise", parts[1], "as neutral"))
    whole = _joined(dataset, parts)
    stages.append(Stage("rows with those added", len(whole), (), f"{len(anchors):,} anchors, {config.negatives} each"))
    return whole, tuple(stages)


def added_pairs(dataset: PairDataset, config: NLIConfig) -> tuple[tuple[Rows, Rows], tuple[Rows, Rows]]:
    """Rows of the premise and of the hypothesis of each added pair: those of the same premise, and those of another.

    Each entailed row takes, by chance and without repeats, rows of its premise that are not entailed; what is missing
    of `negatives` comes from rows of other premises whose hypothesis is none of the premise's. A lone premise has none.
    Rows with one premise text or one premise id are of one premise.
    """
    generator = np.random.default_rng(config.seed)
    classes = _nli_classes(dataset)
    anchors = np.flatnonzero(classes == ENTAILMENT)
    premise = connected_queries(dataset).astype(np.int64)
    own = _of_the_premise(premise, anchors, classes != ENTAILMENT, config.negatives, generator)
    missing = config.negatives - np.bincount(own[0], minlength=len(dataset))[anchors]
    other = _of_other_premises(dataset, premise, np.repeat(anchors, missing), generator)
    return own, other


def _of_the_premise(
    premise: Rows, anchors: Rows, wanted: npt.NDArray[np.bool_], count: int, generator: np.random.Generator
) -> tuple[Rows, Rows]:
    """Up to `count` wanted rows of each anchor's premise: shuffled, and each anchor reads on from any of them."""
    pool = generator.permutation(np.flatnonzero(wanted))
    pool = pool[np.argsort(premise[pool], kind="stable")]  # by premise, shuffled inside
    start = np.searchsorted(premise[pool], premise[anchors], side="left")
    size = np.searchsorted(premise[pool], premise[anchors], side="right") - start
    taken = np.minimum(size, count)
    first = generator.integers(np.maximum(size, 1))
    row = np.repeat(np.arange(len(anchors)), taken)
    step = np.arange(len(row)) - np.repeat(np.cumsum(taken) - taken, taken)
    return anchors[row], pool[start[row] + (first[row] + step) % np.maximum(size[row], 1)]


def _of_other_premises(
    dataset: PairDataset, premise: Rows, anchors: Rows, generator: np.random.Generator
) -> tuple[Rows, Rows]:
    """For each anchor, which may be there often, a row of another premise; no hypothesis twice for a premise."""
    taken = np.unique(premise * len(dataset.texts) + dataset.document)  # the premise's own
    waiting, kept = anchors, []
    for _ in range(TRIES):
        if not len(waiting):
            break
        drawn = generator.integers(len(dataset), size=len(waiting))
        codes = premise[waiting] * len(dataset.texts) + dataset.document[drawn]
        first = np.zeros(len(codes), dtype=bool)
        first[np.unique(codes, return_index=True)[1]] = True
        good = first & ~np.isin(codes, taken)
        kept.append((waiting[good], drawn[good]))
        taken = np.union1d(taken, codes[good])
        waiting = waiting[~good]
    rows = np.concatenate([row for row, _ in kept]) if kept else np.empty(0, dtype=np.int64)
    drawn = np.concatenate([found for _, found in kept]) if kept else np.empty(0, dtype=np.int64)
    order = np.argsort(rows, kind="stable")
    return rows[order], drawn[order]


def _nli_classes(dataset: PairDataset) -> Ids:
    classes = dataset.classes
    if classes is None or dataset.class_names not in (NLI, None) or (len(classes) and int(classes.max()) >= len(NLI)):
        raise DataError(
            f"{dataset.report.source}: data.nli needs the classes {', '.join(NLI)}; name their column in "
            "data.columns.class_label"
        )
    return classes


def _pairs(dataset: PairDataset, premise_rows: Rows, hypothesis_rows: Rows, classes: npt.ArrayLike) -> PairDataset:
    rows = dataset.take(premise_rows)
    given = np.asarray(classes, dtype=np.int32)
    keys = dataset.document_key
    return replace(
        rows,
        document=dataset.document[hypothesis_rows],
        classes=given,
        label=None if rows.label is None else (given == ENTAILMENT).astype(np.float32),
        document_key=None if keys is None else tuple(keys[row] for row in hypothesis_rows.tolist()),
    )


def _joined(dataset: PairDataset, parts: list[PairDataset]) -> PairDataset:
    """The dataset's rows and then the parts', which lie on the same table."""
    every = [dataset, *parts]

    def column(name: str) -> npt.NDArray[np.int32]:
        return np.concatenate([getattr(part, name) for part in every])

    def names(name: str) -> tuple[str, ...] | None:
        columns = [getattr(part, name) for part in every]
        return None if columns[0] is None else tuple(value for one in columns for value in one)

    return replace(
        dataset,
        query=column("query"),
        document=column("document"),
        query_group=column("query_group"),
        line=column("line"),
        classes=column("classes"),
        negative=None if dataset.negative is None else column("negative"),
        label=None
        if dataset.label is None
        else np.concatenate([part.label for part in every if part.label is not None]),
        document_key=names("document_key"),
        split=names("split"),
    )


def _read_stages(dataset: PairDataset, classes: Ids) -> list[Stage]:
    report = dataset.report
    unlabelled = sum(rejection.reason == NO_CLASS for rejection in report.rejected)
    of_each = ", ".join(f"{name} {int((classes == number).sum()):,}" for number, name in enumerate(NLI))
    premises = np.unique(dataset.query_group, return_counts=True)[1]
    left_out = f"{unlabelled:,} of the file's rows without a class were left out"
    return [
        Stage("rows read", report.rows_read, (), left_out),
        _stage("training rows", dataset, of_each),
        Stage("premises", len(premises), (), f"{premises.mean():.1f} rows each, at most {premises.max():,}"),
    ]


def _anchor_stage(dataset: PairDataset, anchors: Rows) -> Stage:
    premises = len(np.unique(dataset.query_group[anchors]))
    return _stage("anchors", dataset.take(anchors), f"entailed rows, of {premises:,} premises")


def _stage(name: str, rows: PairDataset, note: str) -> Stage:
    few = spread(len(rows))
    classes = [] if rows.classes is None else [NLI[number] for number in rows.classes[few]]
    shown = zip(rows.texts.take(rows.query[few]), rows.texts.take(rows.document[few]), classes, strict=True)
    return Stage(name, len(rows), tuple(shown), note)
