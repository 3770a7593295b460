"""Batch plans: which pairs meet in a batch, and how hard they are for each other."""

from bsc_core.batching.collisions import KnownPairs, collision_matrix
from bsc_core.batching.hardness import HardNegative, Hardness, hardest_negatives, plan_hardness, similarity_matrix
from bsc_core.batching.plan import STRATEGIES, BatchPlan, build_plan

__all__ = [
    "STRATEGIES",
    "BatchPlan",
    "HardNegative",
    "Hardness",
    "KnownPairs",
    "build_plan",
    "collision_matrix",
    "hardest_negatives",
    "plan_hardness",
    "similarity_matrix",
]
