"""The encoder and the loss that a run begins with, or goes on with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from bsc_core.config import RunConfig
from bsc_core.encoders import load_encoder
from bsc_core.encoders.lora import add_lora, load_lora_state
from bsc_core.losses import build_loss
from bsc_core.runs import Run, RunStore, chain_of
from bsc_core.training.checkpoint import Checkpoint
from bsc_core.training.optim import layer_rates
from bsc_core.training.rows import check_views

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def begin_model(config: RunConfig, store: RunStore, checkpoint: Checkpoint | None) -> SentenceTransformer:
    """The encoder to start from: that of the checkpoint where there is one, else the config's, or its run's in `store`.

    With low-rank matrices where the config wants them. Raises InputError where it cannot be loaded or trained so.
    """
    wanted = config.encoder
    if checkpoint is None:
        model = load_encoder(store.encoder(wanted))
    else:
        model = load_encoder(wanted.model_copy(update={"name": str(checkpoint.model_folder)}))
    if wanted.lora is not None:
        add_lora(model, wanted.lora)
    if checkpoint is not None and checkpoint.lora is not None:
        load_lora_state(model, checkpoint.lora)
    check_views(config, model)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    layer_rates(trained, config.training)  # refuses an encoder without layers
    return model


def begin_loss(
    config: RunConfig, dimensions: int | None, checkpoint: Checkpoint | None, say: Callable[[str], object]
) -> nn.Module:
    """The loss, as the checkpoint left it where there is one; what it warns of when it is made is said."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loss = build_loss(config.loss, threshold=config.data.threshold, dimensions=dimensions)
    for warning in told:
        say(f"Note: {warning.message}")
    if checkpoint is not None:
        loss.load_state_dict(checkpoint.loss)
    return loss


def chain_to(config: RunConfig, run: Run) -> dict[str, str] | None:
    """The run whose model a run started from, and where that was; None where it did not start from a run's."""
    parent = chain_of(config.encoder.name)
    return None if parent is None else {"run": parent, "model": str(run.folder.parent / parent / "model")}
