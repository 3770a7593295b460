"""A trained loss on disk: its config, threshold and parameters (a classifier's head, a learned temperature)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from bsc_core.config import LossConfig, explain
from bsc_core.errors import CheckpointError
from bsc_core.losses.build import build_loss
from bsc_core.losses.classification import SoftmaxLoss

SETTINGS, WEIGHTS = "loss.json", "loss.safetensors"


def save_loss(loss: nn.Module, folder: Path) -> None:
    """Write a loss made by `build_loss` into a folder, which is made where it is not there.

    Raises CheckpointError for a head that has not seen a batch yet, and so has no weights.
    """
    config: Any = loss.config
    settings = {"config": config.model_dump(mode="json"), "threshold": loss.threshold, "dimensions": _width(loss)}
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in loss.state_dict().items()}
    save_file(state, str(folder / WEIGHTS))
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2), encoding="utf-8")


def load_loss(folder: Path) -> nn.Module:
    """The loss that `save_loss` wrote, in evaluation mode.

    Raises CheckpointError when a file is missing, truncated or of something else.
    """
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        config: LossConfig = TypeAdapter(LossConfig).validate_python(settings["config"])
        state = load_file(str(folder / WEIGHTS))
        loss = build_loss(config, threshold=settings["threshold"], dimensions=settings["dimensions"])
        loss.load_state_dict(state)
    except ValidationError as error:
        raise CheckpointError(f"{folder}: this is no saved loss: {explain(error)}") from None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder}: this is no saved loss ({str(error).splitlines()[0]}); save it again"
        ) from None
    return loss.eval()


def _width(loss: nn.Module) -> int | None:
    """Width of the embeddings that the loss's heads are made for; None without a head."""
    for module in loss.modules():
        if isinstance(module, SoftmaxLoss):
            if any(nn.parameter.is_lazy(weight) for weight in module.parameters()):
                raise CheckpointError("the loss's head has no weights before its first batch; train it, then save it")
            return module.first.in_features // len(module.config.features)
    return None
