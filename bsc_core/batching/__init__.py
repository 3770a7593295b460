"""Batch plans: order of rows, batches, and the hardness of their negatives."""

from bsc_core.batching.collisions import KnownPairs, collision_matrix, plan_collisions
from bsc_core.batching.hardness import HardNegative, Hardness, hardest_negatives, plan_hardness, similarity_matrix
from bsc_core.batching.likely_false_negatives import (
    LikelyFalseNegative,
    Reason,
    likely_false_negatives,
    marked_cells,
    mined_false_negatives,
    nearest_false_negatives,
)
from bsc_core.batching.plan import NEED_VECTORS, STRATEGIES, BatchPlan, build_plan, compared_texts
from bsc_core.batching.plan_stats import PlanStats, plan_stats, plan_warnings

__all__ = [
    "NEED_VECTORS",
    "STRATEGIES",
    "BatchPlan",
    "HardNegative",
    "Hardness",
    "KnownPairs",
    "LikelyFalseNegative",
    "PlanStats",
    "Reason",
    "build_plan",
    "collision_matrix",
    "compared_texts",
    "hardest_negatives",
    "likely_false_negatives",
    "marked_cells",
    "mined_false_negatives",
    "nearest_false_negatives",
    "plan_collisions",
    "plan_hardness",
    "plan_stats",
    "plan_warnings",
    "similarity_matrix",
]
