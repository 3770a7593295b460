"""Training examples from classified sentences: an anchor beside its nearest neighbours (the paper on margins).

Arrays in, pairs out: the neighbours are found elsewhere. An example is a place among the choices of its anchor, so that
those that a cap or a target leaves out are never made.
"""

# N sentences, K neighbours of each, M examples

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bsc_core.config import ExamplesConfig
from bsc_core.data.drawing import draw_examples
from bsc_core.data.pairs import PairDataset, query_groups
from bsc_core.data.plain import one_contains_the_other, plain
from bsc_core.data.sentences import Sentences
from bsc_core.data.stages import Stage, spread
from bsc_core.data.texts import Ids
from bsc_core.errors import ConfigError, DataError

__all__ = ["Neighbours", "Stage", "least_similarity", "make_examples", "repeats"]

Mask = npt.NDArray[np.bool_]
Similarities = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

MOST_EXAMPLES = 10_000_000


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest other sentences of each sentence, nearest first.

    ids: (N, K) row numbers of sentences, -1 where there are fewer; similarity: (N, K) cosines; kept: (N, K) which of
    them are left; note: what is to be known of the search.
    """

    ids: Ids
    similarity: Similarities
    kept: Mask
    note: str = ""

    @classmethod
    def of(cls, ids: npt.ArrayLike, similarity: npt.ArrayLike, note: str = "") -> Neighbours:
        """All that were found, each row sorted by falling similarity; an id of -1 says that there is none."""
        found = np.asarray(ids, dtype=np.int32)
        scores = np.where(found >= 0, np.asarray(similarity, dtype=np.float32), -np.inf)
        order = np.argsort(-scores, axis=1, kind="stable")
        sorted_ids = np.take_along_axis(found, order, axis=1)
        return cls(sorted_ids, np.take_along_axis(scores, order, axis=1).astype(np.float32), sorted_ids >= 0, note)

    def left(self, passed: Mask) -> Neighbours:
        """Those that are left and pass. passed: (N, K)."""
        return replace(self, kept=self.kept & passed)


def make_examples(
    sentences: Sentences, neighbours: Neighbours, config: ExamplesConfig, *, threshold: float = 0.5, part: str = "train"
) -> tuple[PairDataset, tuple[Stage, ...]]:
    """M examples, by anchor and then by nearness, and how many were left at each step.

    triplets: every neighbour of the anchor's class beside every one of another class. pairs: every neighbour, labelled
    1 for the anchor's class and 0 for another. same_class: the former alone. Raises DataError where nothing is left,
    and ConfigError for a target above what there is in `train`; in other parts it is a limit.
    """
    source = f"{sentences.report.source}, {part}"
    _check_classes(sentences, config, source)
    stages = [_sentence_stage(sentences), _stage("neighbours", sentences, neighbours, _missing(neighbours))]
    if not neighbours.kept.any():
        raise DataError(f"{source}: {len(sentences)} sentence has no neighbour; give more sentences")
    least = least_similarity(neighbours, config)
    passing = neighbours.left(neighbours.similarity >= least)
    note = "" if np.isneginf(least) else f"cosine of at least {least:.3f}"
    stages.append(_stage("above the threshold", sentences, passing, note))
    if not passing.kept.any():
        highest = float(neighbours.similarity.max())
        raise DataError(
            f"{source}: no neighbour reaches a cosine of {least:g}, the nearest has {highest:.3f}; "
            "lower data.examples.min_similarity"
        )
    distinct = passing.left(~repeats(sentences, passing)) if config.distinct else passing
    stages.append(_stage("distinct", sentences, distinct, "" if config.distinct else "repeats are kept"))
    if not distinct.kept.any():
        raise DataError(
            f"{source}: every neighbour repeats its anchor, contains it or is contained in it; "
            "give sentences that differ, or set data.examples.distinct = false"
        )
    return _drawn(sentences, distinct, config, stages=stages, threshold=threshold, part=part)


def least_similarity(neighbours: Neighbours, config: ExamplesConfig) -> float:
    """The cosine that a neighbour must reach: the config's number, or a percentile of all that were found, or -inf."""
    if config.min_percentile is not None:
        return float(np.percentile(neighbours.similarity[neighbours.kept], config.min_percentile))
    return -np.inf if config.min_similarity is None else float(np.float32(config.min_similarity))


def repeats(sentences: Sentences, neighbours: Neighbours) -> Mask:
    """(N, K) which neighbours repeat their anchor's words, hold them or are held in them, or repeat a nearer neighbour.

    A nearer neighbour counts where it has the same words and the same class. Places without a neighbour are false.
    """
    texts = [plain(text) for text in sentences.texts]
    found = np.zeros(neighbours.ids.shape, dtype=bool)
    anchors, places = np.nonzero(neighbours.kept)
    others = neighbours.ids[anchors, places]
    held = one_contains_the_other(texts, sentences.text[anchors], sentences.text[others])
    found[anchors, places] = held
    numbers = np.unique(np.asarray(texts, dtype=object), return_inverse=True)[1]
    words = numbers[sentences.text[others]].astype(np.int64)
    again = _seen_before(anchors, words * (int(sentences.classes.max()) + 1) + sentences.classes[others])
    found[anchors[again], places[again]] = True
    return found


def _seen_before(anchors: Rows, codes: Rows) -> Mask:
    """Which entries have the anchor and the code of an earlier one."""
    order = np.lexsort((np.arange(len(codes)), codes, anchors))
    same = (np.diff(anchors[order]) == 0) & (np.diff(codes[order]) == 0)
    seen = np.zeros(len(codes), dtype=bool)
    seen[order[1:][same]] = True
    return seen


@dataclass(frozen=True, eq=False)
class _Choices:
    """The examples that each anchor can make, numbered from 0: those of its class lie before the others.

    same, other: (N, K) rows of sentences, the kept ones first; counts: (N,) of examples.
    """

    kind: str
    same: Ids
    other: Ids
    same_counts: Rows
    other_counts: Rows

    @property
    def counts(self) -> Rows:
        if self.kind == "triplets":
            return self.same_counts * self.other_counts
        return self.same_counts + (self.other_counts if self.kind == "pairs" else 0)

    def rows(self, anchors: Rows, places: Rows) -> tuple[Ids, Ids]:
        """(M,) first and second sentence beside the anchor; the second is the first where there is but one."""
        if self.kind == "triplets":
            width = self.other_counts[anchors]
            return self.same[anchors, places // width], self.other[anchors, places % width]
        later = places - self.same_counts[anchors]
        first = np.where(
            later < 0,
            self.same[anchors, np.minimum(places, self.same.shape[1] - 1)],
            self.other[anchors, np.maximum(later, 0)],
        )
        return first, first


def _choices(sentences: Sentences, neighbours: Neighbours, kind: str) -> _Choices:
    alike = sentences.classes[neighbours.ids] == sentences.classes[:, None]  # (N, K)
    sides = []
    for chosen in (neighbours.kept & alike, neighbours.kept & ~alike):
        order = np.argsort(~chosen, axis=1, kind="stable")  # the chosen first, nearest first
        sides.append((np.take_along_axis(neighbours.ids, order, axis=1), chosen.sum(axis=1, dtype=np.int64)))
    (same, same_counts), (other, other_counts) = sides
    return _Choices(kind, same, other, same_counts, other_counts)


def _drawn(
    sentences: Sentences,
    neighbours: Neighbours,
    config: ExamplesConfig,
    *,
    stages: list[Stage],
    threshold: float,
    part: str,
) -> tuple[PairDataset, tuple[Stage, ...]]:
    choices = _choices(sentences, neighbours, config.kind)
    source, counts = f"{sentences.report.source}, {part}", choices.counts
    if not counts.any():
        raise DataError(
            f"{source}: no anchor has {_what_lacks(config.kind)} among its neighbours; raise data.examples.neighbours "
            f"or lower the least similarity{_wider(config)}"
        )
    made_of_all = int(np.minimum(counts, config.cap).sum() if config.cap else counts.sum())
    if config.target is None and made_of_all > MOST_EXAMPLES:
        raise DataError(
            f"{source}: {made_of_all:,} examples would be made, and {MOST_EXAMPLES:,} are the most; set "
            "data.examples.cap or data.examples.target, or lower data.examples.neighbours"
        )
    drawn = draw_examples(counts, cap=config.cap, target=config.target, generator=np.random.default_rng(config.seed))
    if config.target is not None and part == "train" and drawn.after_cap < config.target:
        raise ConfigError(
            f"data.examples.target is {config.target:,} and {drawn.after_cap:,} examples can be made of {source}; "
            "lower it, or raise data.examples.neighbours or the cap"
        )
    made = _dataset(sentences, choices, drawn.anchors, drawn.places, threshold)
    anchors = int((counts > 0).sum())
    notes = {
        "examples": f"of {anchors:,} anchors",
        "after the cap": f"at most {config.cap:,} of an anchor" if config.cap else "no cap",
        "after the target": f"{len(made):,} of them by chance" if len(made) < drawn.after_cap else "all of them",
    }
    shown = {
        "examples": drawn.spread_all(counts),
        "after the cap": drawn.spread_capped(),
        "after the target": (drawn.anchors[spread(len(made))], drawn.places[spread(len(made))]),
    }
    numbers = {"examples": int(counts.sum()), "after the cap": drawn.after_cap, "after the target": len(made)}
    for name, (rows, places) in shown.items():
        few = _dataset(sentences, choices, rows, places, threshold)
        stages.append(Stage(name, numbers[name], _texts_of(few), notes[name]))
    return made, tuple(stages)


def _dataset(sentences: Sentences, choices: _Choices, anchors: Rows, places: Rows, threshold: float) -> PairDataset:
    first, second = choices.rows(anchors, places)
    label = None
    if choices.kind == "pairs":
        label = (sentences.classes[first] == sentences.classes[anchors]).astype(np.float32)
    query = sentences.text[anchors]
    return PairDataset(
        texts=sentences.texts,
        query=query,
        document=sentences.text[first],
        label=label,
        query_group=query_groups(query, None),
        document_key=None,
        line=sentences.line[anchors],
        split=None,
        threshold=threshold,
        report=sentences.report,
        negative=sentences.text[second] if choices.kind == "triplets" else None,
    )


def _check_classes(sentences: Sentences, config: ExamplesConfig, source: str) -> None:
    if not len(sentences):
        raise DataError(f"{source}: there are no sentences; give rows with a text and a class")
    if config.kind != "same_class" and len(np.unique(sentences.classes)) == 1:
        raise DataError(
            f"{source}: all sentences are of class {sentences.class_name(0)!r}, and {config.kind} need two; "
            'name another class column, or set data.examples.kind = "same_class"'
        )


def _wider(config: ExamplesConfig) -> str:
    return ', or set data.examples.neighbours_of = "each_class"' if config.neighbours_of == "all" else ""


def _what_lacks(kind: str) -> str:
    return "one of its class and one of another" if kind == "triplets" else "one of its class"


def _missing(neighbours: Neighbours) -> str:
    short = int((~neighbours.kept).any(axis=1).sum())
    fewer = f"{short:,} sentences have fewer than were asked for" if short else ""
    return "; ".join(part for part in (neighbours.note, fewer) if part)


def _sentence_stage(sentences: Sentences) -> Stage:
    shown = tuple(
        (sentences.texts[int(sentences.text[row])], sentences.class_name(row)) for row in spread(len(sentences))
    )
    distinct = len(np.unique(sentences.text))
    classes = len(np.unique(sentences.classes))
    return Stage("sentences", len(sentences), shown, f"{distinct:,} distinct texts, {classes:,} classes")


def _stage(name: str, sentences: Sentences, neighbours: Neighbours, note: str) -> Stage:
    """A stage of neighbours: anchor, neighbour, cosine, and whether they are of one class."""
    anchors, places = np.nonzero(neighbours.kept)
    shown = []
    for place in spread(len(anchors)):
        row, other = int(anchors[place]), int(neighbours.ids[anchors[place], places[place]])
        alike = "same class" if sentences.classes[row] == sentences.classes[other] else "another class"
        cosine = f"{neighbours.similarity[row, places[place]]:.3f}"
        shown.append((*sentences.texts.take(sentences.text[[row, other]]), cosine, alike))
    return Stage(name, len(anchors), tuple(shown), note)


def _texts_of(few: PairDataset) -> tuple[tuple[str, ...], ...]:
    columns = [few.texts.take(column) for column in few.text_columns]
    if few.label is not None:
        columns.append([f"{label:g}" for label in few.label])
    return tuple(zip(*columns, strict=True))
