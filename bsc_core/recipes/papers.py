"""The settings of the papers' experiments as presets; only the encoder is the bundled one instead of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bsc_core.recipes.preset import Preset


@dataclass(frozen=True)
class Task:
    """One row of the BSC paper's table of settings; mu is that of its combined loss."""

    title: str
    data: str
    batch_size: int
    epochs: int
    learning_rate: float
    normalization: str
    temperature: float
    group_size: int
    mu: float
    threshold: float | None = None


# fmt: off
TASKS = {
    "antique": Task("Antique", "questions with graded answers", 50, 5, 2e-5, "l2", 0.1, 8, 0.9, 0.5),
    "cqa_a": Task("CQA-A", "questions with good and bad comments", 30, 5, 2e-5, "l2", 0.055, 8, 0.1),
    "cqa_b": Task("CQA-B", "questions with related questions", 30, 7, 3e-5, "l2", 0.07, 5, 0.9),
    "pfcc": Task("PFCC-S", "claims with checked facts, and a corpus", 30, 6, 2e-5, "range_columns", 1.2, 8, 0.9),
    "mrpc": Task("MRPC", "paraphrases and others", 30, 6, 2e-5, "l2", 0.1, 4, 0.1),
    "qqp": Task("QQP", "duplicate questions and others", 50, 6, 2e-5, "range_columns", 1.2, 8, 0.1),
    "stsb": Task("STSb", "sentence pairs with graded similarity", 30, 5, 2e-5, "l2", 0.1, 8, 0.1, 0.6),
}
# fmt: on


def _task_values(task: Task, loss: dict[str, Any]) -> dict[str, Any]:
    return {
        "encoder": {"name": "bundled", "max_length": 90},
        "batching": {"strategy": "examples", "group_size": task.group_size},
        "loss": loss,
        "training": {"epochs": task.epochs, "batch_size": task.batch_size, "learning_rate": task.learning_rate},
    }


def _bsc(task: Task) -> dict[str, Any]:
    loss = {"name": "bsc", "temperature": task.temperature, "normalization": task.normalization}
    return loss if task.threshold is None else {**loss, "threshold": task.threshold}


def _bsc_presets() -> dict[str, Preset]:
    alone = {
        f"paper_{name}": Preset(
            f"BSC paper: {task.title}",
            f"Batch softmax as the paper trains it on {task.title}: {task.data}.",
            _task_values(task, _bsc(task)),
        )
        for name, task in TASKS.items()
    }
    combined = {
        f"paper_{name}_combined": Preset(
            f"BSC paper: {task.title}, with regression",
            f"Equation 6 with mu = {task.mu:g}, the paper's choice for {task.title}: {task.data}; needs labels.",
            _task_values(task, {"name": "combined", "preset": "bsc_mse", "mu": task.mu, "bsc": _bsc(task)}),
        )
        for name, task in TASKS.items()
    }
    return alone | combined


def _margins(loss: dict[str, Any], title: str, when: str) -> Preset:
    training = {"epochs": 5, "batch_size": 64, "learning_rate": 3e-5}
    values = {"encoder": {"name": "bundled"}, "batching": {"strategy": "random"}, "loss": loss, "training": training}
    return Preset(f"Margins paper: {title}", when, values)


def _scl(title: str, when: str, **loss: Any) -> Preset:
    values = {
        "encoder": {"name": "bundled", "max_length": 90},
        "batching": {"strategy": "premises"},
        "loss": {"name": "supcon", "mix": 0.5, "max_positives": 3, "max_negatives": 3, **loss},
        "training": {"epochs": 1, "batch_size": 64, "learning_rate": 2e-5},
    }
    return Preset(f"SCL paper: {title}", when, values)


PAPERS: dict[str, Preset] = {
    **_bsc_presets(),
    "paper_mse": Preset(
        "BSC paper: regression alone",
        "Mean squared error of cosine and label, the paper's baseline; needs graded labels.",
        {
            "encoder": {"name": "bundled", "max_length": 90},
            "batching": {"strategy": "random"},
            "loss": {"name": "mse"},
            "training": {"epochs": 5, "batch_size": 30, "learning_rate": 2e-5},
        },
    ),
    "paper_triplet": _margins(
        {"name": "triplet", "distance": "cosine", "margin": 0.1},
        "triplet 0.1",
        "A right and a wrong document for each query; the margin that kept most meaning and polarity.",
    ),
    "paper_contrastive": _margins(
        {"name": "contrastive", "distance": "cosine", "margin": 0.5},
        "contrastive 0.5",
        "Pairs labelled same or different, such as sentences of one class and of two.",
    ),
    "paper_mnrl": _margins(
        {"name": "mnrl", "temperature": 0.05},
        "in-batch softmax",
        "Positive pairs; a column of wrong documents joins the choices where there is one.",
    ),
    "article_softmax": Preset(
        "SBERT article: classifier on NLI",
        "Premises and hypotheses with three classes; the head is trained, as the article meant to.",
        {
            "encoder": {"name": "bundled", "max_length": 128},
            "batching": {"strategy": "random"},
            "loss": {"name": "softmax", "num_classes": 3},
            "training": {"epochs": 1, "batch_size": 16, "learning_rate": 2e-5},
        },
    ),
    "paper_scl": _scl(
        "as released", "NLI with raw dot products and temperature 1.", normalization="none", temperature=1.0
    ),
    "paper_scl_l2": _scl(
        "on cosines", "NLI with vectors of length 1, where a temperature of 0.1 can be compared.", temperature=0.1
    ),
    "paper_simcse": Preset(
        "SimCSE: texts alone",
        "No pairs needed: each query meets itself under another dropout. Needs a transformer.",
        {
            "encoder": {"name": "bundled", "max_length": 32},
            "batching": {"strategy": "random"},
            "loss": {"name": "simcse", "temperature": 0.05},
            "training": {"epochs": 1, "batch_size": 64, "learning_rate": 3e-5},
        },
    ),
}
