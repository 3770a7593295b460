"""For each data set the setting that served a user best, as a preset and as the recipe that proves it.

Loss, batches and rate were chosen on one half of the training queries by the gain on the other half; the recipe then
trains on rows of the whole training split and measures on dev, which the choice has never seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bsc_core.recipes.claims import SEEDS, UNTRAINED, Arm, Recipe, Statement
from bsc_core.recipes.preset import Preset
from bsc_core.recipes.subsets import Part, Subset

Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = ("dev", "test")
ARM = "best"
CHOSEN = (
    "Loss, batches and rate were chosen on half of the training queries by the gain on the other half, with a seed "
    "that is not reported here; the rows measured here had no part in it, and no epoch is chosen by them."
)


@dataclass(frozen=True)
class Best:
    """What was found for one data set.

    title and when: of the preset. metric: by which the statement is made; shown: further ones. note: what to know of
    the data. offered: whether the New run page offers it, which only a setting that was shown to be better deserves.
    """

    title: str
    when: str
    subset: Subset
    metric: str
    shown: tuple[str, ...]
    values: Mapping[str, Any]
    note: str = ""
    seeds: tuple[int, ...] = SEEDS
    offered: bool = True

    @property
    def preset(self) -> Preset:
        """The setting as a starting point of the New run page."""
        return Preset(self.title, self.when, {name: dict(section) for name, section in self.values.items()})

    def recipe(self, name: str) -> Recipe:
        """The comparison with the untrained encoder on every part that was held out."""
        folder = self.subset.folder
        return Recipe(
            name=name,
            title=f"The best setting for {self.title}",
            paper="best",
            table="a setting found here",
            claim=f"With this setting training makes the bundled encoder better on {folder}, by {self.metric}.",
            subsets={folder: self.subset},
            arms={ARM: Arm("Trained with the setting", self.values)},
            statements=tuple(self._statement(split) for split in SPLITS if split in self.subset.parts),
            metrics=(self.metric, *self.shown),
            seeds=self.seeds,
            budget=self._in_words(),
            note=f"{CHOSEN} {self.note}".strip(),
        )

    def _statement(self, split: Split) -> Statement:
        words = f"The trained encoder is above the untrained one in {self.metric} on {split}"
        return Statement(ARM, UNTRAINED, self.metric, split, words=words)

    def _in_words(self) -> str:
        training, loss = self.values["training"], self.values["loss"]
        passes = f"{training['epochs']} {'epoch' if training['epochs'] == 1 else 'epochs'}"
        return (
            f"{passes} for each seed with the loss {loss['name']} on {self.values['batching']['strategy']} batches of "
            f"{training['batch_size']}, a rate of {training['learning_rate']:g} and "
            f"{self.values['encoder']['max_length']} tokens of a text"
        )


def _setting(loss: dict[str, Any], batching: dict[str, Any] | None = None, **training: Any) -> dict[str, Any]:
    """A whole setting from the bundled encoder."""
    return {
        "encoder": {"name": "bundled", "max_length": 64},
        "batching": batching or {"strategy": "random"},
        "loss": loss,
        "training": {"epochs": 1, "batch_size": 32, "learning_rate": 2e-5, **training},
    }


_CORRELATION: dict[str, Any] = {"name": "pearson"}
_NEGATIVES_MEET: dict[str, Any] = {"strategy": "examples", "group_size": 8, "distinct_texts": False}

BEST: dict[str, Best] = {
    "best_stsb": Best(
        title="Graded similarity (STSb)",
        when="Sentence pairs with a graded similarity: minus the correlation of cosines and labels over a batch.",
        subset=Subset("stsb", {"train": Part("train", 1600), "dev": Part("dev")}),
        metric="spearman",
        shown=("pearson",),
        values=_setting(_CORRELATION),
    ),
    "best_mrpc": Best(
        title="Paraphrases (MRPC)",
        when="Sentence pairs that say the same or not: squared error of the cosine and the label, 0 or 1.",
        subset=Subset("mrpc", {"train": Part("train", 2000), "dev": Part("dev")}),
        metric="auc",
        shown=("average_precision", "f1", "best_accuracy"),
        note="F1 and accuracy have their thresholds from the dev rows themselves.",
        values=_setting({"name": "mse"}),
    ),
    "best_qqp": Best(
        title="Duplicate questions (QQP)",
        when="Questions that ask the same or not: minus the correlation of cosines and labels over a batch.",
        subset=Subset("qqp", {"train": Part("train", 1600), "dev": Part("test", 1500)}),
        metric="auc",
        shown=("average_precision", "f1"),
        note="QQP has no dev split here: rows of its test split take its place. F1 has its threshold from these rows.",
        values=_setting(_CORRELATION),
    ),
    "best_cqa_a": Best(
        title="Answers to questions (CQA-A)",
        when="Comments of a thread that answer it or not: minus the correlation of cosines and labels over a batch.",
        subset=Subset("cqa_a", {"train": Part("train", 2000), "dev": Part("dev")}),
        metric="map",
        shown=("mrr",),
        values=_setting(_CORRELATION),
    ),
    "best_cqa_b": Best(
        title="Related questions (CQA-B)",
        when="Questions with related ones that help or not: minus the correlation of cosines and labels over a batch.",
        subset=Subset("cqa_b", {"train": Part("train", 1600), "dev": Part("dev")}),
        metric="map",
        shown=("mrr",),
        values=_setting(_CORRELATION),
    ),
    "best_wikiqa": Best(
        title="Sentences that answer a question (WikiQA)",
        when="Questions with sentences of which few are right: batch softmax on cosines, where a question's wrong "
        "sentences meet it in its batch. Leave out the questions without a right one.",
        subset=Subset(
            "wikiqa",
            {"train": Part("train", 4000), "dev": Part("dev")},
            data={"remedies": ("drop_queries_without_positive",)},
        ),
        metric="map",
        shown=("mrr",),
        values=_setting({"name": "bsc", "temperature": 0.05}, _NEGATIVES_MEET, epochs=2, learning_rate=1e-5),
    ),
    "best_pfcc_s": Best(
        title="Claims in a corpus (PFCC-S)",
        when="Queries with their document in a corpus: in-batch softmax, and for each query the wrong document that is "
        "nearest to it, short of the right one (data.negatives finds them).",
        subset=Subset(
            "pfcc_s",
            {"train": Part("train"), "dev": Part("dev")},
            data={"negatives": {"method": "hardest", "count": 1, "margin": 0.0, "as_triplets": True}},
        ),
        metric="mrr",
        shown=("has_positive@1", "has_positive@5"),
        note="Many right claims stand in the corpus twice, with other quotation marks, and only one of the two counts "
        "(benchmarks/corpus_repeats.py); such a copy is never a query's negative. Which of the two "
        "comes first differs from seed to seed: there are five seeds, decided on after the first two.",
        values=_setting({"name": "mnrl", "temperature": 0.05}, epochs=2, learning_rate=3e-5),
        offered=False,
    ),
}
BEST_PRESETS: dict[str, Preset] = {name: best.preset for name, best in BEST.items() if best.offered}
BEST_RECIPES: dict[str, Recipe] = {name: best.recipe(name) for name, best in BEST.items()}
