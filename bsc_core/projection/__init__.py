"""Maps of texts: (N, D) vectors to (N, 2) points, and how well a map preserves neighborhoods.

`layout`: sampling of texts, UMAP and PCA, neighborhood preservation; `build`: maps stored on disk, built by a child
process with progress; `density`: contours of a map, and regions named by their words.
"""

from bsc_core.projection.build import VectorFile, build_map, main
from bsc_core.projection.layout import (
    align,
    count_shared_neighbors,
    lay_out,
    neighborhood_preservation,
    project,
    sample_rows,
    sample_texts,
)

__all__ = [
    "VectorFile",
    "align",
    "build_map",
    "count_shared_neighbors",
    "lay_out",
    "main",
    "neighborhood_preservation",
    "project",
    "sample_rows",
    "sample_texts",
]
