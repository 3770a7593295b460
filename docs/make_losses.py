"""Write docs/losses.md from the catalogue of losses and the schema: `python docs/make_losses.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bsc_core.config import LOSS_CONFIGS, BSCLossConfig
from bsc_core.losses.catalogue import CATALOGUE

HEADER = """# Losses

Made from the catalogue of losses and the config schema by `python docs/make_losses.py`. Every loss is called as
`loss(queries, documents, labels=None, **ids)` and returns `LossParts(total, terms)`; the config's `[loss]` section
names one, and `bsc_core.integrations.sentence_transformers` has each as a loss for `SentenceTransformerTrainer`.

A temperature tau divides similarities; libraries that multiply by a scale mean scale = 1 / tau. A pair is positive when
its label is above the threshold, strictly. Losses compute in float32 or better whatever autocast says. A zero vector
has a cosine of 0 with everything and no gradient; a column that is the same in every row is 0 under column
normalization.

## Which data, which losses

| the data have | losses |
| --- | --- |
"""
SHAPES = {
    "positive pairs alone": ("bsc", "mnrl"),
    "pairs labelled right or wrong": ("bsc", "contrastive", "online_contrastive", "combined"),
    "graded pairs": ("combined", "mse", "pearson", "bsc"),
    "queries with positive and negative documents": ("bsc", "triplet", "mnrl"),
    "triplets: a column of negatives": ("triplet", "mnrl", "bsc"),
    "NLI rows: classes": ("softmax", "supcon", "mnrl on the entailed rows"),
    "texts alone": ("simcse",),
}


def reference() -> str:
    """The page as Markdown."""
    lines = [f"| {shape} | {', '.join(_linked(name) for name in names)} |" for shape, names in SHAPES.items()]
    return HEADER + "\n".join(lines) + "\n\n" + "\n".join(_section(name) for name in CATALOGUE).rstrip() + "\n"


def _linked(name: str) -> str:
    return f"[`{name}`](#{name})" if name in CATALOGUE else f"`{name.split()[0]}` {name.partition(' ')[2]}"


def _section(name: str) -> str:
    card = CATALOGUE[name]
    rows = [
        f"| `{key}` | {_default(field.get_default())} | {field.title}. {field.description} |"
        for key, field in LOSS_CONFIGS[name].model_fields.items()
        if key != "name"
    ]
    parts = [f"## {name}\n", f"**{card.title}.** {card.when}\n", f"$${card.equation}$$\n", f"*Paper:* {card.paper}.\n"]
    parts += [f"*Data:* {card.data}.\n"]
    parts += [f"*Paper and code:* {card.deviation}\n"] if card.deviation else []
    parts += ["| key | default | meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"] if rows else []
    return "\n".join(parts)


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, BSCLossConfig):
        return f"see [`{value.name}`](#{value.name})"
    return f"`{list(value) if isinstance(value, tuple) else value}`".replace("True", "true").replace("False", "false")


if __name__ == "__main__":
    (Path(__file__).parent / "losses.md").write_text(reference(), encoding="utf-8")
