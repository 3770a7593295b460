"""Batch plans: which pairs meet in a batch, and how hard they are for each other."""

from bsc_core.batching.collisions import KnownPairs, collision_matrix, plan_collisions
from bsc_core.batching.hardness import HardNegative, Hardness, hardest_negatives, plan_hardness, similarity_matrix
from bsc_core.batching.measured import MeasuredPlan, measure_plan
from bsc_core.batching.notes import plan_notes
from bsc_core.batching.plan import NEED_VECTORS, STRATEGIES, BatchPlan, build_plan
from bsc_core.batching.suspects import Reason, Suspect, marked_cells, suspects

__all__ = [
    "NEED_VECTORS",
    "STRATEGIES",
    "BatchPlan",
    "HardNegative",
    "Hardness",
    "KnownPairs",
    "MeasuredPlan",
    "Reason",
    "Suspect",
    "build_plan",
    "collision_matrix",
    "hardest_negatives",
    "marked_cells",
    "measure_plan",
    "plan_collisions",
    "plan_hardness",
    "plan_notes",
    "similarity_matrix",
    "suspects",
]
