"""Training examples from classified sentences: an anchor with its nearest neighbors (margins paper).

The neighbor search is in `bsc_core.preparation.generate`. The possible examples of an anchor are
numbered, so those that a cap or a target excludes are never built.
"""

# N sentences, K neighbors of each, M examples

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bsc_core.config import ExamplesConfig
from bsc_core.data.dataset import PairDataset, Stage, query_groups, spread
from bsc_core.data.generation.sampling import sample_examples
from bsc_core.data.text_normalization import normalize_text, one_contains_the_other
from bsc_core.errors import ConfigError, DataError
from bsc_core.types import Ids, Indices, Mask, Vectors

MAX_EXAMPLES = 10_000_000


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest other sentences of each sentence, nearest first.

    ids: (N, K) row numbers of sentences, -1 where there are fewer; similarity: (N, K) cosines; mask: (N, K) whether a
    neighbor is left after filtering; note: how approximate the search was.
    """

    ids: Ids
    similarity: Vectors
    mask: Mask
    note: str = ""

    @classmethod
    def from_ids(cls, ids: npt.ArrayLike, similarity: npt.ArrayLike, note: str = "") -> Neighbors:
        """Sort the neighbors of each row by falling similarity; an id of -1 means none."""
        rows = np.asarray(ids, dtype=np.int32)
        scores = np.where(rows >= 0, np.asarray(similarity, dtype=np.float32), -np.inf)
        order = np.argsort(-scores, axis=1, kind="stable")
        sorted_ids = np.take_along_axis(rows, order, axis=1)
        return cls(sorted_ids, np.take_along_axis(scores, order, axis=1).astype(np.float32), sorted_ids >= 0, note)

    def where(self, passed: Mask) -> Neighbors:
        """Return the neighbors that also pass.

        Args:
            passed: bool (N, K), true for neighbors that pass.
        """
        return replace(self, mask=self.mask & passed)


def generate_examples(
    sentences: PairDataset, neighbors: Neighbors, config: ExamplesConfig, *, split: str = "train"
) -> tuple[PairDataset, tuple[Stage, ...]]:
    """Return M examples, ordered by anchor and then by similarity, and the counts after each stage.

    Kinds: "triplets" combine every neighbor of the anchor's class with every one of another class; "pairs" are every
    neighbor, labeled 1 for the anchor's class and 0 for another; "same_class" are only those labeled 1.

    The sentences are paired with themselves. The target must be reached in the split "train" and is a limit in others.

    Raises:
        DataError: No example is left.
        ConfigError: The target exceeds the examples of "train".
    """
    source = f"{sentences.report.source}, {split}"
    if not len(sentences):
        raise DataError(f"{source}: there are no sentences; give rows with a text and a class")
    classes = len(np.unique(sentences.class_ids))
    if config.kind != "same_class" and classes == 1:
        raise DataError(
            f"{source}: all sentences are of class {sentences.class_name(0)!r}, and {config.kind} need two; "
            'name another class column, or set data.examples.kind = "same_class"'
        )
    few = spread(len(sentences))
    shown = zip(sentences.texts.take(sentences.query[few]), map(sentences.class_name, few), strict=True)
    note = f"{len(np.unique(sentences.query)):,} distinct texts, {classes:,} classes"
    stages = [
        Stage("sentences", len(sentences), tuple(shown), note),
        _stage("neighbors", sentences, neighbors, _missing(neighbors)),
    ]
    if not neighbors.mask.any():
        raise DataError(f"{source}: {len(sentences)} sentence has no neighbor; give more sentences")
    minimum = similarity_threshold(neighbors, config)
    passing = neighbors.where(neighbors.similarity >= minimum)
    note = "" if np.isneginf(minimum) else f"cosine of at least {minimum:.3f}"
    stages.append(_stage("above the threshold", sentences, passing, note))
    if not passing.mask.any():
        highest = float(neighbors.similarity.max())
        raise DataError(
            f"{source}: no neighbor reaches a cosine of {minimum:g}, the nearest has {highest:.3f}; "
            "lower data.examples.min_similarity"
        )
    distinct = passing.where(~repeats(sentences, passing)) if config.distinct else passing
    stages.append(_stage("distinct", sentences, distinct, "" if config.distinct else "with repeats"))
    if not distinct.mask.any():
        raise DataError(
            f"{source}: every neighbor repeats its anchor, contains it or is contained in it; "
            "give sentences that differ, or set data.examples.distinct = false"
        )
    examples, sampling_stages = _sample(sentences, distinct, config, split)
    return examples, (*stages, *sampling_stages)


def similarity_threshold(neighbors: Neighbors, config: ExamplesConfig) -> float:
    """Return the minimum cosine of a neighbor: the configured one, a percentile of all neighbors, or -inf."""
    if config.min_percentile is not None:
        return float(np.percentile(neighbors.similarity[neighbors.mask], config.min_percentile))
    return -np.inf if config.min_similarity is None else float(np.float32(config.min_similarity))


def repeats(sentences: PairDataset, neighbors: Neighbors) -> Mask:
    """Return (N, K) which neighbors contain their anchor's words, are contained in it, or repeat a closer neighbor.

    A neighbor repeats a closer one that has the same words and the same class.
    """
    texts = [normalize_text(text) for text in sentences.texts]
    repeated = np.zeros(neighbors.ids.shape, dtype=bool)
    anchors, columns = np.nonzero(neighbors.mask)
    others = neighbors.ids[anchors, columns]
    repeated[anchors, columns] = one_contains_the_other(texts, sentences.query[anchors], sentences.query[others])
    numbers = np.unique(np.asarray(texts, dtype=object), return_inverse=True)[1]
    text_ids = numbers[sentences.query[others]].astype(np.int64)
    codes = text_ids * (int(sentences.class_ids.max()) + 1) + sentences.class_ids[others]
    is_repeat = np.ones(len(codes), dtype=bool)
    is_repeat[np.unique(anchors * (int(codes.max(initial=0)) + 1) + codes, return_index=True)[1]] = False
    repeated[anchors[is_repeat], columns[is_repeat]] = True
    return repeated


@dataclass(frozen=True, eq=False)
class _Choices:
    """The possible examples of each anchor, numbered from 0: those of its class come first.

    same, other: (N, K) rows of sentences, the valid ones first; same_counts, other_counts: (N,) numbers of valid ones.
    """

    kind: str
    same: Ids
    other: Ids
    same_counts: Indices
    other_counts: Indices

    @classmethod
    def from_neighbors(cls, sentences: PairDataset, neighbors: Neighbors, kind: str) -> _Choices:
        same_class = sentences.class_ids[neighbors.ids] == sentences.class_ids[:, None]  # (N, K)
        sides = []
        for chosen in (neighbors.mask & same_class, neighbors.mask & ~same_class):
            order = np.argsort(~chosen, axis=1, kind="stable")  # the chosen first, nearest first
            sides.append((np.take_along_axis(neighbors.ids, order, axis=1), chosen.sum(axis=1, dtype=np.int64)))
        (same, same_counts), (other, other_counts) = sides
        return cls(kind, same, other, same_counts, other_counts)

    @property
    def counts(self) -> Indices:
        if self.kind == "triplets":
            return self.same_counts * self.other_counts
        return self.same_counts + (self.other_counts if self.kind == "pairs" else 0)

    def rows(self, anchors: Indices, numbers: Indices) -> tuple[Ids, Ids]:
        """Return (M,) rows of the document and of the negative of each example; equal unless they are triplets."""
        if self.kind == "triplets":
            width = self.other_counts[anchors]
            return self.same[anchors, numbers // width], self.other[anchors, numbers % width]
        later = numbers - self.same_counts[anchors]
        first = np.where(
            later < 0,
            self.same[anchors, np.minimum(numbers, self.same.shape[1] - 1)],
            self.other[anchors, np.maximum(later, 0)],
        )
        return first, first


def _sample(
    sentences: PairDataset, neighbors: Neighbors, config: ExamplesConfig, split: str
) -> tuple[PairDataset, list[Stage]]:
    choices = _Choices.from_neighbors(sentences, neighbors, config.kind)
    source, counts = f"{sentences.report.source}, {split}", choices.counts
    if not counts.any():
        other = " and one of another" if config.kind == "triplets" else ""
        raise DataError(
            f"{source}: no anchor has a neighbor of its class{other}; "
            "raise data.examples.neighbors or lower data.examples.min_similarity"
            + (', or set data.examples.neighbors_of = "each_class"' if config.neighbors_of == "all" else "")
        )
    total = int(np.minimum(counts, config.cap).sum() if config.cap else counts.sum())
    table = len(counts) * min(config.cap or 0, int(counts.max()))  # of the examples among which are sampled
    if (number := max(min(total, config.target or total), table)) > MAX_EXAMPLES:
        raise DataError(
            f"{source}: {number:,} examples exceed the limit of {MAX_EXAMPLES:,}; lower "
            "data.examples.cap, data.examples.target or data.examples.neighbors"
        )
    sampled = sample_examples(
        counts, cap=config.cap, target=config.target, generator=np.random.default_rng(config.seed)
    )
    if config.target is not None and split == "train" and sampled.after_cap < config.target:
        raise ConfigError(
            f"data.examples.target is {config.target:,} and {source} gives {sampled.after_cap:,} examples; "
            "lower data.examples.target, or raise data.examples.neighbors or data.examples.cap"
        )
    examples = _dataset(sentences, choices, sampled.anchors, sampled.indices)

    def shown(anchors: Indices, numbers: Indices) -> tuple[tuple[str, ...], ...]:
        return _dataset(sentences, choices, anchors, numbers).examples()

    cap_note = f"at most {config.cap:,} of an anchor" if config.cap else "no cap"
    target_note = f"{len(examples):,} of them sampled" if len(examples) < sampled.after_cap else "all of them"
    total_note = f"of {int((counts > 0).sum()):,} anchors"
    return examples, [
        Stage("examples", int(counts.sum()), shown(*sampled.spread_all(counts)), total_note),
        Stage("limited per anchor", sampled.after_cap, shown(*sampled.spread_capped()), cap_note),
        Stage("sampled", len(examples), examples.examples(), target_note),
    ]


def _dataset(sentences: PairDataset, choices: _Choices, anchors: Indices, numbers: Indices) -> PairDataset:
    first, second = choices.rows(anchors, numbers)
    label = None
    if choices.kind == "pairs":
        label = (sentences.class_ids[first] == sentences.class_ids[anchors]).astype(np.float32)
    return replace(
        sentences.take(anchors),
        document=sentences.query[first],
        negative=sentences.query[second] if choices.kind == "triplets" else None,
        label=label,
        query_group=query_groups(sentences.query[anchors], None),
        split=None,
        classes=None,
        class_names=None,
    )


def _missing(neighbors: Neighbors) -> str:
    short = int((~neighbors.mask).any(axis=1).sum())
    fewer = f"{short:,} sentences have fewer neighbors than data.examples.neighbors" if short else ""
    return "; ".join(filter(None, (neighbors.note, fewer)))


def _stage(name: str, sentences: PairDataset, neighbors: Neighbors, note: str) -> Stage:
    """Return a stage with examples of anchor, neighbor, cosine, and whether they are of one class."""
    anchors, columns = np.nonzero(neighbors.mask)
    shown = []
    for number in spread(len(anchors)):
        row, other = int(anchors[number]), int(neighbors.ids[anchors[number], columns[number]])
        relation = "same class" if sentences.class_ids[row] == sentences.class_ids[other] else "another class"
        cosine = f"{neighbors.similarity[row, columns[number]]:.3f}"
        shown.append((*sentences.texts.take(sentences.query[[row, other]]), cosine, relation))
    return Stage(name, len(anchors), tuple(shown), note)
