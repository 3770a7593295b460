"""Config of batching: which pairs share a batch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from bsc_core.config.section import Section

StrategyName = Literal[
    "sequential",
    "random",
    "words",
    "clusters",
    "neighbors",
    "nearest",
    "premises",
    "communities",
    "cuthill_mckee",
]


class BatchingConfig(Section):
    """Batching strategy and its parameters."""

    aliases: ClassVar = {
        "by": "group_by",
        "reverse": "easy_first",
        "forbid_collisions": "no_duplicates",
        "neighbours": "neighbors",
        "shingle_neighbours": "shingle_neighbors",
    }
    value_aliases: ClassVar = {"strategy": {"examples": "nearest", "neighbours": "neighbors"}}
    strategy: StrategyName = "nearest"
    """nearest: groups of nearest neighbors (Algorithm 1 of the BSC paper). words: groups of pairs that share words
    (Algorithm 2). clusters: pairs of one k-means cluster. neighbors: groups of pairs that share nearest neighbors.
    premises: all rows of a query together, as in SCL. communities: groups of pairs that are linked in the graph of
    ranks, as in B3. cuthill_mckee: the Cuthill-McKee order of the graph of nearest documents, as in GCBS. random and
    sequential: no groups."""
    group_size: int = Field(8, ge=1)
    """Rows in a group, including the anchor."""
    neighbors: int = Field(500, ge=1)
    """Number of nearest neighbors searched for each anchor by the strategy nearest."""
    group_by: Literal["query", "document"] = "query"
    """Side of the pair whose texts or vectors are compared."""
    metric: Literal["cosine", "l2"] = "cosine"
    """cosine: similarity as used in search. l2: distance of the raw vectors, as in the released code."""
    search: Literal["auto", "exact", "approximate"] = Field("auto", title="Neighbor search")
    """auto: exact, or approximate for large data; the plan reports the recall."""
    distinct_texts: bool = Field(True, title="Distinct texts in a group")
    """Exclude duplicates within a group: rows that repeat a text of their group."""
    easy_first: bool = Field(True, title="Easy batches first")
    """Reverse the order of the strategy nearest, so that the small groups formed last come first."""
    shingle_size: int = Field(1, ge=1, le=16)
    """Number of words, or neighbors, that a group's pairs share."""
    shingle_neighbors: int = Field(5, ge=1, title="Neighbors to share")
    """Number of nearest neighbors that represent a text in the strategy neighbors."""
    stop_words: tuple[str, ...] | None = None
    """Words that form no groups; none: the most frequent words."""
    stop_count: int = Field(100, ge=0, title="Frequent words")
    """Number of most frequent words that are used as stop words."""
    clusters: int = Field(300, ge=1)
    """Number of k-means clusters."""
    graph_neighbors: int = Field(20, ge=1, le=1000, title="Linked documents")
    """Number of documents to which a pair is linked in the graph of communities and cuthill_mckee."""
    skip_ranks: int = Field(30, ge=0, title="Skipped ranks")
    """Number of nearest documents of a query that the strategy communities does not link, as likely false negatives."""
    refresh: Literal["encode", "reuse"] = Field("encode", title="Refresh vectors by")
    """encode: encode the texts with the current model; only half of them if their vectors have hardly changed. reuse:
    use the vectors computed by the steps of the last epoch, without encoding again."""
    refresh_epochs: int = Field(1, ge=1, title="Refresh every")
    """Number of epochs between two updates of the vectors."""
    keep_groups: bool = Field(False, title="Keep groups together")
    """Fill batches with complete groups where they fit, instead of cutting groups at batch ends."""
    no_duplicates: bool = Field(False, title="No duplicates in a batch")
    """No two rows of a batch share a text or a query, or are marked as false negatives of each other."""

    single_source: bool = Field(False, title="One dataset per batch")
    """All rows of a batch come from one file of training pairs: train, or one of mix."""
    mixing: Literal["proportional", "round_robin", "temperature"] = "proportional"
    """Order of the batches of several files, with single_source. proportional: random order. round_robin: the files
    take turns. temperature: a file is sampled in proportion to its rows to the power of 1 / mixing_temperature."""
    mixing_temperature: float = Field(1.0, ge=1, le=1000)
    """1: in proportion to the rows of a file. Large: all files equally often, until the rows of one are used up."""

    @model_validator(mode="after")
    def _check_premises(self) -> BatchingConfig:
        if self.strategy == "premises" and self.no_duplicates:
            raise ValueError(
                "no_duplicates is true and the strategy is premises, which puts the rows of a query into one batch; "
                "set no_duplicates = false or choose another strategy"
            )
        return self
