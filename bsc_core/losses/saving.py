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

SETTINGS, WEIGHTS = "loss.json", "loss.safetensors"


def save_loss(loss: nn.Module, folder: Path) -> None:
    """Write a loss made by `build_loss` into a folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    config: Any = loss.config
    settings = {"config": config.model_dump(mode="json"), "threshold": getattr(loss, "threshold", 0.5)}
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
        loss = build_loss(config, threshold=settings["threshold"], dimensions=_width(state, config))
        loss.load_state_dict(state)
    except ValidationError as error:
        raise CheckpointError(f"{folder}: this is no saved loss: {explain(error)}") from None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder}: this is no saved loss ({str(error).splitlines()[0]}); save it again"
        ) from None
    return loss.eval()


def _width(state: dict[str, Any], config: LossConfig) -> int | None:
    """Width of the embeddings that a saved head was made for; None without a head."""
    heads = [value for name, value in state.items() if name.endswith("head.0.weight")]
    if not heads:
        return None
    parts = [part.loss for part in config.summands] if config.name == "combined" else [config]
    features = next((len(part.features) for part in parts if part.name == "softmax"), 3)
    return int(heads[0].shape[1]) // features
