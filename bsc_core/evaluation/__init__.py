"""Evaluation metrics, confidence intervals and significance tests.

All functions take arrays and return numbers. A metric that is undefined for its data is None, never NaN.

- `metrics`: rankings, scored pairs, polarity and the geometry of the embedding space.
- `probes`: classifiers on frozen vectors, and semantic textual similarity.
- `retrieval`: search over a corpus.
- `stats`: bootstrap intervals and tests.
- `evaluator`: selection of the metrics that fit the data.
"""

from bsc_core.evaluation.evaluator import Evaluator, evaluate, evaluate_queries, main_metric, shared_queries, text_ids
from bsc_core.evaluation.metrics.geometry import alignment, anisotropy, neighbor_overlap, uniformity
from bsc_core.evaluation.metrics.pairs import calibration_curve, pair_metrics
from bsc_core.evaluation.metrics.polarity import combine, pareto_front, polarity_task, sample_pool
from bsc_core.evaluation.metrics.ranking import Metrics, QueryValues, query_ranking_metrics, ranking_metrics
from bsc_core.evaluation.probes.probe import probe
from bsc_core.evaluation.probes.sts import read_sts, sts_result, weighted_spearman
from bsc_core.evaluation.probes.tasks import PROBE_TASKS, ProbeTask, read_probe_task
from bsc_core.evaluation.probes.ten_sentences import GOLD_PAIRS, TEN_SENTENCES, SentenceMap, sentence_map
from bsc_core.evaluation.retrieval.rank import RetrievalResult, RetrievalTask, rank, retrieval_task
from bsc_core.evaluation.stats.bootstrap import (
    Interval,
    bootstrap_mean,
    bootstrap_seeds,
    query_intervals,
)
from bsc_core.evaluation.stats.bootstrap_pairs import ScoredPairs, compare_pairs, pair_intervals
from bsc_core.evaluation.stats.significance import (
    Comparison,
    compare,
    compare_queries,
    compare_seeds,
    holm,
)

__all__ = ["Evaluator", "evaluate", "evaluate_queries", "main_metric", "shared_queries", "text_ids"]
__all__ += ["alignment", "anisotropy", "neighbor_overlap", "uniformity"]
__all__ += ["Metrics", "QueryValues", "calibration_curve", "pair_metrics", "query_ranking_metrics", "ranking_metrics"]
__all__ += ["combine", "pareto_front", "polarity_task", "sample_pool"]
__all__ += ["PROBE_TASKS", "ProbeTask", "probe", "read_probe_task", "read_sts", "sts_result", "weighted_spearman"]
__all__ += ["GOLD_PAIRS", "TEN_SENTENCES", "SentenceMap", "sentence_map"]
__all__ += ["RetrievalResult", "RetrievalTask", "rank", "retrieval_task"]
__all__ += ["Interval", "bootstrap_mean", "bootstrap_seeds", "query_intervals"]
__all__ += ["Comparison", "compare", "compare_queries", "compare_seeds", "holm"]
__all__ += ["ScoredPairs", "compare_pairs", "pair_intervals"]
