"""Write docs/configuration.md from the schema: `python docs/make_configuration.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bsc_core import config

SECTIONS: dict[str, type[BaseModel]] = {
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
HEADER = """# Configuration

Every key of a config file, made from the schema by `python docs/make_configuration.py`. Unknown keys are refused. On
the command line, `--set section.key=value` changes one; in a file, leave a key out to keep its default. Relative paths
in a file are taken from its folder, those given to `--set` from the working folder.

The section `[loss]` has the keys of the loss that its `name` says, `bsc` where it says none. On the command line a sum
of one's own reads `--set loss.name=combined --set loss.preset=custom --set 'loss.parts=[{weight = 0.5, loss = {name =
"mse"}}, {weight = 0.5, loss = {name = "bsc", temperature = 0.05}}]'`.

A file with a section `[sweep]` describes many runs, for `bsc sweep` (`docs/jobs.md`).
"""


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return f"those of `{getattr(value, 'name', 'the section')}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`".replace("True", "true").replace("False", "false")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def reference() -> str:
    """The page as Markdown."""
    parts = [HEADER]
    for title, section in SECTIONS.items():
        parts.append(f"## {title}\n\n{(section.__doc__ or '').splitlines()[0]}\n")
        parts.append("| key | default | meaning |\n| --- | --- | --- |")
        parts += [
            f"| `{key}` | {_default(field.default)} | {field.title}. {_cell(field.description or '')} |"
            for key, field in _name_first(section)
        ]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _name_first(section: type[BaseModel]) -> list[tuple[str, Any]]:
    return sorted(section.model_fields.items(), key=lambda item: item[0] != "name")


if __name__ == "__main__":
    (Path(__file__).parent / "configuration.md").write_text(reference(), encoding="utf-8")
