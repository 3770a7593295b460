"""How training pairs are made from other data, and what is mended in them before training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from bsc_core.config.section import Section

Remedy = Literal[
    "drop_repeats",
    "drop_near_repeats",
    "drop_conflicts",
    "drop_self_pairs",
    "drop_leaks",
    "drop_queries_without_positive",
    "drop_damaged",
]
"""What an audit's finding can be answered with; see `bsc_core.data.remedies`."""


class SentenceColumns(Section):
    """Which column of a file of classified sentences plays which role."""

    text: str | tuple[str, ...] = Field(title="Text", description="The sentence.")
    class_label: str = Field(title="Class", description="Its class, in words or as a whole number.")
    split: str | None = Field(None, title="Split", description="Column that says train, dev or test.")


class ExamplesConfig(Section):
    """Examples from classified sentences, as in the paper on margins: an anchor beside its nearest neighbours."""

    text: str | tuple[str, ...] | None = Field(None, title="Text", description="Column of the sentence; none: guessed.")
    class_label: str | None = Field(None, title="Class", description="Column of the class; none: guessed.")
    split: str | None = Field(
        None, title="Split", description='Column of train, dev and test; none: guessed, "": there is none.'
    )
    kind: Literal["triplets", "pairs", "same_class"] = Field(
        "triplets",
        title="Kind",
        description="triplets: anchor, neighbour of its class, neighbour of another. pairs: anchor and neighbour, "
        "labelled 1 for the same class and 0 for another. same_class: the pairs labelled 1.",
    )
    encoder: str = Field("bundled", min_length=1, title="Reference encoder", description="Finds the neighbours.")
    neighbours: int = Field(16, ge=1, title="Neighbours", description="Neighbours of an anchor: the paper's k.")
    neighbours_of: Literal["each_class", "own_and_others", "all"] = Field(
        "each_class",
        title="Neighbours of",
        description="each_class: k of every class (the paper, which has two). own_and_others: k of the anchor's class "
        "and k of all others together. all: k in all (the released code).",
    )
    min_similarity: float | None = Field(
        None, ge=-1, le=1, title="Least similarity", description="Cosine that a neighbour must reach; none: any."
    )
    min_percentile: float | None = Field(
        None,
        ge=0,
        lt=100,
        title="Least percentile",
        description="In place of a number: the percentile of all neighbours' similarities that must be reached.",
    )
    distinct: bool = Field(
        True,
        title="Leave out repeats",
        description="No neighbour that repeats the anchor's text, contains it, or is contained in it.",
    )
    cap: int | None = Field(None, ge=1, title="Cap", description="Most examples of one anchor; none: all.")
    target: int | None = Field(
        None, ge=2, title="Target", description="Examples kept by chance of all that were made; none: all."
    )
    seed: int = Field(0, ge=0, lt=2**31, title="Seed", description="Of the cap and the target's choice.")

    @model_validator(mode="after")
    def _one_threshold(self) -> ExamplesConfig:
        if self.min_similarity is not None and self.min_percentile is not None:
            raise ValueError("min_similarity and min_percentile are both given; give one of them")
        return self


class NegativesConfig(Section):
    """Negatives for pairs that are all positive: documents that are near a query and not its own."""

    method: Literal["ranks", "hardest"] = Field(
        "ranks",
        title="Method",
        description="ranks: documents at the ranks first_rank + 2^k (the BSC paper's PFCC-S). hardest: the nearest "
        "documents that stay below the positive's similarity by a margin.",
    )
    encoder: str = Field("bundled", min_length=1, title="Reference encoder", description="Ranks the documents.")
    count: int = Field(5, ge=1, le=64, title="Negatives", description="Negatives for each query.")
    first_rank: int = Field(100, ge=1, title="First rank", description="ranks: 100 in the paper.")
    margin: float = Field(
        0.05, ge=0, le=2, title="Below the positive by", description="hardest: the cosine that must lie between."
    )
    oversample: bool = Field(
        True, title="Repeat positives", description="Positive rows are repeated until both kinds are as many."
    )
    as_triplets: bool = Field(
        False, title="As triplets", description="A column of negatives in place of rows labelled 0."
    )


class NLIConfig(Section):
    """Natural language inference rows for the supervised contrastive loss."""

    augment: bool = Field(
        False,
        title="Augment",
        description="For each entailed pair also the premise with a hypothesis of the same premise, under its own "
        "class, or with one of another premise as neutral.",
    )
    negatives: int = Field(1, ge=1, le=64, title="Added pairs", description="Added pairs for each entailed pair.")
    seed: int = Field(0, ge=0, lt=2**31, title="Seed", description="Of the hypotheses that are added.")
