"""Checks of the data of a run: leaks, labels, columns, truncation, repeated rows, and another distribution on dev."""

# U distinct texts

from __future__ import annotations

import json
from collections.abc import Iterator
from math import log

import numpy as np

from bsc_core.config import ContrastiveLossConfig, OnlineContrastiveLossConfig
from bsc_core.data import PairDataset
from bsc_core.data.quality.audit import RARE_SHARE, Severity
from bsc_core.data.quality.filters import duplicates
from bsc_core.data.text_quality import estimate_tokens
from bsc_core.diagnosis.findings import Evidence, Finding
from bsc_core.diagnosis.run_evidence import SEED, RunEvidence
from bsc_core.errors import RunError
from bsc_core.files import MAX_LARGE_DOCUMENT_BYTES, read_regular
from bsc_core.formatting import percent, plural, shorten
from bsc_core.neighbors import unit_rows
from bsc_core.runs.documents import FIRST_BATCH
from bsc_core.types import Ids, Indices

LEAKED_SHARE = 0.02  # a smaller share of pairs moves a metric in [0, 1] by at most 0.02, less than its usual interval
OPPOSITE_LABELS = -0.2  # agreement (2 AUC - 1): hard negatives make it small, reversed labels clearly negative
CLOSE_POSITIVES = 0.5  # advantage over random pairs (2 AUC - 1) with which pairs cannot be called dissimilar
RANDOM_SHARE = 0.5  # half of the pairs random; a smaller estimate may be a harder train split
CLEAR_SIGNAL = 0.3  # of the start encoder on dev, from which a missing signal on train is a contradiction
NO_SIGNAL = 0.1  # agreement of random labels is below this in most samples of a hundred pairs of each kind
MIN_PAIRS = 30  # of each kind; with fewer, the standard error of the agreement is above 0.15
LOST_SHARE = 0.5  # of tokens: more is cut off than is read
SWAPPED_SHARE = 0.5  # of the texts of a side that are on the other side in dev or the corpus
LENGTH_FACTOR = 2.0  # ratio of the median lengths of both sides, from which queries and documents are distinguishable
REPEATED_SHARE = 0.2  # of the rows, which then have more than a fifth of the weight
SAME_SPLIT_SHARE = 0.9  # of nearest neighbors from dev itself; 0.5 if train and dev have one distribution
SAMPLED_QUERIES = 500  # of each split: standard error of a share of 0.5 is 0.02

Findings = Iterator[Finding]


def leak(run: RunEvidence) -> Findings:
    """Pairs of dev and test that are training rows."""
    train = _pair_keys(run.train)
    shares = {
        split: float(np.isin(_pair_keys(rows.take(rows.positive)), train).mean())
        for split, rows in run.data.splits.items()
        if split != "train" and rows.positive.any()
    }
    split, share = max(shares.items(), key=lambda item: item[1], default=("dev", 0.0))
    if share >= LEAKED_SHARE:
        evidence = [
            Evidence(f"share of the positive {split} pairs in train", share, f"below {LEAKED_SHARE:g}")
            for split, share in shares.items()
        ]
        yield Finding(
            "leak",
            "error",
            f"{percent(share)} of the positive {split} pairs are also training rows, so {split} measures memory.",
            tuple(evidence),
            "Set data.filters to drop the leaked training rows, and do not compare with earlier results on this split.",
            {"data.filters": [*dict.fromkeys([*run.config.data.filters, "drop_leaks"])]},
        )


def loss_data(run: RunEvidence) -> Findings:
    """Losses whose labels are constant or lack negatives, and very rare labels."""
    if "labels" not in run.config.loss.needs:
        return
    name, train = run.config.loss.name, run.train
    share = float(train.positive.mean())
    evidence = (
        Evidence(
            "share of training rows with a label above the threshold", share, f"{RARE_SHARE:g} to {1 - RARE_SHARE:g}"
        ),
    )
    margin = any(isinstance(loss, ContrastiveLossConfig | OnlineContrastiveLossConfig) for loss in run.losses)
    constant = train.label is None or not np.ptp(train.label) > 0
    if constant or (margin and share == 1):
        what = "equal labels" if constant else "no negative pair"
        yield Finding(
            "loss_data",
            "error",
            f"The training rows have {what}, and {name} then only moves all texts in one direction.",
            evidence,
            'Set loss.name = "mnrl", which uses the other pairs of a batch as negatives, or add labeled negatives.',
            {"loss.name": "mnrl"},
        )
    elif margin and not RARE_SHARE <= share <= 1 - RARE_SHARE:
        yield Finding(
            "class_imbalance",
            "warning",
            f"{percent(share)} of the training rows are positive, so nearly all of the loss is from one kind of pair.",
            evidence,
            "Add rows of the rare kind, or set data.negatives to generate negatives.",
        )


def label_direction(run: RunEvidence) -> Findings:
    """Labels that decrease with similarity."""
    generated = run.config.data.negatives is not None or run.config.data.examples is not None
    if generated or not _has_both_kinds(run.train):  # hard negatives may be closer than positives
        return
    signal = run.label_signal(run.train)
    if signal > OPPOSITE_LABELS:
        return
    about = "rank agreement of labels and cosines before training (1: high labels have high cosines, -1: the opposite)"
    evidence = (Evidence(about, signal, f"above {OPPOSITE_LABELS:g}"),)
    closer = run.pair_signal(run.train)
    if closer < CLOSE_POSITIVES:
        yield Finding(
            "label_direction",
            "error",
            "Training labels are high where texts are dissimilar; they are probably distances, or reversed.",
            evidence,
            "Reverse the labels in the file (highest label - label), so that 1 means similar.",
        )
        return
    about = "pairs with high labels against random pairs (1: all are closer, 0: no difference, -1: all are farther)"
    yield Finding(
        "label_direction",
        "info" if run.state == "better" else "warning",
        "Training pairs with low labels are closer than those with high labels: either these negatives are meant to be "
        "hard, or the labels are reversed.",
        (*evidence, Evidence(about, closer, f"at least {CLOSE_POSITIVES:g}; with reversed labels, less")),
        "Read some pairs of both kinds. Reverse the labels in the file only if high labels mean dissimilar texts.",
    )


def labels_random(run: RunEvidence) -> Findings:
    """Training labels, or pairs, that the start encoder cannot distinguish from random ones."""
    train, dev = run.data.train, run.data.dev
    if min(len(train), len(dev)) < MIN_PAIRS or run.config.data.negatives is not None:
        return
    both_labeled = _has_both_kinds(train) and _has_both_kinds(dev)
    signal, what = (run.label_signal, "labels") if both_labeled else (run.pair_signal, "pairs")
    on_train, on_dev = signal(train), signal(dev)
    evidence = [
        Evidence(
            f"agreement of training {what} and cosines before training, -1 to 1", on_train, f"{on_dev:.2f} on dev"
        ),
    ]
    if on_train <= OPPOSITE_LABELS and both_labeled:
        return  # reported by label_direction
    share = 1 - on_train / on_dev if on_dev >= CLEAR_SIGNAL else 0.0
    severity: Severity = "error" if share >= RANDOM_SHARE else "warning"  # without a signal on dev, it is less certain
    if share >= RANDOM_SHARE:
        evidence.append(Evidence(f"estimated share of random {what}", min(share, 1.0), f"below {RANDOM_SHARE:g}"))
    elif max(abs(on_train), abs(on_dev)) < NO_SIGNAL and abs(after := signal(dev, when="after")) < NO_SIGNAL:
        evidence.append(Evidence(f"agreement of dev {what} and cosines after training", after, f"above {NO_SIGNAL:g}"))
    else:
        return
    yield Finding(
        "labels_random",
        severity,
        f"The training {what} look random: they do not agree with the similarity of their texts.",
        tuple(evidence),
        "Check that the columns belong to the same row, for example that no column was sorted or shuffled alone.",
    )


def swapped_columns(run: RunEvidence) -> Findings:
    """Queries and documents of train that are swapped in comparison with dev and the corpus."""
    train, dev, corpus = run.data.train, run.data.dev, run.data.corpus
    texts = np.asarray(train.texts.texts, dtype=object)
    documents = set(texts[dev.document if corpus is None else np.concatenate([dev.document, corpus.document])])
    shares = [np.mean([text in documents for text in texts[np.unique(ids)]]) for ids in (train.query, train.document)]
    ratios = [_length_ratio(rows) for rows in (train, dev)]
    opposite = ratios[0] * ratios[1] < 0 and min(map(abs, ratios)) >= log(LENGTH_FACTOR)
    if shares[0] - shares[1] >= SWAPPED_SHARE or opposite:
        yield Finding(
            "swapped_columns",
            "error",
            "Queries and documents of the training rows look swapped in comparison with dev.",
            (
                Evidence(
                    "share of training queries that are documents of dev or the corpus",
                    float(shares[0]),
                    f"{shares[1]:.2f} of training documents",
                ),
                Evidence(
                    "median length of documents / queries in train",
                    float(np.exp(ratios[0])),
                    f"{np.exp(ratios[1]):.2f} in dev",
                ),
            ),
            "Swap query and document in data.columns, or in the training file.",
        )


def truncation(run: RunEvidence) -> Findings:
    """Texts that are longer than the encoder reads."""
    limit, train = run.config.encoder.max_seq_length, run.train
    ids = np.concatenate(train.text_columns)
    tokens = estimate_tokens(train.texts)[ids].astype(np.float64)
    lost = float(np.maximum(tokens - limit, 0).sum() / tokens.sum())
    if lost < LOST_SHARE:
        return
    evidence = [Evidence("estimated share of tokens that are cut off", lost, f"below {LOST_SHARE:g}")]
    pairs = (run.run.read_json(FIRST_BATCH) or {}).get("pairs") or []
    cuts = [bool(value) for pair in pairs for name, value in pair.items() if name.endswith("_cut")]
    if cuts:
        evidence.append(
            Evidence("share of truncated texts in the first batch", float(np.mean(cuts)), "0 if all are read")
        )
    needed = int(min(8192, np.percentile(tokens, 95)))
    yield Finding(
        "truncation",
        "error",
        f"The encoder reads {limit} tokens of a text, and {percent(lost)} of the tokens are cut off.",
        tuple(evidence),
        f"Set encoder.max_seq_length to {needed}, which reads 95% of the texts completely.",
        {"encoder.max_seq_length": needed},
    )


def repeated_rows(run: RunEvidence) -> Findings:
    """Training rows that repeat another row."""
    if run.config.data.negatives is not None:  # which repeats positive rows on purpose
        return
    share = len(duplicates(run.train)) / len(run.train)
    if share >= REPEATED_SHARE:
        yield Finding(
            "repeated_rows",
            "info" if run.state == "better" else "warning",
            f"{percent(share)} of the training rows repeat another row.",
            (Evidence("share of repeated training rows", share, f"below {REPEATED_SHARE:g}"),),
            "Add drop_duplicates to data.filters.",
            {"data.filters": [*dict.fromkeys([*run.config.data.filters, "drop_duplicates"])]},
        )


def other_distribution(run: RunEvidence) -> Findings:
    """Dev queries whose neighbors are dev queries, not training queries (nearest-neighbor test, Schilling 1986)."""
    train, dev = (np.unique(rows.query) for rows in (run.data.train, run.data.dev))
    train, dev = np.setdiff1d(train, dev), np.setdiff1d(dev, train)
    count = min(len(train), len(dev), SAMPLED_QUERIES)
    if count < MIN_PAIRS:
        raise RunError(f"the smaller split has {plural(count, 'query', 'queries')}, and the test needs {MIN_PAIRS}")
    random = np.random.default_rng(SEED)
    vectors = unit_rows(run.vectors("before")[_chosen(random, dev, count)])
    others = unit_rows(run.vectors("before")[_chosen(random, train, count)])
    own = vectors @ vectors.T
    np.fill_diagonal(own, -np.inf)
    share = float(np.mean(own.max(axis=1) > (vectors @ others.T).max(axis=1)))
    if share >= SAME_SPLIT_SHARE:
        yield Finding(
            "other_distribution",
            "info" if run.state == "better" else "warning",
            "The training queries are from another distribution than the dev queries.",
            (Evidence("share of dev queries whose nearest query is in dev", share, "0.5 if both are from one source"),),
            "Train on rows like those of dev, or add some to the training file.",
        )


def prompts(run: RunEvidence) -> Findings:
    """Prompts of the model that the run does not use."""
    path = run.run.model_folder / "config_sentence_transformers.json"
    try:
        settings = dict(json.loads(read_regular(path, MAX_LARGE_DOCUMENT_BYTES)))
        unused = [name for name, text in dict(settings.get("prompts") or {}).items() if text]
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        raise RunError("the run has no model, or its settings are damaged") from None
    if unused and not run.config.encoder.has_prompts and not settings.get("default_prompt_name"):
        yield Finding(
            "prompts",
            "info" if run.state == "better" else "warning",
            f"The model has the prompts {shorten(', '.join(unused), 100)}, and the run uses none.",
            (Evidence("prompts of the model", float(len(unused)), "0 used by the run"),),
            "Set encoder.query_prompt and encoder.document_prompt to the prompts that the model was trained with.",
        )


def _has_both_kinds(rows: PairDataset) -> bool:
    """Return whether there are enough positive and negative rows to compare their cosines."""
    return min(int(rows.positive.sum()), int((~rows.positive).sum())) >= MIN_PAIRS


def _pair_keys(rows: PairDataset) -> Indices:
    """Return a number for each pair of texts, whatever their sides, (N,)."""
    low, high = np.minimum(rows.query, rows.document), np.maximum(rows.query, rows.document)
    return low.astype(np.int64) * len(rows.texts) + high


def _length_ratio(rows: PairDataset) -> float:
    """Return the logarithm of the median length of documents relative to that of queries."""
    query, document = (
        np.median([len(text) for text in rows.texts.take(np.unique(ids))]) for ids in rows.text_columns[:2]
    )
    return float(np.log(max(document, 1) / max(query, 1)))


def _chosen(random: np.random.Generator, ids: Ids, count: int) -> Ids:
    return np.sort(random.permutation(ids)[:count])
