"""Generate configuration.md and losses.md from the config schema and the catalog of losses.

python docs/make_reference.py
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bsc_core import config
from bsc_core.losses.catalog import CATALOG

SECTIONS: dict[str, type[config.Section]] = {
    "[data]": config.DataConfig,
    "[data.columns]": config.Columns,
    "[data.corpus_columns]": config.CorpusColumns,
    "[data.examples]": config.ExamplesConfig,
    "[data.negatives]": config.NegativesConfig,
    "[data.nli]": config.NLIConfig,
    "[encoder]": config.EncoderConfig,
    "[encoder.lora]": config.LoRAConfig,
    "[batching]": config.BatchingConfig,
    **{f'[loss] name = "{name}"': section for name, section in config.LOSS_CONFIGS.items()},
    '[[loss.parts]] of name = "combined"': config.WeightedLoss,
    "[training]": config.TrainingConfig,
    "[evaluation]": config.EvaluationConfig,
    "[sweep]": config.SweepConfig,
}
CONFIGURATION = """# Configuration

All keys of a config file, generated from the schema by `python docs/make_reference.py`. Unknown keys are errors.

- To change a key on the command line, use `--set section.key=value`; `--set section.key=none` unsets an optional key.
- Relative paths in a file are resolved against its folder, those in `--set` against the working folder.
- The meaning of a key starts with the label of the setting in the app, in italics, if the label differs from the key.
- The keys of `[loss]` depend on its `name`, which is `bsc` by default. To set a custom sum on the command line, use
  `--set loss.name=combined --set loss.preset=custom --set 'loss.parts=[{weight = 0.5, loss = {name = "mse"}},
  {weight = 0.5, loss = {name = "bsc", temperature = 0.05}}]'`.
- A file with a section `[sweep]` describes several runs; see `bsc sweep` in `docs/jobs.md`.
- Old names of renamed keys and values are still accepted and logged as deprecated.
"""
LOSSES = """# Losses

Generated from the catalog of losses and the config schema by `python docs/make_reference.py`.

Set the loss with `loss.name` in a config file, or call it as `loss(queries, documents, labels=None, **ids)`, which
returns `LossParts(total, terms)`. `bsc_core.integrations.sentence_transformers` provides each loss for
`SentenceTransformerTrainer`.

- Similarities are divided by the temperature tau; `scale` in sentence-transformers is 1 / tau.
- A pair is positive if its label is above the threshold (strictly).
- Losses are computed in float32 or float64, even under autocast.
- A zero vector has cosine 0 with all other vectors and gradient 0. With column normalization, a column
  whose range or norm is at most 1e-6 of the largest value is 0.
- In the loss lab and in `bsc_core.losses.explain`, the hardest query is the query with the largest loss. Losses within
  a relative difference of 1e-6 of it are ties. The first row of a tie is selected, so that the result does not depend
  on the processor or the browser.
- In the tables of settings, the meaning starts with the label of the setting in the app, in italics, if the label
  differs from the key.

## Treatment of the negatives

`bsc`, `mnrl` and `simcse` share the following settings (`simcse` has no `directions`), which can be combined with each
other. The last column names the equivalent in sentence-transformers.

| setting | effect | equivalent |
| --- | --- | --- |
| `mask` | Excludes documents whose similarity exceeds that of the positive minus `mask_margin`. | `GISTEmbedLoss` |
| `directions` | Selects the similarities in the denominator. | `MultipleNegativesRankingLoss(directions=)` |
| `hardness` | Adds `hardness_strength` times the cosine to the logits of negatives. | same loss, `hardness_mode=` |
| `decoupled` | Excludes the positive from the denominator. | |
| `debiased_prior` | Subtracts the expected share of false negatives from the sum over the negatives. | |

- A pair labeled negative is never excluded by a mask. Cells with the decision `positive` or `drop` (see
  `docs/batching.md`) are always excluded from the denominator. With a mask, so is a document that another row labels
  positive for the query.
- If all negatives of a row are excluded, its loss is 0. Each step logs `masked_negatives` (mean number of excluded
  negatives per query) and `rows_without_negatives`. If at least 10% of the rows have no negatives, the diagnosis of the
  run reports it.
- The similarities of the mask are those of the trained model (`mask = "self"`) or of a guide model (`mask = "guide"`),
  whose vectors are computed once per text and cached. A document is excluded only if its similarity exceeds the limit
  by more than 1e-6.
- The term that `hardness` adds has no gradient.
- `matryoshka_dims` computes the loss on truncated embeddings, as `MatryoshkaLoss` does. It works with every loss that
  has no classifier.

## Choose a loss for your data

| your data | losses |
| --- | --- |
"""
SHAPES = {
    "positive pairs only": ("bsc", "mnrl", "sigmoid"),
    "pairs labeled positive or negative": ("bsc", "sigmoid", "contrastive", "online_contrastive", "combined"),
    "graded pairs": ("combined", "mse", "pearson", "cosent", "angle", "bsc"),
    "queries with positive and negative documents": ("bsc", "triplet", "mnrl"),
    "triplets (a column of negatives)": ("triplet", "mnrl", "bsc"),
    "NLI rows with classes": ("softmax", "supcon", "mnrl on the entailed rows"),
    "texts only": ("simcse",),
}


def configuration() -> str:
    """Return configuration.md."""
    parts = [CONFIGURATION]
    renamed = ["## Renamed keys and values\n", "| old | new |\n| --- | --- |"]
    for title, section in SECTIONS.items():
        fields = sorted(section.model_fields.items(), key=lambda item: item[0] != "name")  # the name first
        parts.append(f"## {title}\n\n{(section.__doc__ or '').splitlines()[0]}\n")
        parts += [*_table(fields), ""]
        prefix = title.strip("[]").partition("]")[0]
        renamed += [f"| `{prefix}.{old}` | `{prefix}.{new}` |" for old, new in section.aliases.items()]
        for key, values in section.value_aliases.items():
            renamed += [f'| `{prefix}.{key} = "{old}"` | `"{new}"` |' for old, new in values.items()]
    return "\n".join([*parts, *renamed]).rstrip() + "\n"


def losses() -> str:
    """Return losses.md."""
    parts = [LOSSES]
    parts += [f"| {shape} | {', '.join(map(_linked, names))} |\n" for shape, names in SHAPES.items()]
    for name, card in CATALOG.items():
        parts.append(f"\n## {name}\n\n**{card.title}.** {card.when}\n\n$${card.equation}$$\n\n*Paper:* {card.paper}.\n")
        parts.append(f"\n*Data:* {card.data}.\n")
        if card.deviation:
            parts.append(f"\n*Paper and code:* {card.deviation}\n")
        fields = [(key, field) for key, field in config.LOSS_CONFIGS[name].model_fields.items() if key != "name"]
        if fields:
            parts.append("\n" + "\n".join(_table(fields)) + "\n")
    return "".join(parts)


def _table(fields: Iterable[tuple[str, Any]]) -> list[str]:
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    for key, field in fields:
        title = "" if field.title.lower() == key.replace("_", " ") else f"*{field.title}.* "
        meaning = f"{title}{field.description or ''}".replace("|", "\\|")
        lines.append(f"| `{key}` | {_default(field.get_default())} | {meaning} |")
    return lines


def _linked(name: str) -> str:
    return f"[`{name}`](#{name})" if name in CATALOG else f"`{name.split()[0]}` {name.partition(' ')[2]}"


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return f"defaults of `{getattr(value, 'name', 'the section')}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`".replace("True", "true").replace("False", "false")


if __name__ == "__main__":
    for path, text in (("configuration.md", configuration()), ("losses.md", losses())):
        (Path(__file__).parent / path).write_text(text, encoding="utf-8")
