"""What is measured: arrays in, numbers out, each with what is needed to say how sure it is.

`ranking`, `retrieval`: lists and corpora; `pairs`, `calibration`, `sts`: scored pairs; `polarity`, `tradeoff`: classes
against meaning; `probes`: classifiers on frozen vectors; `geometry`, `ten_sentences`: the space itself; `bootstrap`,
`significance`: intervals and tests; `evaluator`: which of them fit which data. A metric that is not defined for its
data is None, never NaN.
"""

from bsc_core.evaluation.bootstrap import (
    Interval,
    SeededInterval,
    bootstrap_mean,
    bootstrap_seeds,
    bootstrap_statistic,
    query_intervals,
)
from bsc_core.evaluation.calibration import CalibrationCurve, calibration_curve
from bsc_core.evaluation.evaluator import (
    Evaluator,
    evaluate,
    evaluate_queries,
    main_metric,
    shared_queries,
    text_ids,
)
from bsc_core.evaluation.geometry import alignment, anisotropy, neighbour_overlap, uniformity
from bsc_core.evaluation.measures import Metrics, QueryValues
from bsc_core.evaluation.pairs import pair_metrics
from bsc_core.evaluation.polarity import PolarityScores, PolarityTask, draw_pool, polarity_task
from bsc_core.evaluation.probe_tasks import PROBE_TASKS, ProbeTask, read_probe_task
from bsc_core.evaluation.probes import ProbePair, ProbeResult, average, probe, probe_beside
from bsc_core.evaluation.ranking import list_values, ranking_metrics
from bsc_core.evaluation.retrieval import RetrievalResult, RetrievalTask, rank, retrieval_task, search
from bsc_core.evaluation.rows import TextRows
from bsc_core.evaluation.significance import (
    Comparison,
    compare,
    compare_queries,
    compare_seeds,
    compare_statistics,
    holm,
    pair_statistic,
    paired_bootstrap_test,
    paired_permutation_test,
)
from bsc_core.evaluation.sts import StsResult, StsTask, read_sts, sts_average, sts_result, weighted_spearman
from bsc_core.evaluation.ten_sentences import GOLD_PAIRS, TEN_SENTENCES, SentenceMap, sentence_map
from bsc_core.evaluation.tradeoff import Balance, combine, pareto_front

__all__ = [
    "GOLD_PAIRS",
    "PROBE_TASKS",
    "TEN_SENTENCES",
    "Balance",
    "CalibrationCurve",
    "Comparison",
    "Evaluator",
    "Interval",
    "Metrics",
    "PolarityScores",
    "PolarityTask",
    "ProbePair",
    "ProbeResult",
    "ProbeTask",
    "QueryValues",
    "RetrievalResult",
    "RetrievalTask",
    "SeededInterval",
    "SentenceMap",
    "StsResult",
    "StsTask",
    "TextRows",
    "alignment",
    "anisotropy",
    "average",
    "bootstrap_mean",
    "bootstrap_seeds",
    "bootstrap_statistic",
    "calibration_curve",
    "combine",
    "compare",
    "compare_queries",
    "compare_seeds",
    "compare_statistics",
    "draw_pool",
    "evaluate",
    "evaluate_queries",
    "holm",
    "list_values",
    "main_metric",
    "neighbour_overlap",
    "pair_metrics",
    "pair_statistic",
    "paired_bootstrap_test",
    "paired_permutation_test",
    "pareto_front",
    "polarity_task",
    "probe",
    "probe_beside",
    "query_intervals",
    "rank",
    "ranking_metrics",
    "read_probe_task",
    "read_sts",
    "retrieval_task",
    "search",
    "sentence_map",
    "shared_queries",
    "sts_average",
    "sts_result",
    "text_ids",
    "uniformity",
    "weighted_spearman",
]
