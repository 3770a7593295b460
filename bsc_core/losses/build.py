"""All losses by name: building, saving and loading them."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from bsc_core.config import CombinedLossConfig, LossConfig, SoftmaxLossConfig, SupConLossConfig, validation_message
from bsc_core.errors import CheckpointError
from bsc_core.files import read_regular
from bsc_core.losses.base import Loss
from bsc_core.losses.bsc import BSCLoss
from bsc_core.losses.classification import SoftmaxLoss
from bsc_core.losses.combined import CombinedLoss, MatryoshkaLoss, check_matryoshka_dims
from bsc_core.losses.in_batch import MNRLoss, SimCSELoss
from bsc_core.losses.margin import ContrastiveLoss, OnlineContrastiveLoss, TripletLoss
from bsc_core.losses.regression import AngleLoss, CoSENTLoss, CosineMSELoss, PearsonLoss
from bsc_core.losses.sigmoid import SigmoidLoss
from bsc_core.losses.supervised import SupConLoss

SETTINGS, WEIGHTS = "loss.json", "loss.safetensors"
"""Files of a saved loss."""
LOSSES: dict[str, type[Loss]] = {
    "bsc": BSCLoss,
    "combined": CombinedLoss,
    "mse": CosineMSELoss,
    "pearson": PearsonLoss,
    "cosent": CoSENTLoss,
    "angle": AngleLoss,
    "softmax": SoftmaxLoss,
    "supcon": SupConLoss,
    "triplet": TripletLoss,
    "contrastive": ContrastiveLoss,
    "online_contrastive": OnlineContrastiveLoss,
    "simcse": SimCSELoss,
    "mnrl": MNRLoss,
    "sigmoid": SigmoidLoss,
}


def build_loss(config: LossConfig, *, threshold: float = 0.5, dimensions: int | None = None) -> nn.Module:
    """Build the loss of a config; call it as loss(queries, documents, labels=None, **ids) -> LossParts.

    Args:
        config: Settings of the loss.
        threshold: Threshold of the data: a pair is positive if its label is above it. The config may override it.
        dimensions: Width of the embeddings, for losses with a head; None to take it from the first batch.

    Raises:
        InputError: `matryoshka_dims` exceed the width of the embeddings.
    """
    if config.matryoshka_dims:
        if dimensions is not None:
            check_matryoshka_dims(config.matryoshka_dims, dimensions)
        plain = config.model_copy(update={"matryoshka_dims": (), "matryoshka_weights": ()})
        return MatryoshkaLoss(config, build_loss(plain, threshold=threshold), threshold)
    if isinstance(config, CombinedLossConfig):
        parts = [build_loss(part.loss, threshold=threshold, dimensions=dimensions) for part in config.summands]
        return CombinedLoss(config, parts, threshold)
    arguments: dict[str, Any] = {"threshold": threshold}
    if isinstance(config, SoftmaxLossConfig | SupConLossConfig):
        arguments["dimensions"] = dimensions
    return LOSSES[config.name](config, **arguments)


def save_loss(loss: nn.Module, folder: Path) -> None:
    """Save a loss into a folder, which is created if needed.

    Raises:
        CheckpointError: The loss has a head without weights, since it has not processed a batch yet.
    """
    config: Any = loss.config
    settings = {"config": config.model_dump(mode="json"), "threshold": loss.threshold, "dimensions": _width(loss)}
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in loss.state_dict().items()}
    save_file(state, str(folder / WEIGHTS))
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2), encoding="utf-8")


def load_loss(folder: Path) -> nn.Module:
    """Load a loss saved by `save_loss`, in evaluation mode.

    Raises:
        CheckpointError: A file is missing, truncated or not a saved loss.
    """
    try:
        settings = json.loads(read_regular(folder / SETTINGS))
        config: LossConfig = TypeAdapter(LossConfig).validate_python(settings["config"])
        state = load_file(str(folder / WEIGHTS))
        build = partial(build_loss, config, threshold=settings["threshold"], dimensions=settings["dimensions"])
        with torch.device("meta"):  # without memory
            shapes = {name: value.shape for name, value in build().state_dict().items()}
        if shapes != {name: value.shape for name, value in state.items()}:
            raise ValueError("its weights are not those of its settings")
        loss = build()
        loss.load_state_dict(state)
    except ValidationError as error:
        raise CheckpointError(f"{folder}: not a saved loss: {validation_message(error)}") from None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError, RecursionError) as error:
        raise CheckpointError(f"{folder}: not a saved loss ({str(error).splitlines()[0]}); save it again") from None
    return loss.eval()


def _width(loss: nn.Module) -> int | None:
    """Return the embedding width of the loss's head; None without a head."""
    for module in loss.modules():
        if isinstance(module, SoftmaxLoss):
            if any(nn.parameter.is_lazy(weight) for weight in module.parameters()):
                raise CheckpointError("the loss's head has no weights before its first batch; train it before saving")
            return module.first.in_features // len(module.config.features)
    return None
