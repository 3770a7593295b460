"""Starting points of the New run page: each a set of config values, and when it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bsc_core.config import DataConfig, RunConfig, make_config


@dataclass(frozen=True)
class Preset:
    """A named set of config sections without `data`. `when` says in one sentence which task it is for."""

    title: str
    when: str
    values: dict[str, Any]


PRESETS: dict[str, Preset] = {
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
    "paper_pfcc": Preset(
        "Paper: claim retrieval (PFCC-S)",
        "Positives only and a corpus to search, with the BSC paper's setting for BERT-base.",
        {
            "encoder": {"name": "bundled", "max_length": 90},
            "batching": {"strategy": "examples", "group_size": 8},
            "loss": {"name": "bsc", "temperature": 0.1, "normalization": "l2"},
            "training": {"epochs": 6, "batch_size": 30, "learning_rate": 2e-5},
        },
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


def preset_config(name: str, data: DataConfig) -> RunConfig:
    """The config of a preset on these data. Raises KeyError for an unknown preset."""
    return make_config({**PRESETS[name].values, "data": data.model_dump()})


def recommended(data: DataConfig) -> RunConfig:
    """The config that the app offers first."""
    return preset_config("recommended", data)
