"""Transfer evaluation of an encoder against its untrained baseline: probes, textual similarity and polarity."""

# N pairs or rows, U distinct texts, D dimensions, Q queries, B resamples

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bsc_core import formatting
from bsc_core.config import EncoderConfig
from bsc_core.data import TextTable
from bsc_core.data.io.tables import check_complete, read_table
from bsc_core.encoders import embed, embed_initial
from bsc_core.errors import ColumnError, DataError, PathError
from bsc_core.evaluation.metrics.polarity import WEIGHTS, K, PolarityScores, polarity_task, sample_pool
from bsc_core.evaluation.probes.probe import probe
from bsc_core.evaluation.probes.sts import StsTask, read_sts, sts_result
from bsc_core.evaluation.probes.tasks import PROBE_TASKS, read_probe_task
from bsc_core.evaluation.stats.bootstrap import Interval, bootstrap_mean
from bsc_core.evaluation.stats.bootstrap_pairs import ScoredPairs, pair_weights
from bsc_core.evaluation.stats.bootstrap_values import (
    BootstrapValue,
    average_values,
    bootstrap_anisotropy,
    bootstrap_balance,
    bootstrap_uniformity,
    bootstrap_value,
    compare_values,
    overlap_interval,
)
from bsc_core.evaluation.stats.significance import Comparison, compare
from bsc_core.neighbors import paired_cosines
from bsc_core.types import Numbers, Vectors

Report = dict[str, Any]
Say = Callable[[str], object]
Encoders = tuple[EncoderConfig, EncoderConfig]
"""The encoder to evaluate, and the untrained encoder as its baseline."""

SEED = 0
NEAREST = 10
STS_TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick")


def probe_report(
    encoders: Encoders,
    folder: Path | str,
    *,
    tasks: Sequence[str] = (),
    run_seed: int = 0,
    say: Say = lambda sentence: None,
) -> Report:
    """Evaluate an encoder and its baseline on SentEval's transfer tasks.

    Args:
        encoders: the encoder and the untrained baseline.
        folder: the folder with the task files.
        tasks: names from PROBE_TASKS; by default all tasks in the folder.
        run_seed: seed of the run that started from the baseline, for its re-initialized layers.
        say: called with the progress.

    Returns:
        model, untrained, `tasks` by name with accuracy and interval, and `average` with the names of its tasks.

    Raises:
        PathError: A requested task, or every task, is missing from the folder.
        DataError: A task is unknown, or cannot be evaluated by `probe`.
    """
    files = {name: Path(folder) / file.path for name, file in PROBE_TASKS.items()}
    reports, values = {}, []
    for name in _available(files, tasks, Path(folder)):
        say(f"{name}: encoding and fitting")
        task = read_probe_task(name, folder)
        after, before = (probe(task, vectors, seed=SEED) for vectors in _vectors(encoders, task.texts, run_seed))
        result = compare(before.correct, after.correct, seed=SEED)
        reports[name] = _report(after.interval(seed=SEED), before.accuracy, result)
        reports[name] |= {"majority": after.majority, "measured": after.split, "rows": len(after.rows)}
        values.append([bootstrap_value(side.correct, seed=_task_seed(name, PROBE_TASKS)) for side in (after, before)])
    return _header(encoders) | {"tasks": reports, "average": _average(values, list(reports), of="rows")}


def sts_report(
    encoders: Encoders,
    folder: Path | str,
    *,
    tasks: Sequence[str] = (),
    run_seed: int = 0,
    say: Say = lambda sentence: None,
) -> Report:
    """Evaluate an encoder and its baseline on semantic textual similarity datasets.

    Each task has Spearman by subset and weighted by pairs, and `space`: uniformity, anisotropy and neighbor overlap. If
    a file has splits, its test rows are used. Arguments and errors as in `probe_report`, with names from STS_TASKS;
    `average` is the unweighted mean over tasks.
    """
    files = {name: Path(folder) / name / "pairs.tsv.gz" for name in STS_TASKS}
    reports, values = {}, []
    for name in _available(files, tasks, Path(folder)):
        say(f"{name}: encoding")
        splits = read_table(files[name]).columns.get("split", [])
        task = read_sts(files[name], split="test" if "test" in splits else None)
        vectors = _vectors(encoders, task.texts, run_seed)
        cosines = [paired_cosines(side[task.left], side[task.right]) for side in vectors]
        after, before = _bootstrap_spearman(cosines, task, seed=_task_seed(name, STS_TASKS))
        subsets = dict(sts_result(cosines[0], task).spearman)
        reports[name] = _compare(after, before) | {"pairs": len(task.scores), "subsets": subsets}
        reports[name] |= {"space": _space(*vectors)}
        values.append([after, before])
    return _header(encoders) | {"tasks": reports, "average": _average(values, list(reports))}


def polarity_report(encoders: Encoders, file: Path | str, *, k: int = K, run_seed: int = 0) -> Report:
    """Evaluate polarity, semantic similarity and their balance, with the untrained encoder as the reference.

    The sentences of `test`, or else of `dev`, are queries; the pool is sampled from `train` with at most five sentences
    per query.

    Args:
        encoders: the encoder and the untrained baseline.
        file: a file with the columns text, label and split; rows without a text or a label are left out.
        k: number of neighbors.
        run_seed: seed of the run that started from the baseline, for its re-initialized layers.

    Returns:
        The results for uniform and for the paper's linear weights.

    Raises:
        ColumnError: A column is missing.
        DataError: A split is missing, or `polarity_task` refuses the data.
    """
    table = read_table(Path(file))
    missing = [column for column in ("text", "label", "split") if column not in table.names]
    if missing:
        raise ColumnError(f"{file}: there is no column {', '.join(missing)}; there are {', '.join(table.names)}")
    check_complete(table)
    labels = [label.strip() for label in table.columns["label"]]
    texts_and_labels = zip(table.columns["text"], labels, strict=True)
    complete = np.array([label != "" and text.strip() != "" for text, label in texts_and_labels])
    splits = np.where(complete, np.asarray([part.strip() for part in table.columns["split"]], dtype=object), "")
    split = "test" if (splits == "test").any() else "dev"
    queries, train = np.flatnonzero(splits == split), np.flatnonzero(splits == "train")
    if not len(queries) or not len(train):
        raise DataError(
            f"{file}: column split has no rows of train, or none of test or dev; label the sentences to search 'train' "
            "and the query sentences 'test' or 'dev'"
        )
    pool = train[sample_pool(len(train), len(queries))]
    texts, ids = TextTable.from_texts([table.columns["text"][row] for row in (*queries, *pool)])
    vectors = _vectors(encoders, texts, run_seed)
    sides = [(side[ids[: len(queries)]], side[ids[len(queries) :]]) for side in vectors]
    classes = tuple([labels[row] for row in rows] for rows in (queries, pool))
    report: Report = {"queries": len(queries), "queries_from": split, "pool": len(pool), "k": k}
    if not complete.all():
        report["left_out"] = int((~complete).sum())
    for weights in WEIGHTS:
        task = polarity_task(sides[1], (classes[0], classes[1]), k=k, weights=weights)
        report[weights] = _polarity(task.evaluate(*sides[0]))
    return _header(encoders) | report | {"space": _space(*vectors)}


def _polarity(scores: PolarityScores) -> Report:
    report: Report = {}
    for name, values, reference, floor in (
        ("polarity", scores.polarity, scores.reference_polarity, scores.polarity_floor),
        ("semantic", scores.semantic, scores.reference_semantic, scores.semantic_floor),
    ):
        result = compare(reference, values, seed=SEED)
        report[name] = _report(bootstrap_mean(values, seed=SEED), float(reference.mean()), result)
        report[name] |= {"by_chance": floor}
    balances = bootstrap_balance(scores, seed=SEED)
    if balances is None:
        reason = "not defined: the pool is of one class, or all sentences are equally similar for the untrained encoder"
        return report | {"balance": {"value": None, "interval": [None, None], "untrained": None, "difference": reason}}
    return report | {"balance": _compare(*balances)}


def _available(files: dict[str, Path], wanted: Sequence[str], folder: Path) -> list[str]:
    """Return the names whose files exist, restricted to `wanted` if given.

    Raises DataError for an unknown name, PathError if a wanted file, or every file, is missing.
    """
    unknown = [name for name in wanted if name not in files]
    if unknown:
        raise DataError(f"{unknown[0]} is not a task; choose some of {', '.join(files)}")
    available = [name for name in files if (name in wanted or not wanted) and files[name].is_file()]
    missing = [name for name in wanted if name not in available]
    if missing or not available:
        first = files[missing[0] if missing else next(iter(files))]
        raise PathError(f"{first}: there is no such file; name the folder that contains {first.relative_to(folder)}")
    return available


def _vectors(encoders: Encoders, texts: TextTable, run_seed: int) -> tuple[Vectors, Vectors]:
    after, before = encoders
    return embed(after, texts), embed_initial(before, texts, run_seed)


def _bootstrap_spearman(cosines: Sequence[Numbers], task: StsTask, *, seed: int) -> list[BootstrapValue]:
    """Return Spearman weighted by subset of two encoders; pairs with the same first sentence are resampled together."""
    subset = np.asarray(task.subset, dtype=object)
    parts = [subset == name for name in dict.fromkeys(task.subset)]
    pairs = [[ScoredPairs(side[rows], task.scores[rows]) for rows in parts] for side in cosines]
    resamples: list[list[Numbers]] = [[] for _ in cosines]
    for weights in pair_weights(task.left, seed):
        for blocks, side in zip(resamples, pairs, strict=True):
            sums = [
                weights[:, rows].sum(axis=1) * part.resampled("spearman", weights[:, rows])
                for rows, part in zip(parts, side, strict=True)
            ]
            blocks.append(sum(sums) / weights.sum(axis=1))
    return [
        BootstrapValue(
            sts_result(side, task).weighted, np.concatenate(blocks) if blocks else None, len(np.unique(task.left))
        )
        for side, blocks in zip(cosines, resamples, strict=True)
    ]


def _space(after: Vectors, before: Vectors) -> Report:
    """Compare uniformity and anisotropy of the texts (U, D), and their neighbor overlap."""
    report: Report = {}
    for name, bootstrap, more, less in (
        ("uniformity", bootstrap_uniformity, "less even", "more even"),
        ("anisotropy", bootstrap_anisotropy, "higher", "lower"),
    ):
        value, untrained = bootstrap(after, seed=SEED), bootstrap(before, seed=SEED)
        report |= {name: None, f"{name}_untrained": None}
        if value is not None and untrained is not None:
            result = compare_values(untrained, value, seed=SEED)
            report |= {name: value.value, f"{name}_untrained": untrained.value}
            report[f"{name}_interval"] = [value.interval.low, value.interval.high]
            report[f"{name}_difference"] = result.sentence(more=more, less=less, of="texts")
    if len(after) < 2:
        return report | {"neighbors_kept": None}
    overlap = overlap_interval(before, after, seed=SEED, k=min(NEAREST, len(after) - 1))
    return report | {"neighbors_kept": overlap.value, "neighbors_kept_interval": [overlap.low, overlap.high]}


def _header(encoders: Encoders) -> Report:
    layers = encoders[1].reinit_layers
    random = f", upper {formatting.plural(layers, 'layer')} re-initialized" if layers else ""
    return {"model": encoders[0].name, "untrained": f"{encoders[1].name}{random}"}


def _report(value: Interval, untrained: float, result: Comparison, *, of: str = "queries") -> Report:
    return {
        "value": value.value,
        "interval": [value.low, value.high],
        "untrained": untrained,
        "difference": result.sentence(of=of),
    }


def _compare(value: BootstrapValue, untrained: BootstrapValue, *, of: str = "queries") -> Report:
    return _report(value.interval, untrained.value, compare_values(untrained, value, seed=SEED), of=of)


def _average(values: Sequence[Sequence[BootstrapValue]], tasks: Sequence[str], *, of: str = "queries") -> Report:
    """Return the average over tasks of the model and of the baseline."""
    model, untrained = (average_values(side) for side in zip(*values, strict=True))
    return _compare(model, untrained, of=of) | {"of": ", ".join(tasks)}


def _task_seed(name: str, tasks: Iterable[str]) -> int:
    """Return a different seed for each dataset, so that their resamples are independent."""
    return SEED + list(tasks).index(name)
