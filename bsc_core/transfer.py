"""What an encoder is worth beyond its own task: probes, similarity, classes. The untrained one is always beside it."""

# N pairs or rows, U distinct texts, D dimensions, Q queries, B draws

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import EncoderConfig
from bsc_core.data import TextTable
from bsc_core.data.tables import read_table
from bsc_core.encoders import embed
from bsc_core.errors import ColumnError, DataError, PathError
from bsc_core.evaluation import (
    PROBE_TASKS,
    bootstrap_mean,
    compare,
    draw_pool,
    polarity_task,
    probe,
    read_probe_task,
    read_sts,
    sts_result,
    weighted_spearman,
)
from bsc_core.evaluation.bootstrap import FEWER_DRAWS, Interval, Statistic, draw_statistics
from bsc_core.evaluation.drawn_space import drawn_anisotropy, drawn_uniformity
from bsc_core.evaluation.drawn_values import DrawnValue, compare_drawn, drawn_average, drawn_mean
from bsc_core.evaluation.geometry import overlap_interval
from bsc_core.evaluation.polarity import WEIGHTS, K, PolarityScores
from bsc_core.evaluation.retrieval import Vectors, unit_rows
from bsc_core.evaluation.significance import Comparison
from bsc_core.evaluation.sts import StsTask
from bsc_core.evaluation.tradeoff import drawn_balance

Report = dict[str, Any]
Say = Callable[[str], object]
Encoders = tuple[EncoderConfig, EncoderConfig]
"""The one to measure, and the untrained one that stands beside it."""

SEED = 0
NEAREST = 10
STS_TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick")


def probe_report(
    encoders: Encoders, folder: Path | str, *, tasks: Sequence[str] = (), say: Say = lambda sentence: None
) -> Report:
    """Accuracy of SentEval's transfer tasks that lie below the folder, each with its interval, beside the untrained.

    tasks: some of PROBE_TASKS; none means all that are there. Returns model, untrained, `tasks` by name, and the
    average, which names its tasks. Raises PathError where none is there or a named one is not, DataError as `probe`.
    """
    files = {name: Path(folder) / file.path for name, file in PROBE_TASKS.items()}
    told, drawn = {}, []
    for name in _there(files, tasks, Path(folder)):
        say(f"{name}: encoding and fitting")
        task = read_probe_task(name, folder)
        after, before = (probe(task, vectors, seed=SEED) for vectors in _vectors(encoders, task.texts))
        found = compare(before.correct, after.correct, seed=SEED)
        told[name] = _told(after.interval(seed=SEED), before.accuracy, found)
        told[name] |= {"majority": after.majority, "measured": after.measured, "rows": len(after.rows)}
        drawn.append([drawn_mean(side.correct, seed=_own_seed(name, PROBE_TASKS)) for side in (after, before)])
    return _headed(encoders) | {"tasks": told, "average": _average(drawn, list(told), of="rows")}


def sts_report(
    encoders: Encoders, folder: Path | str, *, tasks: Sequence[str] = (), say: Say = lambda sentence: None
) -> Report:
    """Spearman of the similarity data sets below the folder, by subset and weighted by pairs, beside the untrained.

    `space` of each: how evenly its texts fill the space, and which neighbours training kept.

    tasks: some of STS_TASKS; none means all that are there. Of a file with parts its test rows count. Returns as
    `probe_report`, with the plain mean over tasks as the average. Raises PathError and DataError as it does.
    """
    files = {name: Path(folder) / name / "pairs.tsv.gz" for name in STS_TASKS}
    told, drawn = {}, []
    for name in _there(files, tasks, Path(folder)):
        say(f"{name}: encoding")
        parts = read_table(files[name]).columns.get("split", [])
        task = read_sts(files[name], split="test" if "test" in parts else None)
        vectors = _vectors(encoders, task.texts)
        cosines = [_cosines(own, task) for own in vectors]
        after, before = _drawn_spearman(cosines, task, seed=_own_seed(name, STS_TASKS))
        result = sts_result(cosines[0], task)
        told[name] = _compared(after, before) | {"pairs": len(task.scores), "subsets": dict(result.spearman)}
        told[name] |= {"space": _space(*vectors)}
        drawn.append([after, before])
    return _headed(encoders) | {"tasks": told, "average": _average(drawn, list(told))}


def polarity_report(encoders: Encoders, file: Path | str, *, k: int = K) -> Report:
    """Polarity, semantic similarity and their balance on classified sentences, with the untrained as the reference.

    file: columns text, label and split; sentences of `test`, or else of `dev`, search those of `train`, at most five
    times as many. Returns both with uniform and with the paper's linear weights. Raises ColumnError for a missing
    column, DataError for a missing part and as `polarity_task` does.
    """
    table = read_table(Path(file))
    missing = [column for column in ("text", "label", "split") if column not in table.names]
    if missing:
        raise ColumnError(f"{file}: there is no column {', '.join(missing)}; there are {', '.join(table.names)}")
    splits = np.asarray(table.columns["split"], dtype=object)
    part = "test" if (splits == "test").any() else "dev"
    queries, train = np.flatnonzero(splits == part), np.flatnonzero(splits == "train")
    if not len(queries) or not len(train):
        raise DataError(f"{file}: split must name sentences of train, and of test or dev, which search them")
    pool = train[draw_pool(len(train), len(queries))]
    texts, ids = TextTable.from_texts([table.columns["text"][row] for row in (*queries, *pool)])
    vectors = _vectors(encoders, texts)
    sides = [(found[ids[: len(queries)]], found[ids[len(queries) :]]) for found in vectors]
    classes = tuple([table.columns["label"][row] for row in rows] for rows in (queries, pool))
    told: Report = {"queries": len(queries), "queries_from": part, "pool": len(pool), "k": k}
    for weights in WEIGHTS:
        task = polarity_task(sides[1], (classes[0], classes[1]), k=k, weights=weights)
        told[weights] = _weighed(task.measure(*sides[0]))
    return _headed(encoders) | told | {"space": _space(*vectors)}


def _weighed(scores: PolarityScores) -> Report:
    kinds = {
        "polarity": (scores.polarity, scores.reference_polarity, scores.polarity_floor),
        "semantic": (scores.semantic, scores.reference_semantic, scores.semantic_floor),
    }
    told: Report = {}
    for name, (own, reference, floor) in kinds.items():
        found = compare(reference, own, seed=SEED)
        told[name] = _told(bootstrap_mean(own, seed=SEED), float(reference.mean()), found) | {"by_chance": floor}
    balances = drawn_balance(scores, seed=SEED)
    if balances is None:
        why = "not defined: the pool is of one class, or the untrained encoder finds all sentences alike"
        return told | {"balance": {"value": None, "interval": [None, None], "untrained": None, "difference": why}}
    return told | {"balance": _compared(*balances)}


def _there(files: dict[str, Path], wanted: Sequence[str], folder: Path) -> list[str]:
    """The names whose files are there, or those wanted. Raises PathError where one, or all, are not."""
    unknown = [name for name in wanted if name not in files]
    if unknown:
        raise DataError(f"{unknown[0]} is no task; choose some of {', '.join(files)}")
    found = [name for name in files if (name in wanted or not wanted) and files[name].is_file()]
    lacking = [name for name in wanted if name not in found]
    if lacking or not found:
        first = files[lacking[0] if lacking else next(iter(files))]
        raise PathError(f"{first}: there is no such file; name the folder that holds {first.relative_to(folder)}")
    return found


def _vectors(encoders: Encoders, texts: TextTable) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    after, before = (embed(encoder, texts) for encoder in encoders)
    return after, before


def _cosines(vectors: Vectors, task: StsTask) -> NDArray[np.float64]:
    units = unit_rows(np.asarray(vectors, dtype=np.float32))
    found: NDArray[np.float64] = np.einsum("nd,nd->n", units[task.left], units[task.right]).astype(np.float64)
    return found


def _drawn_spearman(
    cosines: Sequence[NDArray[np.float64]], task: StsTask, *, seed: int
) -> tuple[DrawnValue, DrawnValue]:
    """Spearman weighted by subset of two encoders, the pairs of one first sentence drawn together."""
    statistics = [_weighted(own, task) for own in cosines]
    whole, drawn = draw_statistics(statistics, task.left, FEWER_DRAWS, seed)
    columns = [None, None] if drawn is None else list(drawn.T)
    count = len(np.unique(task.left))
    one, two = (DrawnValue(float(value), own, count) for value, own in zip(whole, columns, strict=True))
    return one, two


def _weighted(cosines: NDArray[np.float64], task: StsTask) -> Statistic:
    subset = np.asarray(task.subset, dtype=object)

    def statistic(rows: NDArray[np.int64]) -> float:
        return weighted_spearman(cosines[rows], task.scores[rows], subset[rows].tolist()).weighted

    return statistic


def _space(after: Vectors, before: Vectors) -> Report:
    """Uniformity and mean cosine of the texts (U, D) by both, and the share of the nearest that they have in common."""
    told: Report = {}
    for name, measured, less in (
        ("uniformity", drawn_uniformity, "more even"),
        ("anisotropy", drawn_anisotropy, "lower"),
    ):
        own, untrained = measured(after, seed=SEED), measured(before, seed=SEED)
        told |= {name: None, f"{name}_untrained": None}
        if own is not None and untrained is not None:
            more = "less even" if name == "uniformity" else "higher"
            found = compare_drawn(untrained, own, seed=SEED)
            told |= {name: own.value, f"{name}_untrained": untrained.value}
            told[f"{name}_interval"] = [own.interval.low, own.interval.high]
            told[f"{name}_difference"] = found.sentence(more=more, less=less, of="texts")
    kept = overlap_interval(before, after, seed=SEED, k=min(NEAREST, len(after) - 1))
    return told | {"neighbours_kept": kept.value, "neighbours_kept_interval": [kept.low, kept.high]}


def _headed(encoders: Encoders) -> Report:
    return {"model": encoders[0].name, "untrained": encoders[1].name}


def _told(span: Interval, untrained: float, found: Comparison, *, of: str = "queries") -> Report:
    return {
        "value": span.value,
        "interval": [span.low, span.high],
        "untrained": untrained,
        "difference": found.sentence(of=of),
    }


def _compared(own: DrawnValue, untrained: DrawnValue, *, of: str = "queries") -> Report:
    return _told(own.interval, untrained.value, compare_drawn(untrained, own, seed=SEED), of=of)


def _average(drawn: Sequence[Sequence[DrawnValue]], tasks: Sequence[str], *, of: str = "queries") -> Report:
    """Of the model and the untrained one, by task."""
    own, untrained = (drawn_average(side) for side in zip(*drawn, strict=True))
    return _compared(own, untrained, of=of) | {"of": ", ".join(tasks)}


def _own_seed(name: str, tasks: Iterable[str]) -> int:
    """Other draws for each data set, so that their average is one of independent draws."""
    return SEED + list(tasks).index(name)
