"""The knobs of every loss: one frozen model each, and their union, told apart by `name`.

`needs` says what a batch must hold besides the two matrices of embeddings: `labels` (graded, in [0, 1]), `classes`
(class ids), `negatives` (one more document for each query) or `views` (two dropout views of the queries).
`takes_negatives` says that a loss uses such documents where there are some.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from bsc_core.config.section import LossSection

LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.01, 100.0
"""Between these a learned temperature stays."""
SMALLEST_TEMPERATURE, LARGEST_TEMPERATURE = 1e-6, 1e9
"""Beyond these a fixed one takes float32 to its limits."""


class SoftmaxOverBatch(LossSection):
    """What every loss with a temperature shares."""

    temperature: float = Field(
        0.1, title="Temperature", description="tau: the softmax sees similarity / tau. 0.05 to 0.1 is usual with l2."
    )
    learn_temperature: bool = Field(
        False,
        title="Learn the temperature",
        description="Train the temperature with the encoder, starting from the value above.",
    )
    temperature_parameter: Literal["log", "linear"] = Field(
        "log",
        title="Learned as",
        description="log: log tau, as is usual. linear: 1 / tau itself, as in the released BSC code.",
    )

    @field_validator("temperature")
    @classmethod
    def _positive_temperature(cls, value: float) -> float:
        if not SMALLEST_TEMPERATURE <= value <= LARGEST_TEMPERATURE:
            raise ValueError(
                f"temperature is {value:g}; it must be > 0, from {SMALLEST_TEMPERATURE:g} to {LARGEST_TEMPERATURE:g} "
                "(0.05 to 0.1 is usual with l2, 1 to 3 with column normalization)"
            )
        return value

    @model_validator(mode="after")
    def _learnable_temperature(self) -> SoftmaxOverBatch:
        if self.learn_temperature and not LOWEST_TEMPERATURE <= self.temperature <= HIGHEST_TEMPERATURE:
            raise ValueError(
                f"temperature is {self.temperature:g}; a learned temperature starts between "
                f"{LOWEST_TEMPERATURE:g} and {HIGHEST_TEMPERATURE:g}"
            )
        return self


class BSCLossConfig(SoftmaxOverBatch):
    """Batch-softmax contrastive loss, equations 1 to 5 of the BSC paper."""

    takes_negatives: ClassVar[bool] = True

    name: Literal["bsc"] = Field("bsc", title="Loss", description="Batch-softmax contrastive loss.")
    normalization: Literal["l2", "l2_columns", "range_columns", "minmax_columns", "none"] = Field(
        "l2",
        title="Normalization",
        description="l2: each vector to length 1 (cosine). l2_columns, range_columns (the paper's released code) and "
        "minmax_columns: each coordinate over the batch. none: raw dot products.",
    )
    detach_statistics: bool = Field(
        False,
        title="Detach column statistics",
        description="No gradient through the columns' ranges and lengths; the released code lets it through.",
    )
    symmetric: bool = Field(
        True, title="Symmetric", description="Also let each document choose among the queries (L1 of equation 1)."
    )
    reduction: Literal["mean", "sum"] = Field(
        "mean", title="Two directions", description="mean of L0 and L1, as in the released code; sum, as in equation 1."
    )
    average: Literal["batch", "positives"] = Field(
        "batch",
        title="Averaged over",
        description="batch: every pair counts in the mean (equation 5); positives: only the positive pairs.",
    )
    labelled_negatives: bool = Field(
        True, title="Labelled negatives", description="Pairs labelled negative stay in every denominator (equation 5)."
    )
    duplicates: Literal["keep", "merge", "multi_positive"] = Field(
        "keep",
        title="Repeated texts",
        description="keep: a repeated text is a negative like any other. merge: it counts once. multi_positive: it is "
        "a positive too (equations 3 and 4).",
    )
    threshold: float | None = Field(
        None, ge=0, le=1, title="Positive above", description="None: the threshold of the data."
    )


class MNRLConfig(SoftmaxOverBatch):
    """Multiple negatives ranking loss: each query chooses among all documents of the batch, one direction."""

    takes_negatives: ClassVar[bool] = True

    name: Literal["mnrl"] = Field("mnrl", title="Loss", description="Multiple negatives ranking (in-batch softmax).")
    temperature: float = Field(
        0.05, title="Temperature", description="tau of the cosine; 0.05 is the scale of 20 in sentence-transformers."
    )


class SimCSEConfig(SoftmaxOverBatch):
    """SimCSE without labels: the same text under two dropout masks is the positive pair."""

    needs: ClassVar[frozenset[str]] = frozenset({"views"})

    name: Literal["simcse"] = Field("simcse", title="Loss", description="SimCSE: two dropout views of each query.")
    temperature: float = Field(0.05, title="Temperature", description="tau of the cosine; 0.05 as in SimCSE.")


class SoftmaxLossConfig(LossSection):
    """SBERT's classifier for sentence pairs: cross-entropy on a linear head over (u, v, |u - v|)."""

    needs: ClassVar[frozenset[str]] = frozenset({"classes"})

    name: Literal["softmax"] = Field("softmax", title="Loss", description="Classifier on both embeddings (NLI).")
    num_classes: int = Field(
        3, ge=2, le=10_000, title="Classes", description="3 for NLI: entailment, neutral, contradiction."
    )
    features: tuple[Literal["u", "v", "difference", "product"], ...] = Field(
        ("u", "v", "difference"),
        title="Features",
        description="What the head sees: u, v, difference |u - v|, product u * v. difference and product alone are "
        "symmetric.",
    )
    hidden: int | None = Field(
        None, ge=1, title="Hidden width", description="None: one linear layer (SBERT); 768: the two layers of SCL."
    )
    activation: Literal["none", "tanh", "relu"] = Field(
        "none", title="Activation", description="Between the two layers; none is what the SCL code has."
    )
    frozen_head: bool = Field(
        False,
        title="Frozen head",
        description="A lesson: the article's optimiser leaves the head out, so it stays a random projection.",
    )

    @field_validator("features")
    @classmethod
    def _distinct_features(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError(f"features is {list(value)}; name at least one of u, v, difference, product, each once")
        return value


class SupConLossConfig(SoftmaxOverBatch):
    """Supervised contrastive loss (SCL) on NLI, mixed with the classifier: (1 - mix) * softmax + mix * SCL."""

    needs: ClassVar[frozenset[str]] = frozenset({"classes"})

    name: Literal["supcon"] = Field("supcon", title="Loss", description="Supervised contrastive on NLI (SCL).")
    normalization: Literal["l2", "none"] = Field(
        "l2", title="Normalization", description="l2: cosine, with tau 0.05 to 0.5. none: as in the SCL code, tau 1."
    )
    mix: float = Field(
        0.5, gt=0, le=1, title="Mix", description="lambda: the share of SCL; 1 leaves the classifier out, untrained."
    )
    anchor: Literal["row", "premise"] = Field(
        "row",
        title="Anchor",
        description="row: each entailed row, as in the code. premise: each premise once, as in the paper.",
    )
    max_positives: int | None = Field(
        None, ge=1, title="Most positives", description="Own hypothesis and others drawn at random; None: all."
    )
    max_negatives: int | None = Field(
        None, ge=1, title="Most negatives", description="Drawn at random for each anchor; None: all."
    )
    positive_class: int = Field(0, ge=0, title="Entailment", description="The class id that means entailment.")
    num_classes: int = Field(3, ge=2, le=10_000, title="Classes", description="Of the classifier in the mix.")


class MSELossConfig(LossSection):
    """Regression of the cosine on the label, the second term of equation 6 of the BSC paper."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})

    name: Literal["mse"] = Field("mse", title="Loss", description="Mean squared error of cosine and label.")


class PearsonLossConfig(LossSection):
    """Minus the Pearson correlation of cosines and labels over the batch (section 7 of the BSC paper)."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})

    name: Literal["pearson"] = Field("pearson", title="Loss", description="Minus the correlation with the labels.")


class MarginSection(LossSection):
    """What the losses with a margin share."""

    distance: Literal["cosine", "euclidean"] = Field(
        "cosine", title="Distance", description="cosine: 1 - cosine, in [0, 2]; euclidean: on the raw embeddings."
    )
    margin: float = Field(0.5, gt=0, title="Margin", description="lambda, in units of the distance.")

    @property
    def saturated(self) -> bool:
        """Whether no pair of vectors can meet the margin: cosine distance never exceeds 2."""
        return self.distance == "cosine" and self.margin >= 2


class TripletLossConfig(MarginSection):
    """Triplet loss: the positive has to be nearer than the negative by a margin."""

    needs: ClassVar[frozenset[str]] = frozenset({"negatives"})
    takes_negatives: ClassVar[bool] = True

    name: Literal["triplet"] = Field("triplet", title="Loss", description="Positive nearer than negative by a margin.")
    margin: float = Field(
        0.1, gt=0, title="Margin", description="lambda; 0.1 was best in the margins paper. From 2 on it saturates."
    )
    reduction: Literal["mean", "sum"] = Field("mean", title="Over triplets", description="Mean or sum of the batch.")


class ContrastiveLossConfig(MarginSection):
    """Contrastive loss: positives together, negatives at least a margin apart."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})

    name: Literal["contrastive"] = Field("contrastive", title="Loss", description="Pull positives, push negatives.")
    reduction: Literal["mean", "sum"] = Field("mean", title="Over pairs", description="Mean or sum, each times 0.5.")
    threshold: float | None = Field(
        None, ge=0, le=1, title="Positive above", description="None: the threshold of the data."
    )


class OnlineContrastiveLossConfig(MarginSection):
    """Contrastive loss on the hard pairs of the batch alone."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})

    name: Literal["online_contrastive"] = Field(
        "online_contrastive", title="Loss", description="Contrastive on the hard pairs of the batch only."
    )
    reduction: Literal["mean", "sum"] = Field(
        "sum", title="Over pairs", description="sum, as released: it grows with the batch; mean over the hard pairs."
    )
    threshold: float | None = Field(
        None, ge=0, le=1, title="Positive above", description="None: the threshold of the data."
    )


def name_of(value: Any) -> str | None:
    """The tag of a loss section: its `name`, `bsc` where it gives none."""
    name = value.get("name", "bsc") if isinstance(value, dict) else getattr(value, "name", None)
    return name if isinstance(name, str) else None


SingleLossConfig: TypeAlias = Annotated[
    Annotated[BSCLossConfig, Tag("bsc")]
    | Annotated[MNRLConfig, Tag("mnrl")]
    | Annotated[SimCSEConfig, Tag("simcse")]
    | Annotated[SoftmaxLossConfig, Tag("softmax")]
    | Annotated[SupConLossConfig, Tag("supcon")]
    | Annotated[MSELossConfig, Tag("mse")]
    | Annotated[PearsonLossConfig, Tag("pearson")]
    | Annotated[TripletLossConfig, Tag("triplet")]
    | Annotated[ContrastiveLossConfig, Tag("contrastive")]
    | Annotated[OnlineContrastiveLossConfig, Tag("online_contrastive")],
    Discriminator(name_of),
]
