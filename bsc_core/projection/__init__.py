"""Maps of texts: (N, D) vectors to (N, 2) points, how far a map can be trusted, and the child process that makes one.

`layout`: UMAP and PCA, several models in one frame; `neighbours`: the nearest in embedding space, and a map's trust;
`texts`: which texts are drawn; `making`: maps kept on disk, with progress.
"""

from bsc_core.projection.layout import METHODS, SMALLEST_UMAP, lay_out, pca, project, turn_onto, umap
from bsc_core.projection.making import VectorFile, main, make_map, say
from bsc_core.projection.neighbours import kept_neighbours, nearest, same_neighbours, unit_vectors
from bsc_core.projection.texts import drawn_texts, sample_rows

__all__ = [
    "METHODS",
    "SMALLEST_UMAP",
    "VectorFile",
    "drawn_texts",
    "kept_neighbours",
    "lay_out",
    "main",
    "make_map",
    "nearest",
    "pca",
    "project",
    "same_neighbours",
    "sample_rows",
    "say",
    "turn_onto",
    "umap",
    "unit_vectors",
]
