"""Map data of a run, and cached maps as the Embeddings page reads them."""

from __future__ import annotations

from bsc_core.projection import build_map
from bsc_core.runs import Run
from pages.ui.components import page_layout
from pages.ui.embeddings import frames, map_task, map_view


def map_data(run: Run) -> frames.MapData:
    data = frames.load_map_data(page_layout.Context("sample", "bundled", run.id))
    assert data is not None
    return data


def build_maps(data: frames.MapData) -> None:
    """Build the maps with PCA in the folder of the UMAP maps."""
    rows, files = data.sample(map_view.TEXT_LIMITS[0]), [one.file for one in data.frames]
    folder = map_task.map_folder(data.folder, files, rows, "umap", frames.SEED)
    build_map(folder, files, rows=rows, method="pca")
