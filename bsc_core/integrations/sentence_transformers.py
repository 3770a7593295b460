"""Every loss as an ordinary loss of SentenceTransformerTrainer, and batch plans as its batch sampler.

The first column is the query, the second the document; further columns hold one negative each for every query. Whole
numbers as labels are classes where the loss learns classes; other labels are grades in [0, 1]. Texts count as equal
when their tokens are.
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
from bsc_core.config import CombinedLossConfig, LossConfig, SoftmaxOverBatch, explain
from bsc_core.errors import ConfigError, InputError
from bsc_core.losses import LossParts, build_loss, load_loss, save_loss

Features = dict[str, Tensor]
PlanFor = Callable[[int], BatchPlan]


class BatchLoss(nn.Module):
    """Any loss of this project for SentenceTransformerTrainer.

    config: a loss config, or its fields as a dict with `name`. threshold: labels above it are positive. A learned
    temperature and a classifier's head are parameters of this module, so the trainer's optimiser trains them; `loss` is
    the core's loss, which `bsc_core.losses.save_loss` saves. The trainer's own checkpoints hold the encoder alone: give
    it `callbacks=[LossCheckpoint(loss)]` too where the loss has parameters. A batch of one pair, such as an epoch's
    last row, has no other pair to compare with: its loss is 0 where the loss compares pairs. Raises ConfigError for
    fields that cannot work.
    """

    def __init__(
        self, model: SentenceTransformer, config: LossConfig | dict[str, Any], *, threshold: float = 0.5
    ) -> None:
        super().__init__()
        self.model = model
        try:
            self.config: LossConfig = TypeAdapter(LossConfig).validate_python(config)
        except ValidationError as error:
            raise ConfigError(explain(error)) from None
        self.loss = build_loss(self.config, threshold=threshold, dimensions=model.get_embedding_dimension())

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None) -> Tensor:
        """The loss of one batch as the trainer gives it. Raises InputError when it lacks what the loss needs."""
        total: Tensor = self.parts(list(sentence_features), labels).total
        return total

    def parts(self, columns: list[Features], labels: Tensor | None) -> LossParts:
        """The loss of one batch with its terms."""
        wanted = 1 if "views" in self.config.needs else 2
        if len(columns) < wanted:
            raise InputError(f"{self.config.name} needs {wanted} columns of texts; the batch has {len(columns)}")
        ids = {"query_ids": text_ids([columns[0]])}
        if "views" in self.config.needs:  # each pass has its own dropout; a pass may change its features
            sides = [self._embed(columns[0]), self._embed(columns[0])]
        else:
            used = columns if self.config.takes_negatives else columns[:2]
            ids["document_ids"] = text_ids(used[1:])
            sides = [self._embed(column) for column in used]
        if "classes" in self.config.needs and labels is not None:
            ids["classes"] = labels
            labels = None
        if len(sides[0]) == 1 and _compares(self.config):
            return LossParts(torch.cat(sides).sum() * 0.0, {})  # the last row of an epoch may be left alone
        grades = None if labels is None else labels.float()
        parts: LossParts = self.loss(sides[0], torch.cat(sides[1:]), grades, **ids)
        return parts

    def _embed(self, features: Features) -> Tensor:
        embeddings: Tensor = self.model(dict(features))["sentence_embedding"]
        return embeddings


class _Named(BatchLoss):
    """A loss by its class: BSCLoss(model, temperature=0.05)."""

    name: ClassVar[str]

    def __init__(self, model: SentenceTransformer, *, data_threshold: float = 0.5, **fields: Any) -> None:
        super().__init__(model, {"name": self.name, **fields}, threshold=data_threshold)


class BSCLoss(_Named):
    """The batch-softmax contrastive loss; fields as in BSCLossConfig."""

    name = "bsc"


class CombinedLoss(_Named):
    """A weighted sum of losses; fields as in CombinedLossConfig."""

    name = "combined"


class CosineMSELoss(_Named):
    """Squared error of cosine and grade."""

    name = "mse"


class PearsonLoss(_Named):
    """Minus the correlation of cosines and grades."""

    name = "pearson"


class SoftmaxLoss(_Named):
    """SBERT's classifier; fields as in SoftmaxLossConfig."""

    name = "softmax"


class SupConLoss(_Named):
    """Supervised contrastive loss on NLI; fields as in SupConLossConfig."""

    name = "supcon"


class TripletLoss(_Named):
    """Triplet loss; fields as in TripletLossConfig."""

    name = "triplet"


class ContrastiveLoss(_Named):
    """Contrastive loss; fields as in ContrastiveLossConfig."""

    name = "contrastive"


class OnlineContrastiveLoss(_Named):
    """Contrastive loss on hard pairs; fields as in OnlineContrastiveLossConfig."""

    name = "online_contrastive"


class SimCSELoss(_Named):
    """Two dropout views of the first column; fields as in SimCSEConfig."""

    name = "simcse"


class MNRLoss(_Named):
    """Multiple negatives ranking; fields as in MNRLConfig."""

    name = "mnrl"


class PlannedBatchSampler(DefaultBatchSampler):
    """Deals the batches of a plan, epoch by epoch: `args.batch_sampler = PlannedBatchSampler.with_plans(plan_for)`.

    plan_for(epoch) gives the plan of an epoch, counted from 0, over the rows of the training dataset.
    """

    def __init__(
        self, dataset: Any, plan_for: PlanFor, *, batch_size: int, drop_last: bool = False, **rest: Any
    ) -> None:
        super().__init__(dataset, batch_size=batch_size, drop_last=drop_last, **rest)
        self.plan_for, self.rows = plan_for, len(dataset)
        self._dealt: tuple[int, list[list[int]]] | None = None

    @classmethod
    def with_plans(cls, plan_for: PlanFor) -> Callable[..., PlannedBatchSampler]:
        """What `args.batch_sampler` takes: a function that makes the sampler for the trainer's dataset."""

        def sampler(dataset: Any, **arguments: Any) -> PlannedBatchSampler:
            return cls(dataset, plan_for, **arguments)

        return sampler

    def __iter__(self) -> Iterator[list[int]]:
        """The epoch's batches as row numbers."""
        return iter(self._batches())

    def __len__(self) -> int:
        """Batches of the epoch."""
        return len(self._batches())

    def _batches(self) -> list[list[int]]:
        if self._dealt is None or self._dealt[0] != self.epoch:
            plan = self.plan_for(self.epoch)
            if len(plan) != self.rows:
                raise InputError(f"the plan deals {len(plan)} rows and the dataset has {self.rows}; plan this dataset")
            batches = [rows.tolist() for rows in plan.batches(self.batch_size)]
            kept = [rows for rows in batches if not self.drop_last or len(rows) >= self.batch_size]
            self._dealt = (self.epoch, kept)
        return self._dealt[1]


class LossCheckpoint(TrainerCallback):  # type: ignore[misc]
    """Keeps the loss's parameters in the trainer's checkpoints, and restores them with `resume_from_checkpoint`."""

    def __init__(self, loss: BatchLoss) -> None:
        self.loss = loss.loss

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Write the loss beside the encoder of the checkpoint that was just saved."""
        save_loss(self.loss, self._folder(args, state))

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Restore the loss of the checkpoint that training goes on from. Raises CheckpointError without one."""
        if state.global_step:
            kept = load_loss(self._folder(args, state))
            self.loss.load_state_dict(kept.state_dict())

    def _folder(self, args: Any, state: Any) -> Path:
        return Path(args.output_dir) / f"checkpoint-{state.global_step}" / "loss"


def text_ids(columns: list[Features]) -> Tensor:
    """(columns x B,) long, column after column, equal for rows of equal tokens, padding aside."""
    numbers: dict[tuple[int, ...], int] = {}
    found = [numbers.setdefault(tuple(row.tolist()), len(numbers)) for features in columns for row in _tokens(features)]
    return torch.tensor(found, dtype=torch.long, device=columns[0]["input_ids"].device)


def _tokens(features: Features) -> tuple[Tensor, ...]:
    """The tokens of each row."""
    tokens = features["input_ids"]
    if "offsets" in features:  # StaticEmbedding: flat tokens and where each text starts
        return tuple(torch.tensor_split(tokens.cpu(), features["offsets"].cpu()[1:]))
    return tuple(row[mask.bool()] for row, mask in zip(tokens, features["attention_mask"], strict=True))


def _compares(config: LossConfig) -> bool:
    """Whether the loss compares a pair with the other pairs of its batch."""
    parts = [part.loss for part in config.summands] if isinstance(config, CombinedLossConfig) else [config]
    return any(isinstance(part, SoftmaxOverBatch) for part in parts)
