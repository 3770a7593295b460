"""The model that was best on dev so far, kept in the run's folder, and when to give up waiting for a better one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bsc_core.config import RunConfig
from bsc_core.encoders import model_card, save_model
from bsc_core.losses import save_loss

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from bsc_core.runs import Run

Metrics = dict[str, dict[str, float | None]]
KEPT = "evaluation/kept"


class Best:
    """The best epoch of a run. value: its dev metric, None before there is one. epoch: counted from 1, else 0.

    metrics: by split, of that epoch.
    """

    def __init__(self, config: RunConfig, run: Run) -> None:
        self.config, self.run = config, run
        self.value: float | None = None
        self.epoch = 0
        self.metrics: Metrics = {}

    def is_beaten_by(self, value: float) -> bool:
        """Whether a dev metric is better, strictly."""
        return self.value is None or value > self.value

    def restore(self, value: float | None, epoch: int) -> None:
        """Be what a checkpoint says, or the epoch after it whose model is in the run's folder already.

        The latter where the process was killed after it had kept the model and before it had written its checkpoint.
        """
        kept = self.run.read_json(KEPT)
        if kept and kept["epoch"] > epoch:
            value, epoch = kept["value"], kept["epoch"]
        self.value, self.epoch = value, epoch
        if epoch:
            self.metrics = self.run.read_json(f"evaluation/epoch-{epoch:03d}") or {}

    def keep(self, epoch: int, metrics: Metrics, *, metric: tuple[str, float], vectors: NDArray[np.float32]) -> None:
        """Note the best epoch. metric: name and value of what is compared on dev. vectors: (U, D) of its model."""
        self.epoch, self.metrics, self.value = epoch, metrics, metric[1]
        self.run.update_status(metric_name=metric[0], metric_best=metric[1])
        self.run.write_array("embeddings_after", vectors)

    def save(self, model: SentenceTransformer, loss: nn.Module, before: Metrics, *, ends_epoch: bool) -> None:
        """Write the model, with its card, and what the loss has learned into the run's folder.

        ends_epoch: whether it was measured at an epoch's end; else a stop keeps it amid one, and a run that goes on
        from there has no best yet.
        """
        card = model_card(
            f"bsc-lab {self.run.id}",
            base=self.config.encoder.name,
            settings=flat_settings(self.config),
            before=before,
            after=self.metrics,
        )
        save_model(model, self.run.model_folder, card)
        if any(True for _ in loss.parameters()):
            save_loss(loss, self.run.folder / "loss")
        if ends_epoch:
            self.run.write_json(KEPT, {"epoch": self.epoch, "value": self.value})

    def gives_up_after(self, epoch: int) -> bool:
        """Whether `early_stopping` epochs have passed without a better one."""
        patience = self.config.training.early_stopping
        return patience is not None and epoch - self.epoch >= patience


def flat_settings(config: RunConfig) -> dict[str, object]:
    """The sections that decide the weights, flat: `loss.temperature` and so on."""
    chosen = config.model_dump(include={"encoder", "batching", "loss", "training"}, exclude_none=True)
    return {f"{section}.{name}": value for section, fields in chosen.items() for name, value in fields.items()}
