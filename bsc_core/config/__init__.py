"""Every knob of an experiment, and how configs are read, checked and written."""

from bsc_core.config.combined import LOSS_CONFIGS, CombinedLossConfig, LossConfig, WeightedLoss
from bsc_core.config.faults import explain
from bsc_core.config.losses import (
    BSCLossConfig,
    ContrastiveLossConfig,
    MarginSection,
    MNRLConfig,
    MSELossConfig,
    OnlineContrastiveLossConfig,
    PearsonLossConfig,
    SimCSEConfig,
    SingleLossConfig,
    SoftmaxLossConfig,
    SoftmaxOverBatch,
    SupConLossConfig,
    TripletLossConfig,
)
from bsc_core.config.reading import make_config, read_config, to_toml
from bsc_core.config.schema import (
    BatchingConfig,
    ColumnNames,
    Columns,
    CorpusColumns,
    DataConfig,
    EncoderConfig,
    EvaluationConfig,
    RunConfig,
    TrainingConfig,
)
from bsc_core.config.section import LossSection, Section

__all__ = [
    "LOSS_CONFIGS",
    "BSCLossConfig",
    "BatchingConfig",
    "ColumnNames",
    "Columns",
    "CombinedLossConfig",
    "ContrastiveLossConfig",
    "CorpusColumns",
    "DataConfig",
    "EncoderConfig",
    "EvaluationConfig",
    "LossConfig",
    "LossSection",
    "MNRLConfig",
    "MSELossConfig",
    "MarginSection",
    "OnlineContrastiveLossConfig",
    "PearsonLossConfig",
    "RunConfig",
    "Section",
    "SimCSEConfig",
    "SingleLossConfig",
    "SoftmaxLossConfig",
    "SoftmaxOverBatch",
    "SupConLossConfig",
    "TrainingConfig",
    "TripletLossConfig",
    "WeightedLoss",
    "explain",
    "make_config",
    "read_config",
    "to_toml",
]
