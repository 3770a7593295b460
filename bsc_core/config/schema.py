"""Config of a run: evaluation, and the sections of the other modules.

Forms, the file format, the docs table and error messages are all derived from these models.
"""

import re
from functools import cache
from typing import Self

from pydantic import Field, field_validator, model_validator

from bsc_core.config.batching import BatchingConfig
from bsc_core.config.data import DataConfig
from bsc_core.config.encoder import EncoderConfig
from bsc_core.config.losses import BSCLossConfig, LossConfig
from bsc_core.config.section import Section, sections_in
from bsc_core.config.training import TrainingConfig

_NAMES = {  # of keys whose fields have a title that is clear in their section only
    "encoder.name": "Encoder",
    "batching.metric": "Batching metric",
    "loss.bsc.name": "Batch softmax part",
}


class EvaluationConfig(Section):
    """Evaluation before, during and after training."""

    metric: str | None = Field(None, title="Best model by")
    """Dev metric that selects the best model; none: MRR if defined, else Spearman, else F1."""
    k: tuple[int, ...] = Field((1, 3, 5, 10, 20, 50), title="Ranks k", max_length=100)
    """Ranks k at which HasPositive@k is reported."""
    each_epoch: bool = Field(True, title="Evaluate each epoch")
    """Evaluate after every epoch; otherwise only before and after training."""
    epoch_texts: int = Field(4000, ge=0, le=100_000, title="Texts saved each epoch")
    """Number of texts whose vectors are saved after each epoch for the animated map; 0: none."""

    general: bool = Field(False, title="General score")
    """Also evaluate a general suite, the questions and premises of the sample data, to show whether training makes the
    encoder worse on other tasks. A task is left out if the data of the run contain its queries."""

    @field_validator("k")
    @classmethod
    def _ranks(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError(f"k is {list(value)}; give at least one rank, each >= 1")
        return tuple(sorted(set(value)))


class RunConfig(Section):
    """Config of one run."""

    name: str = Field("", max_length=80)
    """Name shown in lists; empty: derived from the settings."""
    data: DataConfig
    encoder: EncoderConfig = EncoderConfig()
    batching: BatchingConfig = BatchingConfig()
    loss: LossConfig = BSCLossConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _separate_sides(self) -> Self:
        """Separate queries and documents in the data where they have prompts of their own."""
        if self.encoder.has_prompts != self.data.separate_sides:
            data = self.data.model_copy(update={"separate_sides": self.encoder.has_prompts})
            object.__setattr__(self, "data", data)
        return self


def setting_name(key: str) -> str:
    """Return how pages write a config key: `Learning rate`, the title of its field, for `training.learning_rate`.

    Other texts are unchanged.
    """
    if not re.fullmatch(r"[a-z]+(\.[a-z0-9_]+)+", key):
        return key
    return _NAMES.get(key) or _title(key) or key.rpartition(".")[2].replace("_", " ").capitalize()


@cache
def _title(key: str) -> str | None:
    """Return the title of the field of a key, in the first section that has it; None if there is none."""
    sections: list[type[Section]] = [RunConfig]
    title = None
    for name in key.split("."):
        fields = [section.model_fields[name] for section in sections if name in section.model_fields]
        sections = [one for field in fields for one in sections_in(field.annotation)]
        title = fields[0].title if fields else None
    return title
