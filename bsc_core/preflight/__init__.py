"""What a run would take, found out by a few of its own steps before it is launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bsc_core.preflight.report import Preflight, Say, silent

if TYPE_CHECKING:
    from bsc_core.config import RunConfig
    from bsc_core.runs import RunStore

__all__ = ["STEPS", "Preflight", "preflight"]

STEPS = 3
"""Steps that are timed."""


def preflight(config: RunConfig, *, steps: int = STEPS, store: RunStore | None = None, say: Say = silent) -> Preflight:
    """Read the data, load the encoder and take a few steps as the run would; nothing of it is kept.

    The first step takes the longest texts, for the memory; the `steps` after it take rows at random and are timed. One
    checkpoint is written beside the runs and removed. store: where the run would lie, by default the runs folder. say:
    told what is done, as (done, of, doing). Raises what the run would be refused with, and TrainingError where the loss
    is not finite in one of these steps.
    """
    from bsc_core.preflight.probe import Probe
    from bsc_core.runs import RunStore

    return Probe(config, store or RunStore(), say).report(steps)
