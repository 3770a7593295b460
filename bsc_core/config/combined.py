"""Weighted sums of losses on the same batch, and the union of all losses."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from bsc_core.config import losses
from bsc_core.config.losses import (
    BSCLossConfig,
    ContrastiveLossConfig,
    MNRLConfig,
    MSELossConfig,
    OnlineContrastiveLossConfig,
    PearsonLossConfig,
    SimCSEConfig,
    SingleLossConfig,
    SoftmaxLossConfig,
    SupConLossConfig,
    TripletLossConfig,
)
from bsc_core.config.section import Section


class WeightedLoss(Section):
    """One summand of a combined loss."""

    weight: float = Field(1.0, gt=0, title="Weight", description="Factor of this loss in the sum.")
    loss: SingleLossConfig = Field(title="Loss", description="Any loss but combined.")


class CombinedLossConfig(Section):
    """A weighted sum of losses on the same batch; equation 6 of the BSC paper is the preset bsc_mse."""

    name: Literal["combined"] = Field("combined", title="Loss", description="A weighted sum of other losses.")
    preset: Literal["bsc_mse", "bsc_pearson", "custom"] = Field(
        "bsc_mse",
        title="Sum",
        description="bsc_mse: mu * bsc + (1 - mu) * mse (equation 6). bsc_pearson: the same with pearson. "
        "custom: the parts below.",
    )
    mu: float = Field(
        0.5, gt=0, lt=1, title="mu", description="Share of bsc in a preset; the paper tries 0.1, 0.5, 0.9."
    )
    bsc: BSCLossConfig = Field(BSCLossConfig(), title="BSC part", description="Settings of bsc in a preset.")
    parts: tuple[WeightedLoss, ...] = Field((), title="Parts", description="The summands of a custom sum.")

    @model_validator(mode="after")
    def _has_parts(self) -> CombinedLossConfig:
        if (self.preset == "custom") != bool(self.parts):
            raise ValueError(
                f"preset is {self.preset} with {len(self.parts)} parts; parts go with preset custom, and with it alone"
            )
        return self

    @property
    def summands(self) -> tuple[WeightedLoss, ...]:
        """The losses of the sum with their weights."""
        if self.preset == "custom":
            return self.parts
        second = MSELossConfig() if self.preset == "bsc_mse" else PearsonLossConfig()
        return (WeightedLoss(weight=self.mu, loss=self.bsc), WeightedLoss(weight=1 - self.mu, loss=second))

    @property
    def needs(self) -> frozenset[str]:
        """What the batch must hold for any of the summands."""
        return frozenset().union(*(part.loss.needs for part in self.summands))

    @property
    def takes_negatives(self) -> bool:
        """Whether any of the summands uses one more document for each query."""
        return any(part.loss.takes_negatives for part in self.summands)


LossConfig: TypeAlias = Annotated[
    Annotated[BSCLossConfig, Tag("bsc")]
    | Annotated[CombinedLossConfig, Tag("combined")]
    | Annotated[MNRLConfig, Tag("mnrl")]
    | Annotated[SimCSEConfig, Tag("simcse")]
    | Annotated[SoftmaxLossConfig, Tag("softmax")]
    | Annotated[SupConLossConfig, Tag("supcon")]
    | Annotated[MSELossConfig, Tag("mse")]
    | Annotated[PearsonLossConfig, Tag("pearson")]
    | Annotated[TripletLossConfig, Tag("triplet")]
    | Annotated[ContrastiveLossConfig, Tag("contrastive")]
    | Annotated[OnlineContrastiveLossConfig, Tag("online_contrastive")],
    Discriminator(losses.name_of),
]

LOSS_CONFIGS: dict[str, type[Section]] = {
    "bsc": BSCLossConfig,
    "combined": CombinedLossConfig,
    "mse": MSELossConfig,
    "pearson": PearsonLossConfig,
    "softmax": SoftmaxLossConfig,
    "supcon": SupConLossConfig,
    "triplet": TripletLossConfig,
    "contrastive": ContrastiveLossConfig,
    "online_contrastive": OnlineContrastiveLossConfig,
    "simcse": SimCSEConfig,
    "mnrl": MNRLConfig,
}
