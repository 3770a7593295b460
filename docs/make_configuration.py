"""Write docs/configuration.md from the schema: `python docs/make_configuration.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bsc_core import config

SECTIONS: dict[str, type[BaseModel]] = {
    "data": config.DataConfig,
    "data.columns": config.Columns,
    "data.corpus_columns": config.CorpusColumns,
    "encoder": config.EncoderConfig,
    "batching": config.BatchingConfig,
    "loss": config.BSCLossConfig,
    "training": config.TrainingConfig,
    "evaluation": config.EvaluationConfig,
}
HEADER = """# Configuration

Every key of a config file, made from the schema by `python docs/make_configuration.py`. Unknown keys are refused. On
the command line, `--set section.key=value` changes one; in a file, leave a key out to keep its default. Relative paths
in a file are taken from its folder, those given to `--set` from the working folder.
"""


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    return f"`{list(value) if isinstance(value, tuple) else value}`".replace("True", "true").replace("False", "false")


def reference() -> str:
    """The page as Markdown."""
    parts = [HEADER]
    for name, section in SECTIONS.items():
        parts.append(f"## [{name}]\n\n{(section.__doc__ or '').splitlines()[0]}\n")
        parts.append("| key | default | meaning |\n| --- | --- | --- |")
        parts += [
            f"| `{key}` | {_default(field.default)} | {field.title}. {field.description} |"
            for key, field in section.model_fields.items()
        ]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "configuration.md").write_text(reference(), encoding="utf-8")
