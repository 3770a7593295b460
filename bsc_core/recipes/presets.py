"""Starting points of the New run page: each a set of config values, and when it fits."""

from __future__ import annotations

from typing import Any

from bsc_core.config import DataConfig, RunConfig, make_config
from bsc_core.recipes.best import BEST_PRESETS
from bsc_core.recipes.fitting import DataShape
from bsc_core.recipes.other_papers import ARTICLE, MARGINS, SCL, SIMCSE
from bsc_core.recipes.papers import BSC_PAPER
from bsc_core.recipes.preset import Preset

__all__ = ["FAMILIES", "PRESETS", "Preset", "family_of", "preset_config", "recommended", "suggested"]


def _by_task(title: str, when: str, loss: dict[str, Any], batching: dict[str, Any] | None = None) -> Preset:
    """A careful run from the bundled encoder with the loss that the task calls for."""
    values = {
        "encoder": {"name": "bundled"},
        "batching": batching or {"strategy": "examples", "group_size": 8},
        "loss": loss,
        "training": {"epochs": 3, "batch_size": 32, "learning_rate": 3e-5},
    }
    return Preset(title, when, values)


BY_TASK: dict[str, Preset] = {
    "recommended": Preset(
        "Recommended",
        "A short, careful run from the bundled encoder. A query's labelled negatives meet it in its batch.",
        {
            "encoder": {"name": "bundled"},
            "batching": {"strategy": "examples", "group_size": 8, "distinct_texts": False},
            "loss": {"name": "bsc", "temperature": 0.05},
            "training": {"epochs": 3, "batch_size": 32, "learning_rate": 3e-5},
        },
    ),
    "task_positives": _by_task(
        "I have positives only",
        "Pairs that belong together and nothing else. A text that occurs twice in a batch is not its own negative.",
        {"name": "bsc", "temperature": 0.05, "duplicates": "merge"},
    ),
    "task_graded": _by_task(
        "I have graded labels",
        "Labels between 0 and 1 that mean how alike two texts are: half batch softmax, half regression on the label.",
        {"name": "combined", "preset": "bsc_mse", "mu": 0.5, "bsc": {"temperature": 0.05}},
    ),
    "task_negatives": _by_task(
        "I have a wrong document for each query",
        "A column of wrong documents, which join the choices of every query of the batch.",
        {"name": "mnrl", "temperature": 0.05},
        {"strategy": "random"},
    ),
    "task_classes": _by_task(
        "I have sentences with classes",
        "Pairs of sentences labelled 1 for the same class and 0 for two classes; wrong pairs are pushed apart.",
        {"name": "online_contrastive", "distance": "cosine", "margin": 0.5, "reduction": "mean"},
        {"strategy": "random"},
    ),
    "task_nli": _by_task(
        "I have NLI",
        "Premises and hypotheses with three classes: a classifier and, for what is entailed, a contrast.",
        {"name": "supcon", "temperature": 0.1, "mix": 0.5},
        {"strategy": "premises"},
    ),
    "task_texts": _by_task(
        "I have texts only",
        "No pairs that can be trusted: each query meets itself under another dropout.",
        {"name": "simcse", "temperature": 0.05},
        {"strategy": "random"},
    ),
    "lesson": Preset(
        "Fast lesson",
        "To see curves move in seconds. A bag of words: what it learns seldom carries over to new questions.",
        {
            "encoder": {"name": "static"},
            "batching": {"strategy": "examples", "group_size": 8, "distinct_texts": False},
            "loss": {"name": "bsc", "temperature": 0.1, "learn_temperature": True},
            "training": {"epochs": 5, "batch_size": 32, "learning_rate": 1e-3, "temperature_learning_rate": 1e-2},
        },
    ),
}

FAMILIES: dict[str, dict[str, Preset]] = {
    "Recommended for": BEST_PRESETS,
    "By task": BY_TASK,
    "BSC paper": BSC_PAPER,
    "SBERT article": ARTICLE,
    "Margins paper": MARGINS,
    "SCL paper": SCL,
    "SimCSE": SIMCSE,
}

PRESETS: dict[str, Preset] = {name: preset for family in FAMILIES.values() for name, preset in family.items()}


def family_of(name: str) -> str:
    """The family that a preset belongs to. Raises KeyError for an unknown preset."""
    found = {preset: family for family, presets in FAMILIES.items() for preset in presets}
    return found[name]


def preset_config(name: str, data: DataConfig) -> RunConfig:
    """The config of a preset on these data. Raises KeyError for an unknown preset."""
    return make_config({**PRESETS[name].values, "data": data.model_dump()})


def suggested(shape: DataShape | None) -> str:
    """The name of the preset to start from with data of this shape."""
    return "task_nli" if shape is not None and shape.classes > 1 else "recommended"


def recommended(data: DataConfig) -> RunConfig:
    """The config that the app offers first."""
    return preset_config("recommended", data)
