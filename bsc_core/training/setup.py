"""Validation of a run's options, and its encoder and loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from bsc_core.config import RunConfig
from bsc_core.encoders import load_encoder
from bsc_core.encoders.lora import add_lora, check_lora, load_lora_state
from bsc_core.errors import ConfigError
from bsc_core.losses import build_loss
from bsc_core.runs import RunStore
from bsc_core.training.checkpoint import Checkpoint
from bsc_core.training.loop.optim import layer_rates
from bsc_core.training.loop.step import has_dropout
from bsc_core.training.trackers import check_trackers

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def validate(config: RunConfig) -> None:
    """Raise ConfigError for options that contradict each other or need a package that is not installed."""
    training = config.training
    if training.seeds:
        raise ConfigError(
            f"training.seeds is {list(training.seeds)}, and a run has one seed; launch a group with bsc sweep, or "
            "leave training.seeds empty"
        )
    if training.early_stopping_patience is not None and not config.evaluation.each_epoch:
        raise ConfigError(
            f"training.early_stopping_patience is {training.early_stopping_patience} and evaluation.each_epoch is "
            "false, so no epoch is evaluated; change one of them"
        )
    check_trackers(training.report_to)
    if config.encoder.lora is not None:
        check_lora()


def load_model(config: RunConfig, store: RunStore, resume: Checkpoint | None = None) -> SentenceTransformer:
    """Load the encoder of a run: from the checkpoint if resumed, else the config's, or that of its run in `store`.

    Low-rank matrices are added where the config has them.

    Raises:
        InputError: The encoder cannot be loaded, or not be trained with this config.
    """
    encoder = config.encoder
    if resume is None:
        model = load_encoder(store.encoder(encoder))
    else:
        model = load_encoder(encoder.model_copy(update={"name": str(resume.model_folder)}))
    if encoder.lora is not None:
        add_lora(model, encoder.lora)
    if resume is not None and resume.lora is not None:
        load_lora_state(model, resume.lora)
    check_views(config, model)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    layer_rates(trained, config.training)  # raises an error for an encoder without layers
    return model


def load_loss(
    config: RunConfig,
    model: SentenceTransformer,
    resume: Checkpoint | None = None,
    say: Callable[[str], object] = lambda message: None,
) -> nn.Module:
    """Build the loss of a run, with the checkpoint's parameters if resumed; its warnings are passed to `say`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dimensions = model.get_embedding_dimension()
        loss = build_loss(config.loss, threshold=config.data.threshold, dimensions=dimensions)
    for warning in caught:
        say(f"Note: {warning.message}")
    if resume is not None:
        loss.load_state_dict(resume.loss)
    return loss


def check_views(config: RunConfig, model: nn.Module) -> None:
    """Raise ConfigError for a loss that needs two dropout views of a text if the encoder has no dropout."""
    if "views" in config.loss.needs and not has_dropout(model):
        raise ConfigError(
            f"{config.loss.name} compares two dropout views of a text, and encoder {config.encoder.name} has no "
            "dropout; use a transformer, such as bundled, or another loss"
        )
