"""Losses in words: one sentence for each, what is odd about its settings, and which losses fit. No Streamlit here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bsc_core.config import LossConfig, RunConfig
from bsc_core.losses.catalogue import CATALOGUE
from bsc_core.recipes.fitting import DataShape, fitting_losses

TITLES = {
    "bsc": "batch softmax",
    "combined": "weighted sum",
    "mse": "squared error",
    "pearson": "correlation",
    "softmax": "classifier",
    "supcon": "supervised contrast",
    "triplet": "triplet",
    "contrastive": "contrastive",
    "online_contrastive": "online contrastive",
    "simcse": "SimCSE",
    "mnrl": "in-batch softmax",
}
VECTORS = {
    "l2": "cosine",
    "l2_columns": "columns of length 1",
    "range_columns": "columns by their range",
    "minmax_columns": "columns from 0 to 1",
    "none": "raw dot products",
}
IN_BATCH = ("bsc", "mnrl", "simcse")
USUAL = {"l2": (0.02, 0.5), "none": (0.5, 20.0)}
USUAL_BY_COLUMNS = (0.5, 5.0)
FEWEST_FOR_COLUMNS = 8
FEATURES = {"u": "u", "v": "v", "difference": "|u - v|", "product": "u · v"}


def summands(loss: LossConfig) -> list[tuple[float, Any]]:
    """The weighted losses of a sum; a loss by itself has the weight 1."""
    return [(part.weight, part.loss) for part in loss.summands] if loss.name == "combined" else [(1.0, loss)]


def in_batch(loss: LossConfig) -> bool:
    """Whether the other pairs of a batch serve as negatives."""
    return any(part.name in IN_BATCH for _, part in summands(loss))


def at_temperature(loss: LossConfig) -> str:
    """` at a temperature of 0.05,` for a loss that has one, else nothing."""
    part = next((part for _, part in summands(loss) if hasattr(part, "temperature")), None)
    if part is None:
        return ""
    return f" at a temperature {'learned from' if part.learn_temperature else 'of'} {part.temperature:g},"


def loss_sentence(loss: LossConfig) -> str:
    """The loss section in one sentence."""
    return f"Loss: {SENTENCES[loss.name](loss)}"


def _temperature(loss: Any) -> str:
    return f"temperature {'learned from' if loss.learn_temperature else 'fixed at'} {loss.temperature:g}"


def _bsc(loss: Any) -> str:
    sides = "both directions" if loss.symmetric else "queries choose documents"
    return f"batch softmax, {_temperature(loss)}, {VECTORS[loss.normalization]}, {sides}"


def _supcon(loss: Any) -> str:
    rest = "" if loss.mix == 1 else f", {1 - loss.mix:g} of it a classifier"
    return f"supervised contrast, {_temperature(loss)}, {VECTORS[loss.normalization]}{rest}"


def _softmax(loss: Any) -> str:
    seen = ", ".join(FEATURES[feature] for feature in loss.features)
    return f"classifier of {loss.num_classes} classes on {seen}{', its head frozen' if loss.frozen_head else ''}"


def _margin(loss: Any) -> str:
    return f"{TITLES[loss.name]}, margin {loss.margin:g} in {loss.distance} distance"


def _combined(loss: Any) -> str:
    return " + ".join(f"{weight:.3g} × {TITLES[part.name]}" for weight, part in summands(loss))


SENTENCES: dict[str, Callable[[Any], str]] = {
    "bsc": _bsc,
    "combined": _combined,
    "mse": lambda loss: "squared error of cosine and label",
    "pearson": lambda loss: "minus the correlation of cosines and labels",
    "softmax": _softmax,
    "supcon": _supcon,
    "triplet": _margin,
    "contrastive": _margin,
    "online_contrastive": _margin,
    "simcse": lambda loss: f"SimCSE, two dropout views of each query, {_temperature(loss)}",
    "mnrl": lambda loss: f"in-batch softmax, {_temperature(loss)}, queries choose documents",
}


def fitting_sentence(shape: DataShape) -> str:
    """Which losses fit data of this shape."""
    return f"Losses that fit these data: {', '.join(CATALOGUE[name].title for name in fitting_losses(shape))}."


def oddities(config: RunConfig, shape: DataShape) -> list[str]:
    """What is allowed but unusual about the loss, or what it cannot learn from these data."""
    found = [] if config.loss.name in fitting_losses(shape) else [_unfit(config.loss, shape)]
    for _, part in summands(config.loss):
        found += _of_temperature(part) + _of_normalization(part, config.training.batch_size) + _of_kind(part)
        if shape.negatives and not getattr(part, "labelled_negatives", True):
            found.append("The data have labelled negatives, and this plan leaves them out.")
    if "views" in config.loss.needs and config.encoder.name == "static":
        found.append("Static vectors have no dropout, so both views are equal: the run will be refused.")
    return list(dict.fromkeys(sentence for sentence in found if sentence))


def _unfit(loss: LossConfig, shape: DataShape) -> str:
    if loss.name == "combined" and all(part.name in fitting_losses(shape) for _, part in summands(loss)):
        return ""
    return f"There is little in these data for {TITLES[loss.name]} to learn from. {fitting_sentence(shape)}"


def _of_temperature(loss: Any) -> list[str]:
    if not hasattr(loss, "temperature"):
        return []
    low, high = USUAL.get(getattr(loss, "normalization", "l2"), USUAL_BY_COLUMNS)
    if low <= loss.temperature <= high:
        return []
    side = "low: only the hardest negative counts" if loss.temperature < low else "high: all negatives count alike"
    return [f"Temperature {loss.temperature:g} is {side} ({low:g} to {high:g} is usual here)."]


def _of_normalization(loss: Any, batch_size: int) -> list[str]:
    normalization = getattr(loss, "normalization", "l2")
    if normalization.endswith("_columns") and batch_size < FEWEST_FOR_COLUMNS:
        return [f"Columns are normalised over a batch of {batch_size}: too few texts to tell a column's range."]
    if loss.name == "supcon" and normalization == "none":
        return ["Raw dot products grow with the vectors, so the temperature says little; l2 makes it comparable."]
    return []


def _of_kind(loss: Any) -> list[str]:
    found = []
    if getattr(loss, "saturated", False):
        found.append(
            f"No cosine distance reaches a margin of {loss.margin:g}: margins from 2 on are one loss, up to a constant."
        )
    if getattr(loss, "frozen_head", False):
        found.append("The head stays a random projection: the article's mistake, kept as a lesson.")
    if getattr(loss, "mix", 0) == 1:
        found.append("A mix of 1 leaves the classifier out, so no accuracy of classes will be told.")
    return found
