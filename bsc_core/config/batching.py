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
    premises: all rows of a query in one batch, as in SCL. communities: groups of pairs that are linked in a graph of
    similar pairs, as in B3. cuthill_mckee: the reverse Cuthill-McKee order of a graph of similar pairs, as in GCBS.
    random: pairs in random order, without groups. sequential: pairs in the order of the file, without groups."""
    group_size: int = Field(8, ge=1)
    """Rows in a group, including the anchor."""
    neighbors: int = Field(500, ge=1)
    """Number of nearest neighbors searched for each anchor by the strategy nearest."""
    group_by: Literal["query", "document"] = "query"
    """Side of the pair whose texts or vectors are compared."""
    metric: Literal["cosine", "l2"] = "cosine"
    """cosine: cosine similarity, as in search. l2: Euclidean distance of the raw vectors, as in the released code."""
    search: Literal["auto", "exact", "approximate"] = Field("auto", title="Neighbor search")
    """auto: exact for small data and approximate for large data; the plan reports the recall of an approximate
    search."""
    distinct_texts: bool = Field(True, title="Distinct texts in a group")
    """Exclude duplicates within a group: rows that repeat a text of their group."""
    easy_first: bool = Field(True, title="Easy batches first")
    """Reverse the order of the strategy nearest, so that the small groups formed last come first."""
    shingle_size: int = Field(1, ge=1, le=16)
    """Number of words (strategy words) or neighbors (strategy neighbors) that the pairs of a group share."""
    shingle_neighbors: int = Field(5, ge=1, le=1000, title="Neighbors to share")
    """Number of nearest neighbors that represent a text in the strategy neighbors."""
    stop_words: tuple[str, ...] | None = None
    """Words that form no groups; none: the most frequent words."""
    stop_count: int = Field(100, ge=0, title="Frequent words")
    """Number of most frequent words that are used as stop words."""
    clusters: int = Field(300, ge=1)
    """Number of k-means clusters; one for every 4 distinct texts if there are fewer texts than clusters."""
    graph_neighbors: int = Field(20, ge=1, le=1000, title="Linked documents")
    """Number of documents to which a pair is linked in the graph of communities and cuthill_mckee."""
    skip_ranks: int = Field(30, ge=0, le=1000, title="Skipped ranks")
    """Strategy communities: number of nearest documents of a query that are not linked, because they are likely false
    negatives."""
    refresh: Literal["encode", "reuse"] = Field("encode", title="Refresh vectors by")
    """encode: encode the texts with the current model, or only half of them if their vectors have hardly changed.
    reuse: use the vectors that the training steps of the last epoch computed."""
    refresh_epochs: int = Field(1, ge=1, title="Refresh every")
    """Number of epochs between two updates of the vectors."""
    keep_groups: bool = Field(False, title="Keep groups together")
    """Fill batches with complete groups if they fit, instead of splitting a group at the end of a batch."""
    no_duplicates: bool = Field(False, title="No duplicates in a batch")
    """No two rows of a batch share a text or a query, and no document of a row is a known positive of another row's
    query, by its label or by a decision about false negatives."""

    single_source: bool = Field(False, title="One dataset per batch")
    """All rows of a batch come from one file of training pairs: train, or one of mix."""
    mixing: Literal["proportional", "round_robin", "temperature"] = "proportional"
    """Order of the batches of several files with single_source. proportional: random order. round_robin: the files take
    turns. temperature: the file of each batch is sampled with a probability proportional to (number of rows)^(1 /
    mixing_temperature)."""
    mixing_temperature: float = Field(1.0, ge=1, le=1000)
    """With 1, files are sampled in proportion to their number of rows. With large values, all files are sampled equally
    often, until the rows of a file are used up."""

    @model_validator(mode="after")
    def _check_premises(self) -> BatchingConfig:
        if self.strategy == "premises" and self.no_duplicates:
            raise ValueError(
                "no_duplicates is true and the strategy is premises, which puts the rows of a query into one batch; "
                "set no_duplicates = false or choose another strategy"
            )
        return self
