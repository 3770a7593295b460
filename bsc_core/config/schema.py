"""Every knob of an experiment: frozen models whose schema makes the forms, the file format and the messages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from bsc_core.config.batching import BatchingConfig
from bsc_core.config.combined import LossConfig
from bsc_core.config.losses import BSCLossConfig
from bsc_core.config.preparation import ExamplesConfig, NegativesConfig, NLIConfig, Remedy
from bsc_core.config.section import Section
from bsc_core.config.training import EncoderConfig, TrainingConfig

ColumnNames = str | tuple[str, ...]


class Columns(Section):
    """Which column of a pair file plays which role. Several names for one text are joined by a space."""

    query: ColumnNames = Field(title="Query", description="The text that asks: the papers' q_i.")
    document: ColumnNames = Field(title="Document", description="The text that answers: the papers' a_i.")
    label: str | None = Field(None, title="Label", description="Graded label; none means every pair is positive.")
    query_id: str | None = Field(
        None, title="Query id", description="Rows of one query share it; else the query's text."
    )
    document_id: str | None = Field(None, title="Document id", description="Joins a pair to the corpus; else the text.")
    split: str | None = Field(None, title="Split", description="Column that says train, dev or test.")
    negative: ColumnNames | None = Field(
        None, title="Negative", description="A wrong document for the same query (triplets)."
    )
    class_label: str | None = Field(
        None,
        title="Class",
        description="A class in words or as a whole number, such as entailment, neutral, contradiction.",
    )


class CorpusColumns(Section):
    """Which column of a corpus file plays which role."""

    document: ColumnNames = Field(title="Document", description="The text to search.")
    document_id: str | None = Field(None, title="Document id", description="Joins a document to the pairs.")


class DataConfig(Section):
    """The files of an experiment and how their columns are read."""

    train: str = Field(
        title="Training pairs",
        description="CSV, TSV, JSONL (each also .gz), Parquet, a saved data set, hf://owner/name, or shards.",
    )
    dev: str | None = Field(
        None, title="Dev pairs", description="None: the dev rows of the split column, else a share."
    )
    test: str | None = Field(None, title="Test pairs", description="None: the test rows of the split column, if any.")
    corpus: str | None = Field(
        None, title="Corpus", description="Documents to search; needed by the retrieval metrics."
    )
    mix: tuple[str, ...] = Field(
        (), title="More training pairs", description="Further files that are trained on together with the first."
    )
    columns: Columns | None = Field(None, title="Columns", description="None: guessed from the header, and shown.")
    corpus_columns: CorpusColumns | None = Field(None, title="Corpus columns", description="None: guessed, and shown.")
    train_split: str = Field("train", title="Name of the training split", description="Value in the split column.")
    dev_split: str = Field("dev", title="Name of the dev split", description="Value in the split column.")
    test_split: str = Field("test", title="Name of the test split", description="Value in the split column.")
    dev_share: float = Field(
        0.1, gt=0, lt=1, title="Dev share", description="Share of the queries held out when no dev rows are given."
    )
    threshold: float = Field(
        0.5,
        ge=0,
        le=1,
        title="Positive above",
        description="A pair is positive when its label, in [0, 1], is above this.",
    )
    split_by: Literal["query", "component"] = Field(
        "query",
        title="Hold out",
        description="query: whole queries. component: whole sets of rows that share a text, so that no text is in two "
        "splits.",
    )
    remedies: tuple[Remedy, ...] = Field(
        (), title="Remedies", description="What is mended in the rows after reading, in this order; see docs/data.md."
    )
    false_negatives: str | None = Field(
        None,
        title="Marked false negatives",
        description="A file with the columns query and document: pairs that a person marked. The loss leaves them out "
        "and batches keep their rows apart.",
    )
    examples: ExamplesConfig | None = Field(
        None, title="Examples from sentences", description="Makes pairs or triplets from classified sentences."
    )
    negatives: NegativesConfig | None = Field(
        None, title="Negatives", description="Finds negatives for pairs that are all positive."
    )
    nli: NLIConfig | None = Field(None, title="NLI", description="Adds pairs to natural language inference rows.")
    label_min: float = Field(0.0, title="Lowest label", description="The file's label that becomes 0.")
    label_max: float = Field(
        1.0, title="Highest label", description="The file's label that becomes 1, such as 5 for STSb."
    )

    @model_validator(mode="after")
    def _ordered_labels(self) -> DataConfig:
        if self.label_max <= self.label_min:
            raise ValueError(f"label_max is {self.label_max}; it must be above label_min ({self.label_min})")
        return self


class EvaluationConfig(Section):
    """What is measured before, during and after training."""

    metric: str | None = Field(
        None, title="Best on dev by", description="None: MRR where it is defined, else Spearman, else F1."
    )
    k: tuple[int, ...] = Field(
        (1, 3, 5, 10, 20, 50), title="Cut-offs", description="Ranks at which HasPositive@k is reported."
    )
    each_epoch: bool = Field(True, title="Evaluate each epoch", description="Off: only before and after training.")
    epoch_texts: int = Field(
        4000,
        ge=0,
        le=100_000,
        title="Texts kept each epoch",
        description="Texts whose vectors are kept after each epoch for the moving map, those of pairs first; 0: none.",
    )

    @field_validator("k")
    @classmethod
    def _ranks(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError(f"k is {list(value)}; it must hold at least one rank, each >= 1")
        return tuple(sorted(set(value)))


class RunConfig(Section):
    """One experiment, whole."""

    name: str = Field("", max_length=80, title="Name", description="Shown in lists; empty: made from the settings.")
    data: DataConfig
    encoder: EncoderConfig = EncoderConfig()
    batching: BatchingConfig = BatchingConfig()
    loss: LossConfig = BSCLossConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
