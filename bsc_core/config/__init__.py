"""Every knob of an experiment, and how configs are read, checked and written."""

from bsc_core.config.reading import explain, make_config, read_config, to_toml
from bsc_core.config.schema import (
    BatchingConfig,
    BSCLossConfig,
    ColumnNames,
    Columns,
    CorpusColumns,
    DataConfig,
    EncoderConfig,
    EvaluationConfig,
    LossConfig,
    RunConfig,
    Section,
    TrainingConfig,
)

__all__ = [
    "BSCLossConfig",
    "BatchingConfig",
    "ColumnNames",
    "Columns",
    "CorpusColumns",
    "DataConfig",
    "EncoderConfig",
    "EvaluationConfig",
    "LossConfig",
    "RunConfig",
    "Section",
    "TrainingConfig",
    "explain",
    "make_config",
    "read_config",
    "to_toml",
]
