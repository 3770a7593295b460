"""Which settings the New run form shows, which stand under More, and in which groups."""

from __future__ import annotations

from bsc_core.batching.plan import NEED_VECTORS

PAGE = "train"
ORDER = ("data", "encoder", "batching", "loss", "training")
LORA = "encoder.lora"
BATCHING = {  # strategy: what it asks for, and what stands under More
    "examples": (("group_size", "by", "metric"), ("neighbours", "search", "distinct_texts", "reverse")),
    "words": (("group_size", "by", "shingle_size"), ("stop_count",)),
    "clusters": (("group_size", "by", "clusters"), ("metric",)),
    "neighbours": (("group_size", "by", "shingle_size"), ("shingle_neighbours", "metric")),
}
SHOWN = {
    "data": ("dev_share", "threshold"),
    "encoder": ("max_length",),
    "training": ("epochs", "batch_size", "learning_rate", "seed"),
}
MORE_DATA = ("label_min", "label_max", "train_split", "dev_split", "test_split", "split_by")
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {  # what stands under More of training: section and fields
    "Optimiser": (
        "training",
        (
            *("warmup", "schedule", "weight_decay", "max_grad_norm", "temperature_learning_rate"),
            *("head_learning_rate", "layer_decay", "bias_correction"),
        ),
    ),
    "Length": ("training", ("steps", "early_stopping")),
    "Memory and speed": (
        "training",
        (
            *("precision", "gradient_cache", "activation_memory", "accumulation"),
            *("micro_tokens", "threads", "compile"),
        ),
    ),
    "Seeds and keeping": ("training", ("seeds", "report_to", "keep_checkpoints", "checkpoint_steps")),
    "Measuring": ("evaluation", ("metric", "k", "each_epoch", "epoch_texts")),
}
OF_ALL = ("refresh", "refresh_epochs", "keep_groups", "forbid_collisions")
FIELDS = {
    "data": (*SHOWN["data"], *MORE_DATA),
    "encoder": ("name", *SHOWN["encoder"]),
    LORA: ("rank", "alpha", "dropout", "targets"),
    "batching": (
        *("strategy", "group_size", "by", "metric", "shingle_size", "clusters"),
        *("neighbours", "search", "distinct_texts", "reverse", "shingle_neighbours", "stop_count", *OF_ALL),
    ),
    "training": (
        *SHOWN["training"],
        *(field for section, fields in GROUPS.values() if section == "training" for field in fields),
    ),
    "evaluation": GROUPS["Measuring"][1],
}


def batching_fields(strategy: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a strategy asks for, and what stands under More."""
    shown, more = BATCHING.get(strategy, ((), ()))
    looking = ("refresh", "refresh_epochs") if strategy in NEED_VECTORS else ()
    return ("strategy", *shown), (*more, *looking, "keep_groups", "forbid_collisions")
