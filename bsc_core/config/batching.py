"""Which pairs meet in a batch: the strategy and its knobs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from bsc_core.config.section import Section

StrategyName = Literal["sequential", "random", "words", "clusters", "neighbours", "examples", "premises"]


class BatchingConfig(Section):
    """In which order pairs meet in batches: the strategy and its knobs."""

    strategy: StrategyName = Field(
        "examples",
        title="Strategy",
        description="examples: groups of nearest neighbours (Algorithm 1 of the BSC paper). words: pairs that share "
        "words (Algorithm 2). clusters: pairs of one k-means cluster. neighbours: pairs that share nearest "
        "neighbours. premises: rows of one query together, as SCL wants them.",
    )
    group_size: int = Field(8, ge=1, title="Group size", description="Rows in a group including the anchor.")
    neighbours: int = Field(500, ge=1, title="Neighbours", description="Nearest neighbours looked at for each anchor.")
    by: Literal["query", "document"] = Field(
        "query", title="Grouped by", description="Side whose texts or vectors are compared."
    )
    metric: Literal["cosine", "l2"] = Field(
        "cosine", title="Nearness", description="cosine, as at search time; l2 on raw vectors, as in the released code."
    )
    search: Literal["auto", "exact", "approximate"] = Field(
        "auto",
        title="Neighbour search",
        description="auto: exact, and approximate where the texts are too many for it; the plan states the recall.",
    )
    distinct_texts: bool = Field(
        True, title="Distinct texts in a group", description="A group takes no row that repeats one of its texts."
    )
    reverse: bool = Field(
        True, title="Easy batches first", description="Reversed order: the leftovers' small groups come first."
    )
    shingle_size: int = Field(
        1, ge=1, le=16, title="Shingle size", description="Words, or neighbours, that the pairs of a group share."
    )
    shingle_neighbours: int = Field(
        5, ge=1, title="Neighbours to share", description="Nearest neighbours that stand for a text's words."
    )
    stop_words: tuple[str, ...] | None = Field(
        None, title="Stop words", description="Words that make no group; none given: the most frequent words."
    )
    stop_count: int = Field(
        100, ge=0, title="Frequent words", description="How many of the most frequent words are stop words."
    )
    clusters: int = Field(300, ge=1, title="Clusters", description="Number of k-means clusters.")
    refresh: Literal["encode", "reuse"] = Field(
        "encode",
        title="New vectors by",
        description="encode: the current model encodes the texts again, or half of them in turns once they hardly "
        "move. reuse: the vectors that the last epoch's steps computed, at no cost.",
    )
    refresh_epochs: int = Field(
        1, ge=1, title="New vectors every", description="Epochs between two looks at the current model's vectors."
    )
    keep_groups: bool = Field(
        False, title="Keep groups whole", description="Fill batches with whole groups where they fit, so none is cut."
    )
    forbid_collisions: bool = Field(
        False,
        title="No collisions in a batch",
        description="No two rows of a batch share a text or a query, or were marked as false negatives of each other.",
    )

    @model_validator(mode="after")
    def _one_wish_at_a_time(self) -> BatchingConfig:
        if self.strategy == "premises" and self.forbid_collisions:
            raise ValueError(
                "forbid_collisions is true, but the strategy premises puts the rows of a query together, which is what "
                "it forbids; leave one of them out"
            )
        return self
