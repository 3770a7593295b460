"""General suite: a small evaluation on everyday English next to the target, so that forgetting is seen.

Its texts are the sample data. Fine-tuning on another domain can improve the target and lose what the encoder could do
before; the general score shows that.
"""

# U distinct texts of a task, D dimensions

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from bsc_core.data.dataset import Corpus, PairDataset, TextTable
from bsc_core.data.io.tables import read_table
from bsc_core.data.load import load_evaluation_data
from bsc_core.data.sample_data import sample_config
from bsc_core.errors import ConfigError
from bsc_core.evaluation.evaluator import evaluate
from bsc_core.evaluation.metrics.ranking import Metrics
from bsc_core.paths import sample_data_folder
from bsc_core.runs.documents import GENERAL_SCORE
from bsc_core.types import Vectors


@dataclass(frozen=True, eq=False)
class GeneralTask:
    """Pairs, the documents to search, the metric that is part of the score, and the name that it is reported by."""

    name: str
    metric: str
    pairs: PairDataset
    corpus: Corpus | None = None


@dataclass(frozen=True, eq=False)
class GeneralSuite:
    """Tasks of the suite.

    - `question_mrr`: 240 questions search their right answer among 838 answers, which include hard negatives (MRR).
    - `subject_map`: the same with every answer on the subject of the question as relevant, hard negatives too (MAP).
    - `premise_mrr`: 80 entailed hypotheses search their premises (MRR).
    - `general_score`: the mean of these.
    """

    tasks: tuple[GeneralTask, ...]

    @classmethod
    def load(cls, *, used: Collection[str] = (), separate_sides: bool = False) -> GeneralSuite:
        """Read the tasks from the sample data.

        Args:
            used: Texts of the data that a model was trained or selected on; a task whose queries contain one of them is
                left out.
            separate_sides: Encode queries and documents with different prompts.

        Raises:
            ConfigError: All tasks are left out.
        """
        known = set(used)
        tasks = [
            task
            for task in (*_questions(separate_sides), _premises(separate_sides))
            if known.isdisjoint(task.pairs.texts.take(np.unique(task.pairs.query)))
        ]
        if not tasks:
            raise ConfigError(
                "evaluation.general is true, and the data contain the texts of the general suite; set it to false"
            )
        return cls(tuple(tasks))

    def evaluate(self, encode: Callable[[TextTable], Vectors]) -> Metrics:
        """Return the metrics of the tasks and their mean.

        Args:
            encode: Called with a table of texts; returns their vectors (U, D).
        """
        result: Metrics = {}
        vectors: dict[str, Vectors] = {}
        for task in self.tasks:
            texts = task.pairs.texts
            if texts.digest not in vectors:
                vectors[texts.digest] = encode(texts)
            result[task.name] = evaluate(vectors[texts.digest], task.pairs, task.corpus)[task.metric]
        values = [0.0 if value is None else value for value in result.values()]
        return {GENERAL_SCORE: float(np.mean(values)), **result}


def _questions(separate_sides: bool) -> tuple[GeneralTask, GeneralTask]:
    pairs, corpus = load_evaluation_data(sample_config().model_copy(update={"separate_sides": separate_sides}))
    return (
        GeneralTask("question_mrr", "mrr", pairs, corpus),
        GeneralTask("subject_map", "map", replace(pairs, label=None), corpus),
    )


def _premises(separate_sides: bool) -> GeneralTask:
    columns = read_table(sample_data_folder() / "nli.tsv").columns
    rows = [row for row, label in enumerate(columns["label"]) if label == "entailment"]
    hypotheses, premises = ([columns[name][row] for row in rows] for name in ("hypothesis", "premise"))
    pairs = PairDataset.from_pairs(hypotheses, premises)
    return GeneralTask("premise_mrr", "mrr", pairs.separate_sides() if separate_sides else pairs)
