"""Config of data: files, columns, splits and filters, and rows generated from other data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from bsc_core.config.section import Section

ColumnNames = str | tuple[str, ...]

FilterName = Literal[
    "drop_duplicates",
    "drop_near_duplicates",
    "drop_conflicts",
    "drop_self_pairs",
    "drop_leaks",
    "drop_queries_without_positive",
    "drop_damaged",
]
"""Names of the row filters; see `bsc_core.data.quality.filters`."""


class SentenceColumns(Section):
    """Columns of a file of classified sentences."""

    text: ColumnNames
    """Column of the sentence."""
    class_label: str = Field(title="Class")
    """Column of the class: a name or an integer."""
    split: str | None = None
    """Column with the values train, dev and test."""


class ExamplesConfig(Section):
    """Examples generated from classified sentences: anchors and their nearest neighbors, as in the margins paper."""

    aliases: ClassVar = {"neighbours": "neighbors", "neighbours_of": "neighbors_of"}
    text: ColumnNames | None = None
    """Column of the sentence; none: detected."""
    class_label: str | None = Field(None, title="Class")
    """Column of the class; none: detected."""
    split: str | None = None
    """Column with the values train, dev and test; none: detected; "": no split column."""
    kind: Literal["triplets", "pairs", "same_class"] = "triplets"
    """triplets: anchor, neighbor of its class, neighbor of another class. pairs: anchor and neighbor, labeled 1 for the
    same class and 0 otherwise. same_class: only the pairs labeled 1."""
    encoder: str = Field("bundled", min_length=1, title="Reference encoder")
    """Encoder used to search the neighbors."""
    neighbors: int = Field(16, ge=1, le=1000)
    """Number of neighbors per anchor (k in the paper)."""
    neighbors_of: Literal["each_class", "own_and_others", "all"] = "each_class"
    """each_class: k neighbors from every class (paper, two classes). own_and_others: k from the anchor's class and k
    from all other classes together. all: k from all sentences (released code)."""
    min_similarity: float | None = Field(None, ge=-1, le=1, title="Minimum similarity")
    """Minimum cosine of a neighbor; none: no minimum."""
    min_percentile: float | None = Field(None, ge=0, lt=100, title="Minimum percentile")
    """Minimum similarity as a percentile of the similarities of all neighbors."""
    distinct: bool = Field(True, title="Exclude duplicates")
    """Exclude neighbors that equal or contain the anchor's text, or are contained in it."""
    cap: int | None = Field(None, ge=1, title="Examples per anchor")
    """Maximum number of examples per anchor; none: all."""
    target: int | None = Field(None, ge=2, title="Sample size")
    """Number of examples to sample from all generated examples; an upper limit for dev and test; none: all."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed for sampling examples."""

    @model_validator(mode="after")
    def _one_threshold(self) -> ExamplesConfig:
        if self.min_similarity is not None and self.min_percentile is not None:
            raise ValueError("min_similarity and min_percentile are both set; set one of them")
        return self


class NegativesConfig(Section):
    """Negatives mined for positive pairs: documents that are similar to a query but not its positives."""

    method: Literal["ranks", "hardest", "window"] = "ranks"
    """ranks: documents at ranks first_rank + 2^k (PFCC-S in the BSC paper). hardest: the most similar documents whose
    cosine is at least `margin` below that of the positive. window: documents within limits of rank, score and margin,
    as in mine_hard_negatives of sentence-transformers."""
    encoder: str = Field("bundled", min_length=1, title="Reference encoder")
    """Encoder used to rank the documents."""
    count: int = Field(5, ge=1, le=64, title="Negatives")
    """Number of negatives per query."""
    first_rank: int = Field(100, ge=1, title="Skipped ranks")
    """Method ranks: offset of the selected ranks first_rank + 2^k, the first of which is first_rank + 1; 100 in the
    paper."""
    margin: float = Field(0.05, ge=0, le=2)
    """Method hardest: minimum cosine difference to the positive."""
    range_min: int = Field(0, ge=0)
    """Method window: number of nearest documents that are skipped, counted after the limits are applied."""
    range_max: int | None = Field(None, ge=1)
    """Method window: number of nearest documents that are considered; none: as many as are needed."""
    absolute_margin: float | None = Field(None, ge=-2, le=2)
    """Method window: minimum cosine difference to the least similar positive of the query; none: no limit."""
    relative_margin: float | None = Field(None, ge=0, le=1)
    """Method window: minimum cosine difference as a fraction of the positive's cosine; 0.05 in NV-Retriever; none: no
    limit."""
    min_score: float | None = Field(None, ge=-1, le=1)
    """Method window: minimum cosine of a negative; none: no limit."""
    max_score: float | None = Field(None, ge=-1, le=1)
    """Method window: maximum cosine of a negative; none: no limit."""
    second_opinion: str | None = None
    """Method window: a second encoder, or a cross-encoder of sentence-transformers (a folder or a hub id). Documents
    that it scores above the query's lowest positive minus second_margin are excluded; none: no second model."""
    second_margin: float = Field(0.0, ge=-10, le=10)
    """Method window: margin of second_opinion, in units of its scores."""
    sampling: Literal["top", "random"] = "top"
    """Method window: how negatives are selected from the window. top: the nearest documents. random: a random
    sample."""
    seed: int = Field(0, ge=0, le=2**31)
    """Seed of the random sampling."""
    oversample: bool = Field(True, title="Oversample positives")
    """Repeat positive rows until there are as many as negative rows."""
    as_triplets: bool = False
    """Add the negatives as a column instead of as rows labeled 0."""
    refresh_epochs: int | None = Field(None, ge=1)
    """Number of epochs after which negatives are mined again with the current model. Rows and labels do not change,
    only the negative documents; the run folder stores them. none: the negatives of the reference encoder are used for
    the entire run."""

    @model_validator(mode="after")
    def _usable_window(self) -> NegativesConfig:
        if self.method != "window":
            return self
        if self.range_max is not None and self.range_max - self.range_min < self.count:
            raise ValueError(
                f"range_max is {self.range_max} and range_min is {self.range_min}, too few for count = {self.count}; "
                "raise range_max, or lower range_min or count"
            )
        if self.min_score is not None and self.max_score is not None and self.min_score >= self.max_score:
            raise ValueError(f"min_score is {self.min_score:g} and max_score is {self.max_score:g}; give a range")
        return self

    @property
    def has_limits(self) -> bool:
        """Whether the method window drops documents by score or margin."""
        limits = (self.absolute_margin, self.relative_margin, self.min_score, self.max_score)
        return any(limit is not None for limit in limits)


class NLIConfig(Section):
    """Additional NLI pairs for the supervised contrastive loss."""

    augment: bool = False
    """For each entailed pair, add pairs of its premise with other hypotheses. Hypotheses of the same premise keep their
    class; hypotheses of other premises are added as neutral."""
    negatives: int = Field(1, ge=1, le=64, title="Added pairs")
    """Number of added pairs per entailed pair; their class is neutral or contradiction."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed for sampling hypotheses."""


class Columns(Section):
    """Columns of a file of pairs. Several columns for one text are joined by a space."""

    query: ColumnNames
    """Column of the query (q_i in the papers)."""
    document: ColumnNames
    """Column of the document (a_i in the papers)."""
    label: str | None = None
    """Column of the graded label; none: every pair is positive."""
    query_id: str | None = None
    """Column whose value is the same for all rows of a query; none: the text of the query."""
    document_id: str | None = None
    """Column that joins pairs to the corpus; none: the text."""
    split: str | None = None
    """Column with the values train, dev and test."""
    negative: ColumnNames | None = None
    """Column of an irrelevant document for the query (triplets)."""
    class_label: str | None = Field(None, title="Class")
    """Column of the class, such as entailment, neutral, contradiction: a name or an integer."""


class CorpusColumns(Section):
    """Columns of a corpus file."""

    document: ColumnNames
    """Column of the text to search."""
    document_id: str | None = None
    """Column that joins documents to the pairs."""


class DataConfig(Section):
    """Data files, their columns, splits and filters."""

    aliases: ClassVar = {"dev_share": "dev_size", "remedies": "filters"}
    value_aliases: ClassVar = {
        "filters": {"drop_repeats": "drop_duplicates", "drop_near_repeats": "drop_near_duplicates"}
    }
    train: str = Field(title="Training pairs")
    """CSV, TSV, JSONL (each also .gz), Parquet, a saved dataset, hf://owner/name, or shards."""
    dev: str | None = Field(None, title="Dev pairs")
    """File; none: the dev rows of the split column, else a random split."""
    test: str | None = Field(None, title="Test pairs")
    """File; none: the test rows of the split column, if any."""
    corpus: str | None = None
    """File of the documents to search; required for retrieval metrics."""
    mix: tuple[str, ...] = Field((), title="More training pairs", max_length=100)
    """Additional files of training pairs."""
    columns: Columns | None = None
    """Columns of the pair files; none: detected."""
    corpus_columns: CorpusColumns | None = None
    """Columns of the corpus; none: detected."""
    train_split: str = Field("train", title="Training split")
    """Value of the split column for training rows."""
    dev_split: str = "dev"
    """Value of the split column for dev rows."""
    test_split: str = "test"
    """Value of the split column for test rows."""
    dev_size: float = Field(0.1, gt=0, lt=1)
    """Fraction of the queries held out if there are no dev rows."""
    threshold: float = Field(0.5, ge=0, le=1, title="Positive if label exceeds")
    """Label, in [0, 1], above which a pair is positive."""
    split_by: Literal["query", "component"] = "query"
    """query: all rows of a query are in one split. component: all rows connected by shared texts are in one split, so
    no text is in two splits."""
    filters: tuple[FilterName, ...] = Field((), max_length=30)
    """Filters applied to the rows, in this order; see docs/data.md."""
    text_identity: Literal["exact", "normalized"] = "exact"
    """exact: texts are equal if their characters are the same, without spaces at their ends. normalized: texts that
    differ only in case, punctuation, quotation marks or spaces are also equal, and the first of them replaces the
    others. This applies to duplicates, batches, masks, mining, and evaluation, where every copy of a relevant document
    is relevant."""
    separate_sides: bool = False
    """Encode queries and documents separately, so that a text that is both a query and a document has two vectors. Set
    automatically if the encoder has prompts."""
    false_negatives: str | None = Field(None, title="Decisions about false negatives")
    """File with the columns query, document and decision (positive, drop or true_negative; drop if the column is
    missing). Positive and dropped pairs are never negatives: the rows of the query and of the document are not in the
    same batch. A positive pair becomes a training row. A true negative is not removed by a mask."""
    examples: ExamplesConfig | None = Field(None, title="Examples from sentences")
    """Generate pairs or triplets from classified sentences."""
    negatives: NegativesConfig | None = None
    """Mine negatives for positive pairs."""
    nli: NLIConfig | None = Field(None, title="NLI")
    """Add pairs to NLI rows."""
    label_min: float = Field(0.0, title="Minimum label")
    """Label in the file that is mapped to 0."""
    label_max: float = Field(1.0, title="Maximum label")
    """Label in the file that is mapped to 1, such as 5 for STSb."""

    @property
    def files(self) -> tuple[str, ...]:
        """Paths and Hub ids of the rows and of the corpus."""
        return tuple(path for path in (self.train, self.dev, self.test, self.corpus, *self.mix) if path)

    @model_validator(mode="after")
    def _ordered_labels(self) -> DataConfig:
        if self.label_max <= self.label_min:
            raise ValueError(f"label_max is {self.label_max}; it must be above label_min ({self.label_min})")
        return self
