"""Config of each loss, and their union, discriminated by `name`.

`needs` lists what a batch must contain in addition to the two embedding matrices: `labels` (graded, in [0, 1]),
`classes` (class ids), `negatives` (one more document per query) or `views` (two dropout views of the queries). A loss
with `takes_negatives` uses additional documents if there are any.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from bsc_core.config.section import LossSection, MatryoshkaSection, Section

LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.01, 100.0
"""Range of a learned temperature."""
SMALLEST_TEMPERATURE, LARGEST_TEMPERATURE = 1e-6, 1e9
"""Range of a fixed temperature, within the limits of float32."""

DirectionName: TypeAlias = Literal["query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc"]
DIRECTIONS: tuple[DirectionName, ...] = ("query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc")

Threshold = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        title="Positive if label exceeds",
        description="Label above which a pair is positive; none: the threshold of the data.",
    ),
]


class SoftmaxOverBatch(LossSection):
    """Fields shared by all losses with a temperature."""

    temperature: float = 0.1
    """tau; logits are similarity / tau. 0.02 to 0.5 is usual with l2."""
    learn_temperature: bool = False
    """Train the temperature together with the encoder; `temperature` is its initial value."""
    temperature_parameter: Literal["log", "linear"] = "log"
    """Parameter that is trained. log: log tau (usual). linear: 1 / tau, as in the released BSC code."""
    temperature_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How a temperature that is not learned changes during training, from `temperature` to `temperature_end`. cosine:
    half a cosine wave."""
    temperature_end: float | None = Field(None, title="Final temperature")
    """tau at the last step of the temperature schedule; none: `temperature`."""

    @field_validator("temperature", "temperature_end")
    @classmethod
    def _positive_temperature(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and not SMALLEST_TEMPERATURE <= value <= LARGEST_TEMPERATURE:
            raise ValueError(
                f"{info.field_name} is {value:g}; it must be > 0, from {SMALLEST_TEMPERATURE:g} to "
                f"{LARGEST_TEMPERATURE:g} (0.02 to 0.5 is usual with l2, 1 to 3 with column normalization)"
            )
        return value

    @model_validator(mode="after")
    def _learnable_temperature(self) -> SoftmaxOverBatch:
        if self.learn_temperature and not LOWEST_TEMPERATURE <= self.temperature <= HIGHEST_TEMPERATURE:
            raise ValueError(
                f"temperature is {self.temperature:g}; a learned temperature must start between "
                f"{LOWEST_TEMPERATURE:g} and {HIGHEST_TEMPERATURE:g}"
            )
        if self.learn_temperature and self.temperature_schedule != "constant":
            raise ValueError(
                f"temperature_schedule is {self.temperature_schedule} and learn_temperature is true; choose one of them"
            )
        if self.temperature_end is not None and self.temperature_schedule == "constant":
            raise ValueError(
                'temperature_end is set and temperature_schedule is constant; set temperature_schedule = "linear" or '
                '"cosine", or remove temperature_end'
            )
        return self


class InBatchSection(SoftmaxOverBatch):
    """Fields shared by the losses whose negatives are the other pairs of the batch."""

    mask: Literal["none", "self", "guide"] = Field("none", title="False-negative mask")
    """Exclude likely false negatives from the denominator: documents whose similarity to the query is above that of the
    positive minus `mask_margin`. The similarities are those of the trained model (self) or of the guide model
    `mask_guide` (guide)."""
    mask_margin: float = Field(0.0, ge=-2, le=2)
    """Margin of the mask; a larger margin excludes more documents. -0.1 excludes only documents that are clearly closer
    than the positive."""
    mask_margin_kind: Literal["absolute", "relative"] = Field("absolute", title="Kind of mask margin")
    """absolute: documents above s - margin are excluded, where s is the similarity of the positive. relative: documents
    above s - margin * |s|."""
    mask_guide: str = Field("bundled", min_length=1, title="Guide model")
    """Guide model of `mask = "guide"`: bundled, static, a folder, a hub id or run:RUN. It is not trained."""
    hardness: Literal["none", "in_batch_negatives", "hard_negatives", "all_negatives"] = Field(
        "none", title="Hardness weights"
    )
    """Negatives of a query whose logit is increased by `hardness_strength` times their cosine, without gradient.
    in_batch_negatives: documents of other rows. hard_negatives: the query's documents from a negative column.
    all_negatives: both."""
    hardness_strength: float = Field(5.0, ge=0, le=100)
    """Strength of the hardness weights; 9 in LLaVE for in-batch negatives, 5 in EmbeddingGemma for hard negatives."""
    decoupled: bool = False
    """Leave the positive out of the denominator (DCL)."""
    debiased_prior: float = Field(0.0, ge=0, lt=1)
    """Assumed share of false negatives among the negatives (tau+ in the paper on the debiased loss); 0: off."""

    @model_validator(mode="after")
    def _bounded_cosine(self) -> InBatchSection:
        normalization, duplicates = getattr(self, "normalization", "l2"), getattr(self, "duplicates", "keep")
        if self.debiased_prior and normalization != "l2":
            raise ValueError(
                f"debiased_prior is {self.debiased_prior:g} and normalization is {normalization}; the estimate needs "
                'cosines, so set normalization = "l2" or debiased_prior = 0'
            )
        if self.debiased_prior and duplicates == "multi_positive":
            raise ValueError(
                f"debiased_prior is {self.debiased_prior:g} and duplicates is multi_positive; the estimate is defined "
                "for one positive, so choose another value of duplicates or debiased_prior = 0"
            )
        return self

    @property
    def guide(self) -> str | None:
        """Name of the encoder whose vectors the loss needs, or None."""
        return self.mask_guide if self.mask == "guide" else None


class DirectedSection(InBatchSection):
    """Fields shared by the in-batch losses of pairs."""

    directions: tuple[DirectionName, ...] = ()
    """Similarities in the denominators. query_to_doc: of a query with the documents. doc_to_query: of a document with
    the queries. query_to_query: of a query with the other queries. doc_to_doc: of a document with the other
    documents."""
    partition: Literal["joint", "per_direction"] = "joint"
    """joint: one softmax over the candidates of all directions. per_direction: one softmax for each direction,
    averaged."""

    @field_validator("directions")
    @classmethod
    def _usable_directions(cls, value: tuple[DirectionName, ...]) -> tuple[DirectionName, ...]:
        if len(set(value)) != len(value) or (value and "query_to_doc" not in value):
            raise ValueError(f"directions is {list(value)}; name query_to_doc and any of the others, each once")
        return tuple(name for name in DIRECTIONS if name in value)

    @model_validator(mode="after")
    def _positive_in_each_direction(self) -> DirectedSection:
        without = [name for name in self.directions if name in ("query_to_query", "doc_to_doc")]
        if without and self.partition == "per_direction":
            raise ValueError(
                f"directions has {' and '.join(without)}, whose candidates do not include the positive, and partition "
                'is per_direction; set partition = "joint"'
            )
        return self


class BSCLossConfig(DirectedSection):
    """Batch-softmax contrastive loss, equations 1 to 5 of the BSC paper."""

    aliases: ClassVar = {"labelled_negatives": "labeled_negatives"}
    takes_negatives: ClassVar[bool] = True

    name: Literal["bsc"] = Field("bsc", title="Loss")
    """Batch-softmax contrastive loss."""
    normalization: Literal["l2", "l2_columns", "range_columns", "minmax_columns", "none"] = "l2"
    """l2: scale each vector to length 1 (cosine). l2_columns, range_columns (released code) and minmax_columns: scale
    each coordinate over the batch. none: raw dot products."""
    detach_statistics: bool = Field(False, title="Detach column statistics")
    """Do not backpropagate through the column ranges and norms; the released code backpropagates through them."""
    symmetric: bool = True
    """Add the loss of each document over the queries (L1 of equation 1). Ignored if `directions` is set."""
    partition: Literal["joint", "per_direction"] = "per_direction"
    """joint: one softmax over the candidates of all directions. per_direction: one softmax for each direction (equation
    1)."""
    reduction: Literal["mean", "sum"] = "mean"
    """mean: mean of L0 and L1, as in the released code. sum: their sum, as in equation 1."""
    average: Literal["batch", "positives"] = Field("batch", title="Average over")
    """batch: all pairs (equation 5). positives: only the positive pairs."""
    labeled_negatives: bool = True
    """Include pairs labeled negative in every denominator (equation 5)."""
    duplicates: Literal["keep", "merge", "multi_positive"] = "keep"
    """keep: a duplicate of a text is a negative like any other. merge: count equal texts once. multi_positive: treat it
    as another positive (equations 3 and 4)."""
    threshold: Threshold = None


class MNRLConfig(DirectedSection):
    """Multiple negatives ranking loss: softmax of each query over all documents of the batch."""

    takes_negatives: ClassVar[bool] = True

    name: Literal["mnrl"] = Field("mnrl", title="Loss")
    """Multiple negatives ranking loss (in-batch softmax)."""
    temperature: float = 0.05
    """tau; 0.05 is scale=20 in sentence-transformers."""
    directions: tuple[DirectionName, ...] = ("query_to_doc",)
    """Similarities in the denominators. query_to_doc: of a query with the documents. doc_to_query: of a document with
    the queries. query_to_query: of a query with the other queries. doc_to_doc: of a document with the other
    documents."""


class SimCSEConfig(InBatchSection):
    """Unsupervised SimCSE: two dropout views of a text are the positive pair."""

    needs: ClassVar[frozenset[str]] = frozenset({"views"})

    name: Literal["simcse"] = Field("simcse", title="Loss")
    """SimCSE: two dropout views of each query."""
    temperature: float = 0.05
    """tau; 0.05 in SimCSE."""


class SoftmaxLossConfig(LossSection):
    """SBERT classifier of sentence pairs: cross-entropy of a linear head on (u, v, |u - v|)."""

    needs: ClassVar[frozenset[str]] = frozenset({"classes"})

    name: Literal["softmax"] = Field("softmax", title="Loss")
    """Classifier on pairs of embeddings (NLI)."""
    num_classes: int = Field(3, ge=2, le=10_000, title="Classes")
    """Number of classes; 3 for NLI (entailment, neutral, contradiction)."""
    features: tuple[Literal["u", "v", "difference", "product"], ...] = ("u", "v", "difference")
    """Inputs of the head: u, v, difference |u - v|, product u * v."""
    hidden: int | None = Field(None, ge=1, title="Hidden width")
    """Width of a hidden layer; none: one linear layer (SBERT). SCL uses 768."""
    activation: Literal["none", "tanh", "relu"] = "none"
    """Activation after the hidden layer; the SCL code has none."""
    frozen_head: bool = False
    """Do not train the head, as in the SBERT article, whose optimizer omits it."""

    @field_validator("features")
    @classmethod
    def _distinct_features(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError(f"features is {list(value)}; name at least one of u, v, difference, product, each once")
        return value

    @property
    def has_classifier(self) -> bool:
        """Whether the loss trains a classifier on the embeddings."""
        return True


class SupConLossConfig(SoftmaxOverBatch):
    """Supervised contrastive loss (SCL) on NLI with a classifier: (1 - mix) * softmax + mix * SCL."""

    needs: ClassVar[frozenset[str]] = frozenset({"classes"})

    name: Literal["supcon"] = Field("supcon", title="Loss")
    """Supervised contrastive loss on NLI (SCL)."""
    normalization: Literal["l2", "none"] = "l2"
    """l2: cosine, with tau 0.02 to 0.5. none: dot product with tau 1, as in the SCL code."""
    mix: float = Field(0.5, gt=0, le=1)
    """lambda, the weight of SCL; with 1, the classifier is not trained."""
    anchor: Literal["row", "premise"] = "row"
    """row: each entailed row, as in the released code. premise: each premise once, as in the paper."""
    max_positives: int | None = Field(None, ge=1, title="Maximum positives")
    """Maximum number of positives sampled per anchor; none: all."""
    max_negatives: int | None = Field(None, ge=1, title="Maximum negatives")
    """Maximum number of negatives sampled per anchor; none: all."""
    positive_class: int = Field(0, ge=0)
    """Id of the class entailment."""
    num_classes: int = Field(3, ge=2, le=10_000, title="Classes")
    """Number of classes of the classifier."""

    @property
    def has_classifier(self) -> bool:
        """Whether the loss trains a classifier on the embeddings."""
        return self.mix < 1


class SigmoidLossConfig(SoftmaxOverBatch):
    """Sigmoid loss (SigLIP): binary classification of each pair of a query and a document of the batch."""

    takes_negatives: ClassVar[bool] = True

    name: Literal["sigmoid"] = Field("sigmoid", title="Loss")
    """Binary cross-entropy of every pair of a query and a document of the batch."""
    learn_temperature: bool = True
    """Train the temperature together with the encoder; `temperature` is its initial value."""
    bias: float = -10.0
    """Added to all logits; balances the large number of negatives at the start of training. -10 in SigLIP."""
    learn_bias: bool = True
    """Train the bias; `bias` is its initial value."""
    threshold: Threshold = None


class MSELossConfig(LossSection):
    """Mean squared error of the cosine and the label; the second term of equation 6 of the BSC paper."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})

    name: Literal["mse"] = Field("mse", title="Loss")
    """Mean squared error of cosine and label."""


class PearsonLossConfig(LossSection):
    """Negative Pearson correlation of cosines and labels over the batch (section 7 of the BSC paper)."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})

    name: Literal["pearson"] = Field("pearson", title="Loss")
    """Negative correlation with the labels."""


class CoSENTLossConfig(SoftmaxOverBatch):
    """CoSENT: pairs with a higher label get a higher cosine than pairs with a lower label."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})

    name: Literal["cosent"] = Field("cosent", title="Loss")
    """Order of the cosines by the labels (CoSENT)."""
    temperature: float = 0.05
    """tau; 0.05 is scale=20 in sentence-transformers."""


class AngleLossConfig(SoftmaxOverBatch):
    """AnglE: CoSENT on the angle difference of the embeddings as complex numbers."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})

    name: Literal["angle"] = Field("angle", title="Loss")
    """Order of the complex angles by the labels (AnglE)."""
    temperature: float = 0.05
    """tau; 0.05 is scale=20 in sentence-transformers."""


class MarginSection(LossSection):
    """Fields shared by the losses with a margin."""

    distance: Literal["cosine", "euclidean"] = "cosine"
    """cosine: 1 - cosine, in [0, 2]. euclidean: distance of the raw embeddings."""
    margin: float = Field(0.5, gt=0)
    """Margin lambda, in units of the distance."""

    large_margin: ClassVar[str]
    """Effect of a cosine margin of 2 or more, after "The margin is X; "."""

    @property
    def margin_warning(self) -> str | None:
        """What a margin of 2 or more means with the cosine distance; None for a smaller one."""
        if self.distance != "cosine" or self.margin < 2:
            return None
        return f"The margin is {self.margin:g}; {self.large_margin}"


class TripletLossConfig(MarginSection):
    """Triplet loss: the positive is closer than the negative by a margin."""

    needs: ClassVar[frozenset[str]] = frozenset({"negatives"})
    takes_negatives: ClassVar[bool] = True
    large_margin: ClassVar[str] = (
        "two cosine distances differ by at most 2, so all triplet margins of 2 or more give the same gradient."
    )

    name: Literal["triplet"] = Field("triplet", title="Loss")
    """Positive closer than negative by a margin."""
    margin: float = Field(0.1, gt=0)
    """Margin lambda; 0.1 was best in the margins paper. With the cosine distance, all margins of 2 or more give equal
    gradients."""
    reduction: Literal["mean", "sum"] = "mean"
    """Mean or sum over the triplets of the batch."""


class ContrastiveLossConfig(MarginSection):
    """Contrastive loss: positives close together, negatives at least a margin apart."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    large_margin: ClassVar[str] = "a cosine distance is at most 2, so every negative pair is pushed apart."

    name: Literal["contrastive"] = Field("contrastive", title="Loss")
    """Pull positives together, push negatives apart."""
    reduction: Literal["mean", "sum"] = "mean"
    """Mean or sum over the pairs, times 0.5."""
    threshold: Threshold = None


class OnlineContrastiveLossConfig(MarginSection):
    """Contrastive loss on the hard pairs of the batch, as in sentence-transformers."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})
    large_margin: ClassVar[str] = "a cosine distance is at most 2, so every hard negative pair is pushed apart."

    name: Literal["online_contrastive"] = Field("online_contrastive", title="Loss")
    """Contrastive loss on the hard pairs of the batch."""
    reduction: Literal["mean", "sum"] = "sum"
    """sum, as in the released code (it grows with the batch), or mean over the hard pairs."""
    threshold: Threshold = None


def loss_name(value: Any) -> str | None:
    """Return the `name` of a loss section, `bsc` by default; the tag of the union."""
    name = value.get("name", "bsc") if isinstance(value, dict) else getattr(value, "name", None)
    return name if isinstance(name, str) else None


_SingleLoss: TypeAlias = (
    Annotated[BSCLossConfig, Tag("bsc")]
    | Annotated[MNRLConfig, Tag("mnrl")]
    | Annotated[SimCSEConfig, Tag("simcse")]
    | Annotated[SoftmaxLossConfig, Tag("softmax")]
    | Annotated[SupConLossConfig, Tag("supcon")]
    | Annotated[MSELossConfig, Tag("mse")]
    | Annotated[PearsonLossConfig, Tag("pearson")]
    | Annotated[CoSENTLossConfig, Tag("cosent")]
    | Annotated[AngleLossConfig, Tag("angle")]
    | Annotated[SigmoidLossConfig, Tag("sigmoid")]
    | Annotated[TripletLossConfig, Tag("triplet")]
    | Annotated[ContrastiveLossConfig, Tag("contrastive")]
    | Annotated[OnlineContrastiveLossConfig, Tag("online_contrastive")]
)
SingleLossConfig: TypeAlias = Annotated[_SingleLoss, Discriminator(loss_name)]


class WeightedLoss(Section):
    """One term of a combined loss."""

    weight: float = Field(1.0, gt=0)
    """Weight of this loss in the sum."""
    loss: SingleLossConfig
    """Any loss except combined."""


class CombinedLossConfig(MatryoshkaSection):
    """Weighted sum of losses on the same batch; the preset bsc_mse is equation 6 of the BSC paper."""

    name: Literal["combined"] = Field("combined", title="Loss")
    """Weighted sum of other losses."""
    preset: Literal["bsc_mse", "bsc_pearson", "custom"] = Field("bsc_mse", title="Terms")
    """bsc_mse: mu * bsc + (1 - mu) * mse (equation 6). bsc_pearson: mu * bsc + (1 - mu) * pearson. custom: the terms in
    `parts`."""
    mu: float = Field(0.5, gt=0, lt=1, title="mu")
    """Weight of bsc in a preset; the paper uses 0.1, 0.5 and 0.9."""
    bsc: BSCLossConfig = Field(BSCLossConfig(), title="BSC term")
    """Parameters of bsc in a preset."""
    parts: tuple[WeightedLoss, ...] = Field((), title="Custom terms", max_length=20)
    """Losses of a custom sum, with their weights."""

    @model_validator(mode="after")
    def _has_parts(self) -> CombinedLossConfig:
        if self.preset == "custom" and not self.parts:
            raise ValueError("preset is custom and parts is empty; add at least one [[loss.parts]]")
        if self.preset != "custom" and self.parts:
            raise ValueError(f'parts is set and preset is {self.preset}; set preset = "custom" or remove parts')
        return self

    @property
    def summands(self) -> tuple[WeightedLoss, ...]:
        """Losses of the sum with their weights."""
        if self.preset == "custom":
            return self.parts
        second = MSELossConfig() if self.preset == "bsc_mse" else PearsonLossConfig()
        return (WeightedLoss(weight=self.mu, loss=self.bsc), WeightedLoss(weight=1 - self.mu, loss=second))

    @property
    def needs(self) -> frozenset[str]:
        """Data that the batch must contain for the terms; see the module."""
        return frozenset().union(*(part.loss.needs for part in self.summands))

    @property
    def takes_negatives(self) -> bool:
        """Whether any term uses an additional document per query."""
        return any(part.loss.takes_negatives for part in self.summands)

    @property
    def guide(self) -> str | None:
        """Name of the encoder whose vectors the terms need, or None."""
        return next((part.loss.guide for part in self.summands if part.loss.guide is not None), None)

    @property
    def has_classifier(self) -> bool:
        """Whether a term trains a classifier on the embeddings."""
        return any(part.loss.has_classifier for part in self.summands)

    @model_validator(mode="after")
    def _one_guide(self) -> CombinedLossConfig:
        guides = list(dict.fromkeys(part.loss.guide for part in self.summands if part.loss.guide is not None))
        if len(guides) > 1:
            raise ValueError(f"the terms have the guides {', '.join(guides)}; use one guide for all of them")
        return self


LossConfig: TypeAlias = Annotated[
    _SingleLoss | Annotated[CombinedLossConfig, Tag("combined")], Discriminator(loss_name)
]


def single_losses(loss: LossConfig) -> list[SingleLossConfig]:
    """Return the losses of a weighted sum, or the loss itself."""
    return [part.loss for part in loss.summands] if isinstance(loss, CombinedLossConfig) else [loss]


LOSS_CONFIGS: dict[str, type[Section]] = {
    "bsc": BSCLossConfig,
    "combined": CombinedLossConfig,
    "mse": MSELossConfig,
    "pearson": PearsonLossConfig,
    "cosent": CoSENTLossConfig,
    "angle": AngleLossConfig,
    "softmax": SoftmaxLossConfig,
    "supcon": SupConLossConfig,
    "triplet": TripletLossConfig,
    "contrastive": ContrastiveLossConfig,
    "online_contrastive": OnlineContrastiveLossConfig,
    "simcse": SimCSEConfig,
    "mnrl": MNRLConfig,
    "sigmoid": SigmoidLossConfig,
}
