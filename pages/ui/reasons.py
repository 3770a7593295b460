"""Why each setting of a run has the default it has: the last line of a field's tooltip."""

from __future__ import annotations

from typing import Any

_DATA = {
    "data.dev_share": "enough to tell models apart, and nine tenths are left to learn from.",
    "data.threshold": "the middle of the scale; the papers take 0.5 or 0.6.",
    "data.label_min": "labels are read as shares unless told otherwise.",
    "data.label_max": "labels are read as shares unless told otherwise.",
    "data.train_split": "the name that most data sets use.",
    "data.dev_split": "the name that most data sets use.",
    "data.test_split": "the name that most data sets use.",
    "data.split_by": "a query never stands on both sides, and no more rows are held out than asked for.",
}
_ENCODER = {
    "encoder.name": "small, good without training, and needs no download.",
    "encoder.max_length": "longer texts cost time and seldom say more.",
    "encoder.lora": "all weights of a small encoder fit in memory and learn more.",
    "encoder.lora.rank": "the middle of what Hu et al. try; more seldom helps.",
    "encoder.lora.alpha": "twice the rank, so that the added matrices count as in most recipes.",
    "encoder.lora.dropout": "the encoder has dropout of its own.",
    "encoder.lora.targets": "names differ between architectures; the usual ones are known.",
}
_BATCHING = {
    "batching.strategy": "the order that is best in the BSC paper: negatives of a batch are hard.",
    "batching.group_size": "the paper's size on five of seven tasks.",
    "batching.neighbours": "the paper's number; most groups are full long before.",
    "batching.by": "queries that look alike have answers that are easy to confuse.",
    "batching.metric": "what the model is searched with afterwards.",
    "batching.search": "exact is fast enough for most data, and then nothing is missed.",
    "batching.distinct_texts": "a repeated text would be its own negative.",
    "batching.reverse": "as in Algorithm 1: easy batches first, as a curriculum.",
    "batching.shingle_size": "one shared word groups most pairs; more leave many pairs alone.",
    "batching.shingle_neighbours": "the released code's number.",
    "batching.stop_count": "about the number of function words of a language.",
    "batching.clusters": "the paper's number on CQA-A.",
    "batching.refresh": "the hardest negatives are those of the model as it is now.",
    "batching.refresh_epochs": "what is hard changes with every epoch.",
    "batching.keep_groups": "as in the paper: batches are cut in sequence, all of one size.",
    "batching.forbid_collisions": "as in the paper: few pairs collide, and none is left out.",
}
_TRAINING = {
    "training.epochs": "a small encoder has mostly learned by then; the papers take 5 to 7.",
    "training.steps": "epochs are easier to compare between data of one size.",
    "training.batch_size": "the paper's; more negatives want a higher temperature.",
    "training.learning_rate": "the paper's on six of seven tasks; 1e-5 to 5e-5 is usual.",
    "training.temperature_learning_rate": "one number may move faster than millions of weights.",
    "training.warmup": "a tenth in all papers: Adam's first steps are unsure.",
    "training.schedule": "so that the last steps settle.",
    "training.head_learning_rate": "one rate for all, until a head learns too slowly.",
    "training.layer_decay": "the papers train all layers alike.",
    "training.bias_correction": "what Adam means; the paper leaves it off on five tasks.",
    "training.weight_decay": "the released code's value.",
    "training.max_grad_norm": "the released code's value: one odd batch cannot undo the others.",
    "training.precision": "the same result to three digits in less time, where the processor can.",
    "training.gradient_cache": "fast where it fits, and never out of memory where it does not.",
    "training.activation_memory": "measured to hold usual batches in one pass.",
    "training.accumulation": "gradient caching makes large batches possible, with all their negatives.",
    "training.compile": "it pays after some hundred steps only.",
    "training.micro_tokens": "measured to be the fastest on this kind of device.",
    "training.seed": "any number does; the same one repeats a run.",
    "training.seeds": "one run tells whether it works; five tell whether a difference is one (the papers take five).",
    "training.early_stopping": "the best model on dev is kept in any case.",
    "training.keep_checkpoints": "the one before stays, in case the newest cannot be read.",
    "training.report_to": "curves stand on the Runs page.",
    "training.checkpoint_steps": "an epoch of most data takes minutes.",
    "training.threads": "nothing else needs the processor while a run goes on.",
}
_EVALUATION = {
    "evaluation.metric": "the first of these that the data define.",
    "evaluation.k": "the BSC paper's ranks.",
    "evaluation.each_epoch": "to see when it stops to learn, and to keep the best.",
    "evaluation.epoch_texts": "enough for a map that moves from epoch to epoch, in a few MB each.",
}
_SOFTMAX = {
    "learn_temperature": "a fixed one keeps runs comparable; learn it once to find it.",
    "temperature_parameter": "stays positive, and steps are of one size.",
}
_CUT = "the data's own, so that loss and metrics agree."
_LOSSES: dict[str, dict[str, str]] = {
    "bsc": {
        **_SOFTMAX,
        "temperature": "the paper's on most tasks; lower counts the hardest negative alone.",
        "normalization": "the cosine that search uses afterwards.",
        "detach_statistics": "as in the released code.",
        "symmetric": "both directions cost one product and learn from both.",
        "reduction": "as in the released code, so that its learning rates fit.",
        "average": "equation 5.",
        "labelled_negatives": "they bring 1 to 2 points in the paper.",
        "duplicates": "as in the paper; merge where texts repeat.",
        "threshold": _CUT,
    },
    "mnrl": {**_SOFTMAX, "temperature": "a scale of 20, as in sentence-transformers."},
    "simcse": {**_SOFTMAX, "temperature": "as in SimCSE."},
    "softmax": {
        "num_classes": "entailment, neutral and contradiction.",
        "features": "the best of those that SBERT compares.",
        "hidden": "SBERT's head.",
        "activation": "as in the SCL code.",
        "frozen_head": "a head that is not trained teaches less.",
    },
    "supcon": {
        **_SOFTMAX,
        "temperature": "on cosines; the paper's 1 belongs to raw dot products.",
        "normalization": "so that the temperature can be compared.",
        "mix": "the paper's middle value.",
        "anchor": "as in the code.",
        "max_positives": "more of them did better in the paper.",
        "max_negatives": "all did better than 3 in the paper.",
        "positive_class": "the class id of entailment in SNLI and MNLI.",
        "num_classes": "entailment, neutral and contradiction.",
    },
    "mse": {},
    "pearson": {},
    "triplet": {
        "distance": "what the margins paper takes, and search too.",
        "margin": "the best in the margins paper.",
        "reduction": "does not grow with the batch.",
    },
    "contrastive": {
        "distance": "what the margins paper takes, and search too.",
        "margin": "the library's, and good in the margins paper.",
        "reduction": "does not grow with the batch.",
        "threshold": _CUT,
    },
    "online_contrastive": {
        "distance": "what the margins paper takes, and search too.",
        "margin": "the library's, and good in the margins paper.",
        "reduction": "as released; mean makes learning rates comparable.",
        "threshold": _CUT,
    },
    "combined": {"preset": "equation 6 of the BSC paper.", "mu": "the middle of what the paper tries."},
}

WHY: dict[str, str] = {
    **_DATA,
    **_ENCODER,
    **_BATCHING,
    **_TRAINING,
    **_EVALUATION,
    **{f"loss.{loss}.{field}": why for loss, fields in _LOSSES.items() for field, why in fields.items()},
}


def reason(section: str, field: str, default: Any) -> str:
    """The default of a field and why, as Markdown; empty for a field without a reason."""
    path = f"{section.replace('loss.combined.bsc', 'loss.bsc')}.{field}"
    return f"*Default: {told(default)}*, {WHY[path]}" if path in WHY else ""


def told(value: Any) -> str:
    """A value as one says it: `on`, `not set`, `2e-5`, `0, 1, 2`."""
    if value is None or value == () or value == []:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    return ", ".join(told(one) for one in value) if isinstance(value, list | tuple) else str(value)
