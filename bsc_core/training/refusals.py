"""What a run is refused for before anything is read."""

from __future__ import annotations

from bsc_core.config import RunConfig
from bsc_core.encoders.lora import check_lora
from bsc_core.errors import ConfigError
from bsc_core.training.trackers import check_trackers


def check_options(config: RunConfig) -> None:
    """Refuse options that contradict each other, or need a package that is not installed. Raises ConfigError."""
    training = config.training
    if training.seeds:
        raise ConfigError(
            f"training.seeds is {list(training.seeds)}, and a run has one seed; launch them as a group with bsc sweep, "
            "or leave training.seeds empty"
        )
    if training.early_stopping is not None and not config.evaluation.each_epoch:
        raise ConfigError(
            f"training.early_stopping is {training.early_stopping} and evaluation.each_epoch is false, so no epoch is "
            "measured; leave one of them out"
        )
    check_trackers(training.report_to)
    if config.encoder.lora is not None:
        check_lora()
