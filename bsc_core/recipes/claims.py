"""What a recipe is: a claim of a paper, the runs that put it to the test, and what each statement expects of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bsc_core.comparison import When
from bsc_core.evaluation.bootstrap import Interval
from bsc_core.evaluation.significance import Comparison
from bsc_core.recipes.subsets import Subset
from bsc_core.runs import Run

UNTRAINED = "untrained"
"""The arm that every recipe has: the encoder before any training, on the data of the arm it is compared with."""
SEEDS = (0, 1, 2, 3, 4)
FormName = Literal["full", "small"]


class Measure(Protocol):
    """How the runs of a recipe are measured; `RunMeasure` reads the metrics that every run has."""

    def intervals(self, runs: Sequence[Run], split: str, when: When, metrics: Sequence[str]) -> dict[str, Interval]:
        """For each metric the mean over the runs, which differ in their seed only, with its interval.

        A metric that is not defined for these runs is left out.
        """

    def compare(
        self, first: Sequence[Run], second: Sequence[Run], metric: str, split: str, *, whens: tuple[When, When]
    ) -> Comparison:
        """What the second setting has over the first, each given by the runs of its seeds. whens: of both."""

    def details(self, runs: Sequence[Run], when: When) -> dict[str, Any]:
        """What else is kept of an arm for its pictures, as plain values; empty where there is nothing."""


@dataclass(frozen=True)
class Arm:
    """One setting of a comparison.

    values: config sections over those of the recipe, without `data`. data: the name of one of the recipe's subsets;
    empty: its first. after: the arm, of the same seed, whose model this one starts from.
    """

    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    after: str | None = None


@dataclass(frozen=True)
class Statement:
    """One comparison that a claim makes: `better` is above `worse` by a metric on a split.

    expects: `better`, or `same` within `margin` either way. words: the statement for a reader; empty: made from the
    titles. paper: the difference that the paper shows, in the metric's own units, where it shows one. beside: the paper
    does not say it; it is shown beside the claim and has no part in its verdict.
    """

    better: str
    worse: str
    metric: str
    split: Literal["dev", "test"] = "test"
    expects: Literal["better", "same"] = "better"
    margin: float | None = None
    words: str = ""
    paper: float | None = None
    beside: bool = False


@dataclass(frozen=True)
class Recipe:
    """A claim and what puts it to the test.

    paper: key of PAPERS; table: where the paper shows it; claim: the claim in words. values: config sections that all
    arms share, laid under each arm's own. subsets: the data by name, drawn from folders in the shared format. metrics:
    what is shown of every arm. seeds: of the full form. measure: how runs are measured, None for `RunMeasure`. budget:
    in words, what is equal for the arms. note: what to know when reading the result.
    beside: data sets that nothing is trained on and `measure` reads, by the names it knows them by.
    """

    name: str
    title: str
    paper: str
    table: str
    claim: str
    subsets: Mapping[str, Subset]
    arms: Mapping[str, Arm]
    statements: tuple[Statement, ...]
    metrics: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = SEEDS
    budget: str = ""
    note: str = ""
    measure: Measure | None = None
    beside: Mapping[str, Subset] = field(default_factory=dict)

    def subset_of(self, arm: str) -> str:
        """The name of the subset that an arm is trained and measured on."""
        return self.arms[arm].data or next(iter(self.subsets))


PAPERS = {
    "bsc": "Batch-Softmax Contrastive Loss for Pairwise Sentence Scoring Tasks (Chernyavskiy et al., 2022)",
    "article": "Training Sentence Transformers the OG Way (with Softmax Loss) (Pinecone)",
    "margins": "Margins in Contrastive Learning (Jørgensen and Breitung, 2024)",
    "scl": "Sentence Embeddings using Supervised Contrastive Learning (Liao, 2021)",
    "best": "What serves a user best",
}
