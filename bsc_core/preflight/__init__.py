"""Preflight: expected time, memory and disk usage of a run, estimated from a few training steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bsc_core.background_task import OnProgress, no_progress
from bsc_core.preflight.report import STEPS, Preflight

if TYPE_CHECKING:
    from bsc_core.config import RunConfig
    from bsc_core.runs import RunStore

__all__ = ["STEPS", "Preflight", "preflight"]


def preflight(
    config: RunConfig,
    *,
    steps: int = STEPS,
    store: RunStore | None = None,
    on_progress: OnProgress = no_progress,
) -> Preflight:
    """Load the data and the encoder, run a few training steps, and estimate the cost of the run.

    The first step uses the longest texts, for the peak memory; the next `steps` steps use random rows and are timed.
    One checkpoint is written to the runs folder and removed.

    Args:
        config: The experiment.
        steps: Number of steps to time.
        store: Where the run would be created; by default the runs folder.
        on_progress: Called with the progress.

    Raises:
        InputError: The configuration or the data are invalid.
        TrainingError: The loss is not finite in one of these steps.
    """
    from bsc_core.encoders import check_encoder
    from bsc_core.runs import RunStore

    store = store or RunStore()
    check_encoder(store.available_encoder(config.encoder)[0].name)  # before the imports, which take seconds
    from bsc_core.preflight.probe import measure

    return measure(config, steps, store, on_progress)
