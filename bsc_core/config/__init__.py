"""Every knob of an experiment, and how configs are read, checked and written."""

from bsc_core.config.batching import BatchingConfig, StrategyName
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
from bsc_core.config.preparation import ExamplesConfig, NegativesConfig, NLIConfig, Remedy, SentenceColumns
from bsc_core.config.reading import make_config, read_config, to_toml
from bsc_core.config.schema import (
    ColumnNames,
    Columns,
    CorpusColumns,
    DataConfig,
    EvaluationConfig,
    RunConfig,
)
from bsc_core.config.section import LossSection, Section
from bsc_core.config.sweep import (
    ASK_ABOVE,
    SweepConfig,
    count_runs,
    make_sweep,
    of_each_seed,
    read_sweep,
    sweep_configs,
)
from bsc_core.config.training import EncoderConfig, LoRAConfig, TrainingConfig

__all__ = [
    "ASK_ABOVE",
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
    "ExamplesConfig",
    "LoRAConfig",
    "LossConfig",
    "LossSection",
    "MNRLConfig",
    "MSELossConfig",
    "MarginSection",
    "NLIConfig",
    "NegativesConfig",
    "OnlineContrastiveLossConfig",
    "PearsonLossConfig",
    "Remedy",
    "RunConfig",
    "Section",
    "SentenceColumns",
    "SimCSEConfig",
    "SingleLossConfig",
    "SoftmaxLossConfig",
    "SoftmaxOverBatch",
    "StrategyName",
    "SupConLossConfig",
    "SweepConfig",
    "TrainingConfig",
    "TripletLossConfig",
    "WeightedLoss",
    "count_runs",
    "explain",
    "make_config",
    "make_sweep",
    "of_each_seed",
    "read_config",
    "read_sweep",
    "sweep_configs",
    "to_toml",
]
