"""Losses and batch sampler for SentenceTransformerTrainer.

The first column is the query, the second the document, and each further column holds one negative per query. Labels are
class numbers for losses that learn classes, otherwise grades in [0, 1]. Texts with equal tokens are the same text.
"""

# B rows in a batch, K = number of negative columns times B

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import TypeAdapter, ValidationError
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import Tensor, nn
from transformers import TrainerCallback

from bsc_core.batching import BatchPlan
from bsc_core.config import LossConfig, SoftmaxOverBatch, single_losses, validation_message
from bsc_core.errors import ConfigError, InputError
from bsc_core.losses import LossParts, build_loss, load_loss, save_loss

Features = dict[str, Tensor]
PlanFor = Callable[[int], BatchPlan]


class BatchLoss(nn.Module):
    """Any loss of this project for SentenceTransformerTrainer.

    A learned temperature and a classification head are parameters of this module, so the trainer trains them. The
    trainer's checkpoints hold only the encoder; add `callbacks=[LossCheckpoint(loss)]` if the loss has parameters. The
    loss of a batch of one pair is 0 for losses that compare pairs. A mask with a guide needs a run of this project.

    Args:
        model: The encoder.
        config: A loss config, or its fields as a dict with `name`.
        threshold: Labels above it are positive.

    Attributes:
        loss: The loss module, which `bsc_core.losses.save_loss` saves.

    Raises:
        ConfigError: The config is not valid.
    """

    def __init__(
        self, model: SentenceTransformer, config: LossConfig | dict[str, Any], *, threshold: float = 0.5
    ) -> None:
        super().__init__()
        self.model = model
        try:
            self.config: LossConfig = TypeAdapter(LossConfig).validate_python(config)
        except ValidationError as error:
            raise ConfigError(validation_message(error)) from None
        if self.config.guide is not None:
            raise ConfigError('mask is guide; in SentenceTransformerTrainer, use mask = "self" or GISTEmbedLoss')
        self.loss = build_loss(self.config, threshold=threshold, dimensions=model.get_embedding_dimension())

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None) -> Tensor:
        """Compute the loss of a batch of the trainer.

        Raises:
            InputError: A column is missing.
        """
        total: Tensor = self.parts(list(sentence_features), labels).total
        return total

    def parts(self, columns: list[Features], labels: Tensor | None) -> LossParts:
        """Compute the loss of a batch with its terms."""
        minimum = 1 if "views" in self.config.needs else 2
        if len(columns) < minimum:
            raise InputError(f"{self.config.name} needs {minimum} columns of texts; the batch has {len(columns)}")
        ids = {"query_ids": text_ids([columns[0]])}
        if "views" in self.config.needs:  # two passes with different dropout
            sides = [self._embed(columns[0]), self._embed(columns[0])]
        else:
            used = columns if self.config.takes_negatives else columns[:2]
            ids["document_ids"] = text_ids(used[1:])
            sides = [self._embed(column) for column in used]
        if "classes" in self.config.needs and labels is not None:
            ids["classes"] = labels
            labels = None
        if len(sides[0]) == 1 and _compares(self.config):
            return LossParts(torch.cat(sides).sum() * 0.0, {})  # such as the last row of an epoch
        grades = None if labels is None else labels.float()
        parts: LossParts = self.loss(sides[0], torch.cat(sides[1:]), grades, **ids)
        return parts

    def _embed(self, features: Features) -> Tensor:
        embeddings: Tensor = self.model(dict(features))["sentence_embedding"]
        return embeddings


class _NamedLoss(BatchLoss):
    """Base of the losses with a class each: BSCLoss(model, temperature=0.05)."""

    name: ClassVar[str]

    def __init_subclass__(cls, name: str = "") -> None:
        cls.name = name or cls.name

    def __init__(self, model: SentenceTransformer, *, data_threshold: float = 0.5, **fields: Any) -> None:
        super().__init__(model, {"name": self.name, **fields}, threshold=data_threshold)


class BSCLoss(_NamedLoss, name="bsc"):
    """The batch-softmax contrastive loss; fields as in BSCLossConfig."""


class CombinedLoss(_NamedLoss, name="combined"):
    """A weighted sum of losses; fields as in CombinedLossConfig."""


class CosineMSELoss(_NamedLoss, name="mse"):
    """Squared error of cosine and grade."""


class PearsonLoss(_NamedLoss, name="pearson"):
    """Minus the correlation of cosines and grades."""


class SoftmaxLoss(_NamedLoss, name="softmax"):
    """Softmax classifier of SBERT; fields as in SoftmaxLossConfig."""


class SupConLoss(_NamedLoss, name="supcon"):
    """Supervised contrastive loss on NLI; fields as in SupConLossConfig."""


class TripletLoss(_NamedLoss, name="triplet"):
    """Triplet loss; fields as in TripletLossConfig."""


class ContrastiveLoss(_NamedLoss, name="contrastive"):
    """Contrastive loss; fields as in ContrastiveLossConfig."""


class OnlineContrastiveLoss(_NamedLoss, name="online_contrastive"):
    """Contrastive loss on hard pairs; fields as in OnlineContrastiveLossConfig."""


class SimCSELoss(_NamedLoss, name="simcse"):
    """Two dropout views of the first column; fields as in SimCSEConfig."""


class MNRLoss(_NamedLoss, name="mnrl"):
    """Multiple negatives ranking; fields as in MNRLConfig."""


class SigmoidLoss(_NamedLoss, name="sigmoid"):
    """Sigmoid pair loss; fields as in SigmoidLossConfig."""


class CoSENTLoss(_NamedLoss, name="cosent"):
    """Order of the cosines by the grades; fields as in CoSENTLossConfig."""


class AngleLoss(_NamedLoss, name="angle"):
    """Order of the complex angles by the grades; fields as in AngleLossConfig."""


class PlannedBatchSampler(DefaultBatchSampler):
    """Batch sampler that follows a plan: `args.batch_sampler = PlannedBatchSampler.with_plans(plan_for)`.

    `plan_for(epoch)` returns the plan of an epoch, from 0, over the rows of the training dataset.
    """

    def __init__(
        self, dataset: Any, plan_for: PlanFor, *, batch_size: int, drop_last: bool = False, **rest: Any
    ) -> None:
        super().__init__(dataset, batch_size=batch_size, drop_last=drop_last, **rest)
        self.plan_for, self.rows = plan_for, len(dataset)
        self._epoch_batches: tuple[int, list[list[int]]] | None = None

    @classmethod
    def with_plans(cls, plan_for: PlanFor) -> Callable[..., PlannedBatchSampler]:
        """Return a function for `args.batch_sampler` that builds the sampler for the trainer's dataset."""

        def sampler(dataset: Any, **arguments: Any) -> PlannedBatchSampler:
            return cls(dataset, plan_for, **arguments)

        return sampler

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the epoch's batches of row numbers."""
        return iter(self._batches())

    def __len__(self) -> int:
        """Return the number of batches of the epoch."""
        return len(self._batches())

    def _batches(self) -> list[list[int]]:
        if self._epoch_batches is None or self._epoch_batches[0] != self.epoch:
            plan = self.plan_for(self.epoch)
            if len(plan) != self.rows:
                raise InputError(f"the plan has {len(plan)} rows and the dataset has {self.rows}; plan this dataset")
            batches = [rows.tolist() for rows in plan.batches(self.batch_size)]
            if self.drop_last:
                batches = [rows for rows in batches if len(rows) >= self.batch_size]
            self._epoch_batches = (self.epoch, batches)
        return self._epoch_batches[1]


class LossCheckpoint(TrainerCallback):  # type: ignore[misc]
    """Saves the loss in the trainer's checkpoints, and restores it with `resume_from_checkpoint`."""

    def __init__(self, loss: BatchLoss) -> None:
        self.loss = loss.loss

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Save the loss in the checkpoint that was just saved."""
        save_loss(self.loss, self._folder(args, state))

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Restore the loss of the checkpoint that training resumes from.

        Raises:
            CheckpointError: The checkpoint has no loss.
        """
        if state.global_step:
            saved = load_loss(self._folder(args, state))
            self.loss.load_state_dict(saved.state_dict())

    def _folder(self, args: Any, state: Any) -> Path:
        return Path(args.output_dir) / f"checkpoint-{state.global_step}" / "loss"


def text_ids(columns: list[Features]) -> Tensor:
    """Return ids, shape (columns * B,), column after column, equal for rows with equal tokens apart from padding."""
    numbers: dict[tuple[int, ...], int] = {}
    ids = [numbers.setdefault(tuple(row.tolist()), len(numbers)) for features in columns for row in _tokens(features)]
    return torch.tensor(ids, dtype=torch.long, device=columns[0]["input_ids"].device)


def _tokens(features: Features) -> tuple[Tensor, ...]:
    """Return the tokens of each row."""
    tokens = features["input_ids"]
    if "offsets" in features:  # StaticEmbedding: flat tokens and the start of each text
        return tuple(torch.tensor_split(tokens.cpu(), features["offsets"].cpu()[1:]))
    return tuple(row[mask.bool()] for row, mask in zip(tokens, features["attention_mask"], strict=True))


def _compares(config: LossConfig) -> bool:
    """Return whether the loss compares a pair with the other pairs of its batch."""
    return any(isinstance(part, SoftmaxOverBatch) for part in single_losses(config))
