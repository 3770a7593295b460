"""The encoder that a run would start from, also where the run before it has not ended."""

from __future__ import annotations

from bsc_core.config import EncoderConfig, RunConfig
from bsc_core.runs import RunStore, chain_of


def starting_encoder(config: RunConfig, store: RunStore) -> tuple[EncoderConfig, tuple[str, ...]]:
    """The encoder with its folder, and what is to be said of it.

    Where the run of a chain has not ended, the encoder that it starts from stands for its model: their cost is the
    same. Raises RunError or RunNotFoundError where the chain leads nowhere.
    """
    encoder = config.encoder
    told: tuple[str, ...] = ()
    while (run_id := chain_of(encoder.name)) is not None:
        run = store.get(run_id)
        if run.status().is_finished:
            return store.encoder(encoder), told
        told = (f"Run {run_id} has not ended, so its model was not there to be measured; what it starts from was.",)
        encoder = encoder.model_copy(update={"name": run.config().encoder.name})
    return encoder, told
