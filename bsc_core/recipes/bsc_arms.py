"""What the recipes of the BSC paper's claims share: the settings of its tasks, and arms that several tasks have.

Batch, rate, temperature and groups are the paper's of the task; the encoder is the bundled one, and the number of steps
is small and the same for all arms of a recipe. Arms that recipes share have the same settings and are trained once.
"""

from __future__ import annotations

from typing import Any, Literal

from bsc_core.recipes.claims import Arm, Statement

Sections = dict[str, dict[str, Any]]
RANDOM: Sections = {"batching": {"strategy": "random"}}
MSE: Sections = {"loss": {"name": "mse"}, **RANDOM}


def task(group_size: int, length: int, training: dict[str, Any], **batching: Any) -> Sections:
    """What the arms of a task share. training: its `steps`, `batch_size` and `learning_rate`."""
    return {
        "encoder": {"name": "bundled", "max_length": length},
        "batching": {"strategy": "examples", "group_size": group_size, **batching},
        "training": training,
    }


def bsc(temperature: float, **changes: Any) -> dict[str, Any]:
    """A `loss` section: batch softmax on cosines, but for the changes."""
    return {"name": "bsc", "temperature": temperature, "normalization": "l2", **changes}


def combined(mu: float, loss: dict[str, Any], preset: str = "bsc_mse") -> dict[str, Any]:
    """A `loss` section: mu of that batch softmax, and 1 - mu of what the preset names."""
    return {"name": "combined", "preset": preset, "mu": mu, "bsc": loss}


def losses(loss: dict[str, Any], mu: float) -> dict[str, Arm]:
    """The losses that the paper compares on rankings. loss: batch softmax of the task, which is that of its recipe."""
    triplet = {"name": "triplet", "distance": "euclidean", "margin": 0.5}
    return {
        "bsc": Arm("Batch softmax (BSC)"),
        "mse": Arm("Squared error (MSE)", MSE),
        "combined": Arm(f"BSC + MSE, mu {mu:g}", {"loss": combined(mu, loss)}),
        "triplet": Arm("Triplet", {"loss": triplet, **RANDOM}),
    }


ORDERS = {
    "examples": Arm("Nearest neighbours"),
    "random": Arm("Random order", RANDOM),
    "sequential": Arm("Order of the file", {"batching": {"strategy": "sequential"}}),
    "words": Arm("Shared words", {"batching": {"strategy": "words"}}),
    "clusters": Arm("Clusters", {"batching": {"strategy": "clusters", "clusters": 30}}),
}
"""The orders of pairs that the paper compares."""


def picked(arms: dict[str, Arm], *names: str) -> dict[str, Arm]:
    """Some of these arms, in this order."""
    return {name: arms[name] for name in names}


def above(
    better: str, metric: str, others: dict[str, float | None], split: Literal["dev", "test"] = "test"
) -> tuple[Statement, ...]:
    """One setting above several others.

    others: their arms, and what the paper shows between the two; None: it does not say it, so it stands beside.
    """
    return tuple(
        Statement(better, worse, metric, split, paper=paper, beside=paper is None) for worse, paper in others.items()
    )
