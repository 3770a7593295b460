"""What is measured: ranking, retrieval and pair metrics, arrays in and numbers out.

A metric that is not defined for its data is None, never NaN.
"""

from bsc_core.evaluation.evaluator import Evaluator, evaluate, main_metric, text_ids
from bsc_core.evaluation.pairs import pair_metrics
from bsc_core.evaluation.ranking import Metrics, ranking_metrics
from bsc_core.evaluation.retrieval import RetrievalResult, RetrievalTask, rank, retrieval_task, search

__all__ = [
    "Evaluator",
    "Metrics",
    "RetrievalResult",
    "RetrievalTask",
    "evaluate",
    "main_metric",
    "pair_metrics",
    "rank",
    "ranking_metrics",
    "retrieval_task",
    "search",
    "text_ids",
]
