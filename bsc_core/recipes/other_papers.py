"""The settings of the SBERT article, of the papers on margins and on SCL, and of SimCSE, as presets.

Only the encoder is the bundled one instead of theirs, and the learning rate falls to 0 in a line where theirs stays.
"""

from __future__ import annotations

from typing import Any

from bsc_core.recipes.preset import Preset

TRIPLET_MARGINS = (0.01, 0.1, 1.0, 5.0, 7.5, 10.0)
CONTRASTIVE_MARGINS = (0.1, 0.25, 0.5, 0.75, 1.0)
MIXES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
TEMPERATURES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
NO_CLIPPING = 1e6
FEATURES = ("u", "v", "difference")


def _article(title: str, when: str, loss: dict[str, Any], max_length: int = 128, **training: Any) -> Preset:
    values = {
        "encoder": {"name": "bundled", "max_length": max_length},
        "batching": {"strategy": "random"},
        "loss": loss,
        "training": {"epochs": 1, "batch_size": 16, "learning_rate": 2e-5, **training},
    }
    return Preset(title, when, values)


ARTICLE: dict[str, Preset] = {
    "article_softmax": _article(
        "Classifier",
        "Premises and hypotheses with three classes; the head is trained, as the article meant to.",
        {"name": "softmax", "num_classes": 3},
    ),
    "article_as_published": _article(
        "Classifier, mistakes and all",
        "As its listing runs: the head is never trained and the rate is 0 for the last tenth of the steps. A lesson.",
        {"name": "softmax", "num_classes": 3, "frozen_head": True},
        schedule="ends_early",
        weight_decay=0.0,
        max_grad_norm=NO_CLIPPING,
    ),
    "article_library": _article(
        "Classifier, by the library",
        "Its second path: AdamW with weight decay and clipping, texts up to 512 tokens.",
        {"name": "softmax", "num_classes": 3},
        max_length=512,
    ),
    "article_mnrl": _article(
        "In-batch softmax",
        "The loss of the model that does best in the article's comparison: positive pairs, scale 20.",
        {"name": "mnrl", "temperature": 0.05},
    ),
}


def _margins(title: str, when: str, loss: dict[str, Any], **sweep: tuple[Any, ...]) -> Preset:
    training = {"epochs": 5, "batch_size": 64, "learning_rate": 3e-5}
    values = {"encoder": {"name": "bundled"}, "batching": {"strategy": "random"}, "loss": loss, "training": training}
    return Preset(title, when, values, {f"loss.{name}": listed for name, listed in sweep.items()})


def _by_margin(name: str, margin: float, distance: str = "cosine") -> dict[str, Any]:
    return {"name": name, "distance": distance, "margin": margin}


MARGINS: dict[str, Preset] = {
    "paper_triplet": _margins(
        "Triplet 0.1",
        "A right and a wrong document for each query; the margin that kept most meaning and polarity.",
        _by_margin("triplet", 0.1),
    ),
    "paper_triplet_margins": _margins(
        "Triplet, six margins",
        "The paper's grid of margins in cosine distance: 6 runs. From 2 on they are one loss.",
        _by_margin("triplet", 0.1),
        margin=TRIPLET_MARGINS,
    ),
    "paper_triplet_library": _margins(
        "Triplet as the library has it",
        "Euclidean distance and a margin of 5, what the paper calls default.",
        _by_margin("triplet", 5.0, "euclidean"),
    ),
    "paper_contrastive": _margins(
        "Contrastive 0.5",
        "Pairs labelled same or different, such as sentences of one class and of two.",
        _by_margin("contrastive", 0.5),
    ),
    "paper_contrastive_margins": _margins(
        "Contrastive, five margins",
        "The paper's grid of margins for pairs labelled same or different: 5 runs.",
        _by_margin("contrastive", 0.5),
        margin=CONTRASTIVE_MARGINS,
    ),
    "paper_online": _margins(
        "Online contrastive 0.5",
        "The same on the hard pairs of a batch alone, summed as released.",
        _by_margin("online_contrastive", 0.5),
    ),
    "paper_online_margins": _margins(
        "Online contrastive, five margins",
        "The paper's grid of margins for the hard pairs of a batch: 5 runs.",
        _by_margin("online_contrastive", 0.5),
        margin=CONTRASTIVE_MARGINS,
    ),
    "paper_mnrl": _margins(
        "In-batch softmax",
        "Positive pairs; a column of wrong documents joins the choices where there is one.",
        {"name": "mnrl", "temperature": 0.05},
    ),
    "paper_setfit_body": Preset(
        "SetFit's first phase",
        "Squared error of cosine and label on pairs of one class and of two, the part of the paper's baseline that "
        "trains the encoder by pairs.",
        {
            "encoder": {"name": "bundled"},
            "batching": {"strategy": "random"},
            "loss": {"name": "mse"},
            "training": {"epochs": 1, "batch_size": 32, "learning_rate": 2e-5},
        },
    ),
}


def _scl(title: str, when: str, loss: dict[str, Any], sweep: dict[str, tuple[Any, ...]] | None = None) -> Preset:
    training = {"epochs": 1, "batch_size": 64, "learning_rate": 2e-5, "weight_decay": 0.0, "max_grad_norm": NO_CLIPPING}
    values = {
        "encoder": {"name": "bundled", "max_length": 90},
        "batching": {"strategy": "premises"},
        "loss": loss,
        "training": training,
    }
    return Preset(title, when, values, sweep or {})


def _released(positives: int | None = 3, negatives: int | None = 3, **changes: Any) -> dict[str, Any]:
    drawn = {"max_positives": positives, "max_negatives": negatives}
    return {"name": "supcon", "mix": 0.5, "normalization": "none", "temperature": 1.0, **drawn, **changes}


RAW = "NLI with raw dot products and temperature 1"

SCL: dict[str, Preset] = {
    "paper_scl": _scl("3 positives, 3 negatives", f"{RAW}, as released.", _released()),
    "paper_scl_3_all": _scl("3 positives, all negatives", f"{RAW}; every other row is a negative.", _released(3, None)),
    "paper_scl_all_all": _scl("All positives, all negatives", f"{RAW}; nothing is drawn.", _released(None, None)),
    "paper_scl_alone": _scl(
        "Without the classifier", f"{RAW}, a mix of 1: nothing tells classes apart.", _released(None, None, mix=1.0)
    ),
    "paper_scl_premises": _scl(
        "Each premise once",
        f"{RAW}; a premise with two entailed hypotheses is one anchor, as the paper writes it.",
        _released(None, None, anchor="premise"),
    ),
    "paper_scl_l2": _scl(
        "On cosines",
        "NLI with vectors of length 1, where a temperature of 0.1 can be compared.",
        _released(normalization="l2", temperature=0.1),
    ),
    "paper_scl_classifier": _scl(
        "Classifier alone",
        "The paper's baseline: cross-entropy on two layers over u, v and |u - v|.",
        {"name": "softmax", "num_classes": 3, "features": FEATURES, "hidden": 768},
    ),
    "paper_scl_mixes": _scl(
        "Six mixes",
        "The paper's grid of the share of SCL, all positives and negatives: 6 runs.",
        _released(None, None),
        {"loss.mix": MIXES},
    ),
    "paper_scl_temperatures": _scl(
        "Six temperatures",
        "The paper's grid of temperatures on raw dot products: 6 runs.",
        _released(None, None),
        {"loss.temperature": TEMPERATURES},
    ),
}

SIMCSE: dict[str, Preset] = {
    "paper_simcse": Preset(
        "Texts alone",
        "No pairs needed: each query meets itself under another dropout. Needs a transformer.",
        {
            "encoder": {"name": "bundled", "max_length": 32},
            "batching": {"strategy": "random"},
            "loss": {"name": "simcse", "temperature": 0.05},
            "training": {"epochs": 1, "batch_size": 64, "learning_rate": 3e-5},
        },
    ),
}
