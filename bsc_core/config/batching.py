"""Config of batching: which pairs share a batch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from bsc_core.config.section import Section

StrategyName = Literal["sequential", "random", "words", "clusters", "neighbors", "nearest", "premises"]


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
    premises: all rows of a query together, as in SCL. random and sequential: no groups."""
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
    refresh: Literal["encode", "reuse"] = Field("encode", title="Refresh vectors by")
    """encode: encode the texts with the current model; only half of them if their vectors have hardly changed. reuse:
    use the vectors computed by the steps of the last epoch, without encoding again."""
    refresh_epochs: int = Field(1, ge=1, title="Refresh every")
    """Number of epochs between two updates of the vectors."""
    keep_groups: bool = Field(False, title="Keep groups together")
    """Fill batches with complete groups where they fit, instead of cutting groups at batch ends."""
    no_duplicates: bool = Field(False, title="No duplicates in a batch")
    """No two rows of a batch share a text or a query, or are marked as false negatives of each other."""

    @model_validator(mode="after")
    def _check_premises(self) -> BatchingConfig:
        if self.strategy == "premises" and self.no_duplicates:
            raise ValueError(
                "no_duplicates is true and the strategy is premises, which puts the rows of a query into one batch; "
                "set no_duplicates = false or choose another strategy"
            )
        return self
