"""The settings of the BSC paper's experiments as presets; only the encoder is the bundled one instead of BERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bsc_core.recipes.preset import Preset


@dataclass(frozen=True)
class Task:
    """One row of the BSC paper's table of settings.

    mu: of its combined loss. triplet_margin: Euclidean, where the paper shows triplet loss. temperature_rate: of the
    run that learned the temperature, from the released notebooks. bias_correction: of AdamW.
    """

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
    triplet_margin: float | None = None
    temperature_rate: float | None = None
    bias_correction: bool = False


# fmt: off
TASKS = {
    "antique": Task("Antique", "questions with graded answers", 50, 5, 2e-5, "l2", 0.1, 8, 0.9, 0.5),
    "cqa_a": Task("CQA-A", "questions with good and bad comments", 30, 5, 2e-5, "l2", 0.055, 8, 0.1,
                  triplet_margin=0.5, temperature_rate=0.4, bias_correction=True),
    "cqa_b": Task("CQA-B", "questions with related questions", 30, 7, 3e-5, "l2", 0.07, 5, 0.9,
                  triplet_margin=0.5, temperature_rate=0.1, bias_correction=True),
    "pfcc": Task("PFCC-S", "claims with checked facts, and a corpus", 30, 6, 2e-5, "range_columns", 1.2, 8, 0.9,
                 triplet_margin=0.6, temperature_rate=0.4),
    "mrpc": Task("MRPC", "paraphrases and others", 30, 6, 2e-5, "l2", 0.1, 4, 0.1, temperature_rate=0.1),
    "qqp": Task("QQP", "duplicate questions and others", 50, 6, 2e-5, "range_columns", 1.2, 8, 0.1),
    "stsb": Task("STSb", "sentence pairs with graded similarity", 30, 5, 2e-5, "l2", 0.1, 8, 0.1, 0.6,
                 temperature_rate=0.005),
}
# fmt: on
RATES = (5e-6, 1e-5, 2e-5, 3e-5)
MUS = (0.1, 0.5, 0.9)
SEEDS = (0, 1, 2, 3, 4)


def _values(task: Task, loss: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    """All sections of a task with this loss; `sections` lie over them."""
    values: dict[str, dict[str, Any]] = {
        "encoder": {"name": "bundled", "max_length": 90},
        "batching": {"strategy": "examples", "group_size": task.group_size},
        "loss": loss,
        "training": {
            "epochs": task.epochs,
            "batch_size": task.batch_size,
            "learning_rate": task.learning_rate,
            "bias_correction": task.bias_correction,
        },
    }
    return {name: {**part, **sections.get(name, {})} for name, part in values.items()}


def _bsc(task: Task, **changes: Any) -> dict[str, Any]:
    loss = {"name": "bsc", "temperature": task.temperature, "normalization": task.normalization}
    return {**(loss if task.threshold is None else {**loss, "threshold": task.threshold}), **changes}


def _combined(task: Task, mu: float, preset: str = "bsc_mse") -> dict[str, Any]:
    return {"name": "combined", "preset": preset, "mu": mu, "bsc": _bsc(task)}


def _of_task(name: str, task: Task) -> dict[str, Preset]:
    """What the paper's tables show of every task: batch softmax, regression, and both."""
    random = {"strategy": "random"}
    return {
        f"paper_{name}": Preset(
            task.title,
            f"Batch softmax as the paper trains it on {task.title}: {task.data}.",
            _values(task, _bsc(task)),
        ),
        f"paper_{name}_combined": Preset(
            f"{task.title}: with regression",
            f"Equation 6 with mu = {task.mu:g}, the paper's choice for {task.title}: {task.data}; needs labels.",
            _values(task, _combined(task, task.mu)),
        ),
        f"paper_{name}_mse": Preset(
            f"{task.title}: regression alone",
            f"Squared error of cosine and label, the paper's baseline on {task.title}; needs labels.",
            _values(task, {"name": "mse"}, batching=random),
        ),
    }


def _of_triplets(name: str, task: Task) -> Preset:
    return Preset(
        f"{task.title}: triplet loss",
        f"Euclidean distance and a margin of {task.triplet_margin:g}, the paper's baseline on {task.title}; needs a "
        "wrong document for each query.",
        _values(
            task,
            {"name": "triplet", "distance": "euclidean", "margin": task.triplet_margin},
            batching={"strategy": "random"},
        ),
    )


def _learning_temperature(name: str, task: Task) -> Preset:
    return Preset(
        f"{task.title}: temperature learned",
        "The run from which the paper reads a temperature, to fix it in all others; tau starts at 1.",
        _values(
            task,
            _bsc(task, temperature=1.0, learn_temperature=True, temperature_parameter="linear"),
            training={"temperature_learning_rate": task.temperature_rate},
        ),
    )


def _of_order(name: str, label: str, **batching: Any) -> Preset:
    task = TASKS[name]
    return Preset(
        f"{task.title}: {label}",
        f"The paper's comparison on {task.title}: the same loss with {label} instead of nearest neighbours.",
        _values(task, _bsc(task), batching=batching),
    )


def _orders() -> dict[str, Preset]:
    """The order of pairs, where the paper compares it."""
    shuffled = {
        f"paper_{name}_random": _of_order(name, "random batches", strategy="random")
        for name in ("antique", "cqa_a", "cqa_b", "pfcc")
    }
    clustered = {
        f"paper_{name}_clusters": _of_order(name, "300 clusters", strategy="clusters", clusters=300)
        for name in ("cqa_a", "cqa_b")
    }
    filed = {
        f"paper_{name}_sequential": _of_order(name, "the order of the file", strategy="sequential")
        for name in ("cqa_a", "cqa_b")
    }
    return shuffled | clustered | filed


def _comparisons() -> dict[str, Preset]:
    """What the paper changes about single tasks."""
    antique, pfcc, mrpc, stsb = (TASKS[name] for name in ("antique", "pfcc", "mrpc", "stsb"))
    return {
        "paper_antique_positives": Preset(
            "Antique: positives only",
            "Batch softmax without the pairs labelled negative, which cost the paper 2 points of MRR.",
            _values(antique, _bsc(antique, labelled_negatives=False)),
        ),
        "paper_pfcc_rows": Preset(
            "PFCC-S: rows of length 1",
            "Cosine instead of column normalization; the paper loses 8 points of HasPositive@1 by it.",
            _values(pfcc, _bsc(pfcc, normalization="l2", temperature=0.1)),
        ),
        "paper_pfcc_raw": Preset(
            "PFCC-S: no normalization",
            "Raw dot products; the paper names no temperature for them, so it is 1 here.",
            _values(pfcc, _bsc(pfcc, normalization="none", temperature=1.0)),
        ),
        "paper_mrpc_pearson": Preset(
            "MRPC: with correlation",
            "Batch softmax and the correlation with the labels, the paper's best on MRPC; needs labels that differ.",
            _values(mrpc, _combined(mrpc, mrpc.mu, "bsc_pearson")),
        ),
        "paper_stsb_pearson": Preset(
            "STSb: correlation alone",
            "Minus the correlation of cosines and labels over a batch; needs graded labels.",
            _values(stsb, {"name": "pearson"}, batching={"strategy": "random"}),
        ),
        "paper_stsb_then_mse": Preset(
            "STSb: BSC, then regression",
            "Second of two runs, the paper's best on STSb: choose the run of the preset STSb as the encoder.",
            _values(stsb, {"name": "mse"}, batching={"strategy": "random"}),
        ),
        "paper_stsb_then_bsc": Preset(
            "STSb: regression, then BSC",
            "Second of two runs: choose the run of the preset STSb: regression alone as the encoder.",
            _values(stsb, _bsc(stsb)),
        ),
    }


def _grids() -> dict[str, Preset]:
    """What the paper chose its settings from."""
    cqa, stsb = TASKS["cqa_a"], TASKS["stsb"]
    return {
        "paper_rates": Preset(
            "CQA-A: four rates, five seeds",
            "The grid of learning rates from which the paper takes the best on dev, each with five seeds: 20 runs.",
            _values(cqa, _bsc(cqa), training={"seeds": SEEDS}),
            {"training.learning_rate": RATES},
        ),
        "paper_mus": Preset(
            "STSb: three values of mu, five seeds",
            "The shares of batch softmax in equation 6 that the paper tries, each with five seeds: 15 runs.",
            _values(stsb, _combined(stsb, stsb.mu), training={"seeds": SEEDS}),
            {"loss.mu": MUS},
        ),
    }


BSC_PAPER: dict[str, Preset] = {
    **{name: preset for task, about in TASKS.items() for name, preset in _of_task(task, about).items()},
    **{f"paper_{name}_triplet": _of_triplets(name, task) for name, task in TASKS.items() if task.triplet_margin},
    **_orders(),
    **_comparisons(),
    **{f"paper_{name}_tau": _learning_temperature(name, task) for name, task in TASKS.items() if task.temperature_rate},
    **_grids(),
}
