"""Checks of the training of a run: negatives, temperature, batch, learning rate, forgetting, overfitting, noise."""

# B rows of a batch, K negatives of a query, A anchors, D dimensions

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from bsc_core.batching.collisions import KnownPairs
from bsc_core.batching.likely_false_negatives import Reason, likely_false_negatives
from bsc_core.config import BSCLossConfig, DirectedSection
from bsc_core.config.losses import HIGHEST_TEMPERATURE, LOWEST_TEMPERATURE
from bsc_core.diagnosis.findings import Evidence, Finding
from bsc_core.diagnosis.run_evidence import MAX_PAIRS, MAX_ROWS, SEED, RunEvidence
from bsc_core.errors import RunError
from bsc_core.evaluation.comparison import HIGHEST
from bsc_core.evaluation.metrics.geometry import anisotropy, sample_vectors
from bsc_core.formatting import metric, metric_name, percent, signed
from bsc_core.run_results import WHEN
from bsc_core.runs.documents import BEST_EPOCH, GENERAL, GENERAL_SCORE
from bsc_core.types import Ids, Matrix, Numbers

MIN_NEGATIVES = 8  # fewer always leave most of the gradient on one negative
ONE_NEGATIVE = 0.99  # share of the gradient on one negative, with which the others do not count
MOST_ANCHORS = 0.75  # of the anchors; temperature 0.005, below any usual one, has two thirds
FLAT = 0.99  # effective share of the negatives; temperature 0.5, the largest usual one, has 0.985
BOUND_FACTOR = 1.02  # distance to a bound of the learned temperature that rounding explains
SOLVED = 0.9  # in-batch accuracy before training, with which nine of ten anchors have little gradient
USUAL_BATCH = 32  # smallest usual batch of in-batch losses; SimCSE and SBERT use 64 and more
EMPTY_SHARE = 0.1  # of the rows, whose loss is then 0
COLLIDING_SHARE = 0.1  # of the anchors; each of them is pushed away from a right document in every batch
DIVERGED = 3.0  # standard errors by which the last losses exceed the first; chance reaches them once in 700 runs
END_SHARE = 0.2  # of the steps at each end whose losses are averaged
MIN_END_STEPS = 5  # at each end; with fewer, the standard error is itself uncertain
COLLAPSED = 0.9  # mean cosine of two random texts; pretrained encoders have up to 0.6 (Ethayarajh 2019)
COLLAPSE_RISE = 0.3  # of that mean, since some encoders start high
USUAL_RATE, USUAL_STATIC_RATE = 3e-5, 1e-3  # of transformers and static vectors
TURNED = 0.3  # median cosine of a text with itself before training; usual fine-tuning stays above 0.6
UNCHANGED = 0.999  # the same where nothing was learned: an angle of 2.6 degrees
FORGOTTEN = 0.03  # of the general score: its paired noise with 560 queries is about 0.025
LENGTH_VARIATION = 0.1  # of vectors: a tenth of a dot product is then length, which the cosine ignores
LEARNED = 0.9  # ratio of the training losses of the last and the best epoch, from which training went on

Findings = Iterator[Finding]


class _InBatch:
    """The softmax of the first batches with the vectors before training."""

    def __init__(self, run: RunEvidence, loss: DirectedSection) -> None:
        self.run, self.loss, self.temperature = run, loss, loss.temperature

    def accuracy(self, batches: list[Ids]) -> float:
        """Return the share of anchors whose document is closer than every negative."""
        hits = [positive > negatives.max(axis=1) for positive, negatives in self._scores(batches)]
        return float(np.concatenate(hits).mean())

    @cached_property
    def weights(self) -> list[Matrix]:
        """(A, K) share of each anchor's gradient on each of its negatives, by batch."""
        result = []
        for _, negatives in self._scores(self.run.batches):
            logits = negatives / self.temperature
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            result.append(powers / powers.sum(axis=1, keepdims=True))
        return result

    @property
    def negatives(self) -> float:
        """Median number of negatives of an anchor."""
        return float(np.median([weights.shape[1] for weights in self.weights]))

    def _scores(self, batches: list[Ids]) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield the scores of the positives (A,) and of the negatives (A, K); known positives have score -inf."""
        train, vectors = self.run.train, self.run.vectors("before")
        known, scored = KnownPairs(train), False
        for rows in batches:
            anchors = train.positive[rows]
            documents = train.document[rows]
            if self.loss.takes_negatives and train.negative is not None:
                documents = np.concatenate([documents, train.negative[rows]])
            scores = self._similarities(vectors[train.query[rows]], vectors[documents])[anchors]  # (A, B + K)
            positive = scores[np.arange(len(scores)), np.flatnonzero(anchors)]
            scores[:, : len(rows)][known.collisions(rows)[anchors]] = -np.inf
            keep = np.ones(scores.shape, dtype=bool)
            keep[np.arange(len(scores)), np.flatnonzero(anchors)] = False
            negatives = scores[keep].reshape(len(scores), scores.shape[1] - 1)
            usable = np.isfinite(negatives).any(axis=1)
            if usable.any():
                scored = True
                yield positive[usable], negatives[usable]
        if not scored:
            raise RunError("no query of the first batches has a negative")

    def _similarities(self, queries: Any, documents: Any) -> Matrix:
        import torch

        from bsc_core.losses.kernel.normalization import NORMALIZATIONS

        normalize = NORMALIZATIONS[getattr(self.loss, "normalization", "l2")]
        left, right = (
            normalize(torch.from_numpy(np.array(side, dtype=np.float32)), False) for side in (queries, documents)
        )
        return np.asarray((left @ right.T).numpy())


def _in_batch(run: RunEvidence) -> _InBatch | None:
    """Return the in-batch softmax of a run; None if its loss has none."""
    losses = [loss for loss in run.losses if isinstance(loss, DirectedSection)]
    return _InBatch(run, losses[0]) if losses else None


def mask(run: RunEvidence) -> Findings:
    """A false-negative mask that removes all negatives of many rows, whose loss is then 0."""
    counts = [float(row.get("loss_rows_without_negatives") or 0) for row in run.steps]
    mean, size = float(np.mean(counts)), run.config.training.batch_size
    if mean >= EMPTY_SHARE * size:
        yield Finding(
            "mask",
            "info" if run.state == "better" else "error",
            f"The mask excludes all negatives of {percent(mean / size)} of the rows, whose loss is then 0.",
            (Evidence("rows without negatives in a batch", mean, f"batches of {size}, below {percent(EMPTY_SHARE)}"),),
            'Set loss.mask_margin lower, or loss.mask = "none".',
            {"loss.mask": "none"},
        )


def false_negatives(run: RunEvidence) -> Findings:
    """Anchors whose batch contains another right document, counted as a negative."""
    batch = _in_batch(run)
    if batch is None or getattr(batch.loss, "duplicates", "keep") != "keep" or batch.loss.mask != "none":
        return
    train, vectors = run.train, run.vectors("before")
    colliding: set[int] = set()
    anchors = 0
    for rows in run.batches:
        anchors += int(train.positive[rows].sum())
        likely = likely_false_negatives(train, vectors, rows, top=len(rows) ** 2)
        colliding |= {one.query_row for one in likely if one.reasons != (Reason.CLOSER,)}
    share = len(colliding) / max(1, anchors)
    if share < COLLIDING_SHARE:
        return
    yield Finding(
        "false_negatives",
        "error",
        f"{percent(share)} of the queries have another right document in their batch, which the loss pushes away.",
        (
            Evidence(
                "share of queries with a likely false negative in their batch", share, f"below {COLLIDING_SHARE:g}"
            ),
        ),
        'Set batching.no_duplicates = true; for nearly equal texts, set loss.mask = "self" too.',
        {"batching.no_duplicates": True},
    )


def temperature(run: RunEvidence) -> Findings:
    """Temperatures that leave the gradient on one negative, or spread it evenly."""
    batch = _in_batch(run)
    if batch is None or batch.negatives < MIN_NEGATIVES:
        return
    hardest = np.concatenate([weights.max(axis=1) for weights in batch.weights])
    on_one = float(np.mean(hardest >= ONE_NEGATIVE))
    flat = float(np.median(np.concatenate([_effective_share(weights) for weights in batch.weights])))
    tau = batch.temperature
    if on_one >= MOST_ANCHORS:
        yield Finding(
            "temperature_low",
            "error",
            f"The temperature {tau:g} is too low: the gradient of nearly every query is on a single negative.",
            (
                Evidence(
                    f"share of queries with {ONE_NEGATIVE:.0%} of the gradient on one negative",
                    on_one,
                    f"below {MOST_ANCHORS:g}",
                ),
            ),
            "Set loss.temperature to 0.05, the default of sentence-transformers.",
            {"loss.temperature": 0.05},
        )
    elif flat >= FLAT:
        count = batch.negatives
        highest = float(1 / (1 + count * np.exp(-1 / tau)))
        usual = 0.05 if getattr(batch.loss, "normalization", "l2") == "l2" else 1.0
        yield Finding(
            "temperature_high",
            "error",
            f"The temperature {tau:g} is too high: hard and easy negatives have the same weight.",
            (
                Evidence("effective share of the negatives in the gradient", flat, f"below {FLAT:g}"),
                Evidence("probability of the positive if it has cosine 1 and the negatives 0", highest, "near 1"),
            ),
            f"Set loss.temperature to {usual:g}.",
            {"loss.temperature": usual},
        )


def temperature_bound(run: RunEvidence) -> Findings:
    """A learned temperature that ends at its bound."""
    if not any(getattr(loss, "learn_temperature", False) for loss in run.losses):
        return
    last = run.steps[-1].get("temperature")
    if last is None:
        raise RunError("the run logged no temperature")
    for bound in (LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE):
        if bound / BOUND_FACTOR <= last <= bound * BOUND_FACTOR:
            yield Finding(
                "temperature_bound",
                "warning",
                f"The learned temperature ended at its bound {bound:g}.",
                (
                    Evidence(
                        "temperature of the last step",
                        float(last),
                        f"{LOWEST_TEMPERATURE:g} to {HIGHEST_TEMPERATURE:g}",
                    ),
                ),
                "Set loss.learn_temperature = false and loss.temperature = 0.05.",
                {"loss.learn_temperature": False, "loss.temperature": 0.05},
            )


def batch_small(run: RunEvidence) -> Findings:
    """Batches whose few negatives are distinguished before training."""
    batch, size = _in_batch(run), run.config.training.batch_size
    if batch is None or batch.negatives >= MIN_NEGATIVES:
        return
    accuracy = batch.accuracy(run.batches)
    if accuracy < SOLVED:
        return
    order = np.random.default_rng(SEED).permutation(len(run.train))[:MAX_ROWS]
    larger = batch.accuracy(np.array_split(order, max(1, len(order) // USUAL_BATCH)))
    yield Finding(
        "batch_small",
        "error",
        f"Batches of {size} are too small: the start encoder already solves {percent(accuracy)} of the in-batch tasks.",
        (
            Evidence("in-batch accuracy before training", accuracy, f"{larger:.2f} in batches of {USUAL_BATCH}"),
            Evidence("negatives of a query", batch.negatives, f"at least {MIN_NEGATIVES}"),
        ),
        f"Set training.batch_size to {USUAL_BATCH} or more; training.micro_tokens bounds the memory.",
        {"training.batch_size": USUAL_BATCH},
    )


def normalization(run: RunEvidence) -> Findings:
    """Dot products of vectors with different lengths, while metrics compare cosines."""
    if not any(isinstance(loss, BSCLossConfig) and loss.normalization == "none" for loss in run.losses):
        return
    lengths = np.linalg.norm(sample_vectors(run.vectors("after"), MAX_PAIRS, SEED), axis=1)
    variation = float(lengths.std() / max(lengths.mean(), 1e-9))
    if variation >= LENGTH_VARIATION:
        yield Finding(
            "normalization",
            "info" if run.state == "better" else "warning",
            "The loss trains dot products, and the metrics compare cosines.",
            (
                Evidence(
                    "standard deviation / mean of the lengths of vectors", variation, f"below {LENGTH_VARIATION:g}"
                ),
            ),
            'Set loss.normalization = "l2" and loss.temperature = 0.05.',
            {"loss.normalization": "l2", "loss.temperature": 0.05},
        )


def learning_rate_high(run: RunEvidence) -> Findings:
    """Losses that grow or are not finite, and vectors that collapse or lose their start."""
    rate = run.config.training.learning_rate
    losses, evidence = run.step_losses, []
    error = run.run.status().error or ""
    if not np.isfinite(losses).all() or "the loss is" in error or "the gradient is" in error:
        evidence.append(Evidence("steps with a finite loss", float(np.isfinite(losses).sum()), f"{len(losses)} logged"))
    else:
        ends = int(len(losses) * END_SHARE)
        first, last = losses[:ends], losses[len(losses) - ends :]
        if ends >= MIN_END_STEPS:
            error_of_difference = np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / ends)
            if last.mean() - first.mean() > DIVERGED * error_of_difference:
                what = f"{first.mean():.3g} of the first"
                evidence.append(Evidence(f"mean loss of the last {ends} steps", float(last.mean()), what))
    if run.run.embeddings("before") is not None and run.run.embeddings("after") is not None:
        start, end = (anisotropy(sample_vectors(run.vectors(when), MAX_PAIRS, SEED)) or 0.0 for when in WHEN)
        if end >= COLLAPSED and end - start >= COLLAPSE_RISE:
            evidence.append(Evidence("mean cosine of random texts after training", end, f"{start:.2f} before"))
        kept = run.unchanged
        if kept <= TURNED and run.state == "worse":
            what = "median cosine of a training text after and before training"
            evidence.append(Evidence(what, kept, f"above {TURNED:g}"))
    if evidence:
        lower = min(rate / 10, USUAL_STATIC_RATE if run.config.encoder.name == "static" else USUAL_RATE)
        yield Finding(
            "learning_rate_high",
            "error",
            f"The learning rate {rate:g} is too high: training destroyed what the encoder could do.",
            tuple(evidence),
            f"Set training.learning_rate to {lower:g}, or lower.",
            {"training.learning_rate": lower},
        )


def learning_rate_low(run: RunEvidence) -> Findings:
    """Vectors that training hardly changed."""
    kept, rate = run.unchanged, run.config.training.learning_rate
    if kept >= UNCHANGED:
        yield Finding(
            "learning_rate_low",
            "error",
            f"Training changed hardly anything: the learning rate {rate:g} is too low, or the steps are too few.",
            (
                Evidence("median cosine of a training text after and before training", kept, f"below {UNCHANGED:g}"),
                Evidence("training steps", float(run.run.status().step), "at least 100 are usual"),
            ),
            f"Set training.learning_rate to {rate * 10:g}, or train for more epochs.",
            {"training.learning_rate": rate * 10},
        )


def forgetting(run: RunEvidence) -> Findings:
    """General score that training lowered."""
    scores = run.run.evaluation(GENERAL)
    before, after = ((scores.get(name) or {}).get(GENERAL_SCORE) for name in ("before", "after"))
    if before is None or after is None:
        raise RunError("the run has no general score; set evaluation.general = true in the next run")
    if before - after >= FORGOTTEN:
        rate, change = run.config.training.learning_rate, run.comparison.difference.value
        is_merged = run.config.training.merges or run.config.encoder.reinit_layers > 0  # or cannot be
        yield Finding(
            "forgetting",
            "warning",
            "Training lost general abilities of the encoder that this data does not exercise.",
            (
                Evidence("general score after training", after, f"{metric(before)} before"),
                Evidence(f"change of {run.metric} on {run.split}", change, "above 0 is a gain"),
            ),
            f"Set training.merge_with_start to 0.5, or training.learning_rate to {rate / 3:.2g}, or add general pairs.",
            {"training.learning_rate": rate / 3} if is_merged else {"training.merge_with_start": 0.5},
        )


def overfitting(run: RunEvidence) -> Findings:
    """Dev metric that falls after its best epoch while the training loss falls."""
    values = run.dev_by_epoch
    if len(values) < 2:
        return
    last, stored = max(values), run.run.read_json(BEST_EPOCH) or {}
    best = stored.get("epoch") or max(values, key=lambda epoch: values[epoch])
    interval = run.compare("dev").difference
    noise = 0.0 if interval.low is None or interval.high is None else (interval.high - interval.low) / 2
    losses = {epoch: _epoch_loss(run, epoch) for epoch in (best, last)}
    if best < last and values[best] - values[last] > noise and losses[last] < LEARNED * losses[best]:
        yield Finding(
            "overfitting",
            "warning",
            f"The run overfits: dev was best after epoch {best} and fell while the training loss fell too.",
            (
                Evidence(
                    f"{run.metric} on dev after epoch {last}",
                    values[last],
                    f"{metric(values[best])} after epoch {best}",
                ),
                Evidence("mean training loss of the last epoch", losses[last], f"{losses[best]:.3g} of epoch {best}"),
                Evidence("training rows", float(len(run.train)), "more rows delay overfitting"),
            ),
            f"Set training.epochs to {best} and training.early_stopping_patience to 2, or add training rows.",
            {"training.epochs": best, "training.max_steps": None, "training.early_stopping_patience": 2},
        )


def highest_metric(run: RunEvidence) -> Findings:
    """A metric that training cannot increase, because it was at its maximum before."""
    rows = "queries" if run.comparison.wins is not None else "pairs"
    value = run.run.evaluation("before")[run.split][run.metric]
    if value is not None and value >= HIGHEST:
        yield Finding(
            "highest_metric",
            "info",
            f"{metric_name(run.metric)} on {run.split} is {metric(value)} before training: it cannot increase.",
            (
                Evidence(f"{run.metric} before training", value, f"below {HIGHEST}"),
                Evidence(f"{run.split} {rows}", float(run.comparison.queries), "with more, the metric is lower"),
            ),
            f"Evaluate on more {run.split} {rows}, or add a corpus (data.corpus), so that each query searches more "
            "documents.",
        )


def noise(run: RunEvidence) -> Findings:
    """Differences that the number of test pairs does not resolve."""
    difference, before = run.comparison.difference, run.run.evaluation("before")[run.split][run.metric]
    if difference.contains_zero and (before is None or before < HIGHEST):
        units = f"{run.comparison.queries:,} {run.split} {'queries' if run.comparison.wins is not None else 'pairs'}"
        evidence = [Evidence(f"change of {run.metric}", difference.value, "0")]
        for name, value in (("lower", difference.low), ("upper", difference.high)):
            evidence += [] if value is None else [Evidence(f"{name} end of its 95% interval", value, "0 is inside")]
        yield Finding(
            "noise",
            "info",
            f"The difference {signed(difference.value)} is within the noise of {units}.",
            tuple(evidence),
            "Use more test pairs, or compare several seeds (training.seeds).",
            {"training.seeds": [0, 1, 2]},
        )


def _effective_share(weights: Matrix) -> Numbers:
    """Return exp(entropy) / K of each row of weights (A, K): 1 if all negatives have equal weight."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return np.asarray(np.exp(-(weights * logs).sum(axis=1)) / (weights > 0).sum(axis=1))


def _epoch_loss(run: RunEvidence, epoch: int) -> float:
    losses = [row["loss"] for row in run.steps if row.get("epoch") == epoch and row.get("loss") is not None]
    if not losses:
        raise RunError(f"the run logged no loss of epoch {epoch}")
    return float(np.mean(losses))
