"""The model card: README.md of a saved encoder, in the form the sentence-transformers library and the hub read."""

from __future__ import annotations

from collections.abc import Mapping

USAGE = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/of/this/folder")
vectors = model.encode(["first text", "second text"])
print(model.similarity(vectors, vectors))"""


def model_card(
    name: str,
    *,
    base: str,
    settings: Mapping[str, object],
    before: Mapping[str, Mapping[str, float | None]],
    after: Mapping[str, Mapping[str, float | None]],
) -> str:
    """The card of a fine-tuned encoder, as Markdown.

    base: the encoder that training started from. settings: what it was trained with, in the order shown. before, after:
    metrics by split, such as {"dev": {"mrr": 0.61}}.
    """
    rows = "\n".join(f"| {_cell(key)} | {_cell(value)} |" for key, value in settings.items())
    parts = [
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n"
        "tags: [sentence-transformers, feature-extraction, sentence-similarity]\n---",
        f"# {_cell(name)}",
        f"A sentence encoder fine-tuned from `{_cell(base)}` with BSC Lab.",
        f"```python\n{USAGE}\n```",
    ]
    if settings:
        parts.append(f"## Training\n\n| setting | value |\n| --- | --- |\n{rows}")
    if after:
        parts.append(f"## Metrics\n\n{_metric_table(before, after)}")
    return "\n\n".join(parts) + "\n"


def _metric_table(
    before: Mapping[str, Mapping[str, float | None]], after: Mapping[str, Mapping[str, float | None]]
) -> str:
    lines = ["| split | metric | before | after |", "| --- | --- | --- | --- |"]
    for split, metrics in after.items():
        for metric, value in metrics.items():
            first = before.get(split, {}).get(metric)
            lines.append(f"| {_cell(split)} | {_cell(metric)} | {_number(first)} | {_number(value)} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").replace("`", "'").split())
