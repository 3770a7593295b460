"""The map of a run as the Embeddings page asks for it, and what a page says."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from bsc_core.projection import make_map
from bsc_core.runs import Run
from pages.ui import frame, map_frames, map_job, map_view


def shown(app: AppTest) -> str:
    return "\n".join(
        str(element.value) for kind in ("markdown", "text", "caption", "subheader") for element in app.get(kind)
    )


def view_of(run: Run) -> map_frames.View:
    view = map_frames.view_of(frame.Context("sample", "bundled", run.id))
    assert view is not None
    return view


def lay_out(view: map_frames.View) -> None:
    rows, files = view.texts(map_view.AMOUNTS[0]), [one.file for one in view.frames]
    folder = map_job.folder_for(view.base, files, rows, "umap", map_frames.SEED)
    make_map(folder, files, rows=rows, method="pca")
