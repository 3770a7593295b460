"""Natural language inference rows: anchors of the supervised contrastive loss (SCL), and added pairs.

A premise is an anchor, and its entailed hypothesis the positive. The paper's baseline adds a negative with a class to
each: a hypothesis of the same premise has its class; one of another premise is neutral here (the paper does not say).
"""

# N rows, E entailed rows, A added rows

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bsc_core.config import NLIConfig
from bsc_core.data.dataset import PairDataset, Stage, concatenate_rows, spread
from bsc_core.data.schema.classes import NLI, NO_CLASS
from bsc_core.data.splits import connected_queries
from bsc_core.errors import DataError
from bsc_core.types import Ids, Indices, Mask

ENTAILMENT, NEUTRAL = NLI.index("entailment"), NLI.index("neutral")
TRIES = 40  # random rows tried for an added pair, which is left out if none is usable


def nli_rows(dataset: PairDataset, config: NLIConfig) -> tuple[PairDataset, tuple[Stage, ...]]:
    """Return the rows, followed by added pairs if the config requests them, and the counts after each stage.

    Raises:
        DataError: The rows have no NLI classes, or none is an entailment.
    """
    classes = _nli_classes(dataset)
    anchors = np.flatnonzero(classes == ENTAILMENT)
    if not len(anchors):
        raise DataError(
            f"{dataset.report.source}: no row is an entailment, so there are no anchors; check the class column"
        )
    stages = _row_stages(dataset, classes, anchors)
    if not config.augment:
        return dataset, stages
    within, across = added_pairs(dataset, config)
    added = [_pairs(dataset, *within, classes[within[1]]), _pairs(dataset, *across, np.full(len(across[0]), NEUTRAL))]
    rows = concatenate_rows([dataset, *added])
    return rows, (
        *stages,
        _stage("added with a hypothesis of the premise", added[0], "with its class"),
        _stage("added with a hypothesis of another premise", added[1], "as neutral"),
        Stage("rows with added pairs", len(rows), (), f"{len(anchors):,} anchors, {config.negatives} each"),
    )


def added_pairs(dataset: PairDataset, config: NLIConfig) -> tuple[tuple[Indices, Indices], tuple[Indices, Indices]]:
    """Return the premise row and hypothesis row of each added pair: within a premise, and across premises.

    Each entailed row gets randomly chosen rows of its premise that are not entailed, without repeats, and then, up to
    `config.negatives`, rows of other premises whose hypothesis the premise does not have. Rows that share a premise
    text or id are of one premise.
    """
    generator = np.random.default_rng(config.seed)
    classes = _nli_classes(dataset)
    anchors = np.flatnonzero(classes == ENTAILMENT)
    premise = connected_queries(dataset).astype(np.int64)
    within = _within_premise(premise, anchors, classes != ENTAILMENT, config.negatives, generator)
    missing = config.negatives - np.bincount(within[0], minlength=len(dataset))[anchors]
    across = _across_premises(dataset, premise, np.repeat(anchors, missing), generator)
    return within, across


def _within_premise(
    premise: Indices, anchors: Indices, wanted: Mask, count: int, generator: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return up to `count` wanted rows of each anchor's premise, shuffled, starting at a random one for each anchor."""
    pool = generator.permutation(np.flatnonzero(wanted))
    pool = pool[np.argsort(premise[pool], kind="stable")]  # by premise, shuffled within
    start = np.searchsorted(premise[pool], premise[anchors], side="left")
    size = np.searchsorted(premise[pool], premise[anchors], side="right") - start
    taken = np.minimum(size, count)
    first = generator.integers(np.maximum(size, 1))
    row = np.repeat(np.arange(len(anchors)), taken)
    step = np.arange(len(row)) - np.repeat(np.cumsum(taken) - taken, taken)
    return anchors[row], pool[start[row] + (first[row] + step) % np.maximum(size[row], 1)]


def _across_premises(
    dataset: PairDataset, premise: Indices, anchors: Indices, generator: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return a row of another premise for each anchor (anchors may repeat), no hypothesis twice for a premise."""
    taken = np.unique(premise * len(dataset.texts) + dataset.document)  # the premise's hypotheses
    waiting, accepted = anchors, []
    for _ in range(TRIES):
        if not len(waiting):
            break
        sampled = generator.integers(len(dataset), size=len(waiting))
        codes = premise[waiting] * len(dataset.texts) + dataset.document[sampled]
        first = np.zeros(len(codes), dtype=bool)
        first[np.unique(codes, return_index=True)[1]] = True
        good = first & ~np.isin(codes, taken)
        accepted.append((waiting[good], sampled[good]))
        taken = np.union1d(taken, codes[good])
        waiting = waiting[~good]
    none = np.empty(0, dtype=np.int64)
    rows = np.concatenate([none, *(row for row, _ in accepted)])
    hypotheses = np.concatenate([none, *(row for _, row in accepted)])
    order = np.argsort(rows, kind="stable")
    return rows[order], hypotheses[order]


def _nli_classes(dataset: PairDataset) -> Ids:
    classes = dataset.classes
    if classes is None or dataset.class_names not in (NLI, None) or (len(classes) and int(classes.max()) >= len(NLI)):
        raise DataError(
            f"{dataset.report.source}: data.nli needs the classes {', '.join(NLI)}; name their column in "
            "data.columns.class_label"
        )
    return classes


def _pairs(
    dataset: PairDataset, premise_rows: Indices, hypothesis_rows: Indices, classes: npt.ArrayLike
) -> PairDataset:
    rows = dataset.take(premise_rows)
    class_ids = np.asarray(classes, dtype=np.int32)
    keys = dataset.document_key
    return replace(
        rows,
        document=dataset.document[hypothesis_rows],
        classes=class_ids,
        label=None if rows.label is None else (class_ids == ENTAILMENT).astype(np.float32),
        document_key=None if keys is None else tuple(keys[row] for row in hypothesis_rows.tolist()),
    )


def _row_stages(dataset: PairDataset, classes: Ids, anchors: Indices) -> tuple[Stage, ...]:
    report = dataset.report
    unlabeled = sum(rejection.reason == NO_CLASS for rejection in report.rejected)
    counts = ", ".join(f"{name} {int((classes == number).sum()):,}" for number, name in enumerate(NLI))
    sizes = np.unique(dataset.query_group, return_counts=True)[1]
    premises = len(np.unique(dataset.query_group[anchors]))
    note = f"{unlabeled:,} of the file's rows have no class and were left out"
    return (
        Stage("rows read", report.rows_read, (), note),
        _stage("training rows", dataset, counts),
        Stage("premises", len(sizes), (), f"{sizes.mean():.1f} rows each, at most {sizes.max():,}"),
        _stage("anchors", dataset.take(anchors), f"entailed rows, of {premises:,} premises"),
    )


def _stage(name: str, rows: PairDataset, note: str) -> Stage:
    few = spread(len(rows))
    classes = [] if rows.classes is None else [NLI[number] for number in rows.classes[few]]
    shown = zip(rows.texts.take(rows.query[few]), rows.texts.take(rows.document[few]), classes, strict=True)
    return Stage(name, len(rows), tuple(shown), note)
