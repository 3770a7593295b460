"""The model of a run: code that loads it, a download, training from it, and merging it with its start."""

import json
import shlex
import tempfile
import zipfile
from pathlib import Path

import streamlit as st

from bsc_core import formatting
from bsc_core.runs import Run, RunStatus
from pages.ui.components import display
from pages.ui.new_run.config_summary import format_bytes
from pages.ui.runs import actions, merge, table

MAX_BYTES = 2 * 2**30  # size of a model that can be downloaded; the server holds the archive in memory while sending
SNIPPET = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({folder})
queries = model.encode(["how do i clean a cast iron pan"])
documents = model.encode(["Scrub it with salt and wipe it dry.", "Water the seeds every morning."])
print(model.similarity(queries, documents))
"""


def draw(run: Run, status: RunStatus) -> None:
    """Draw the model, or why there is none."""
    files = model_files(run)
    if not files or not status.is_finished:
        st.caption(
            "This run saved no model." if status.is_finished else "The model appears here when the run has ended."
        )
        return
    best = f"best on dev, {table.best_metric(status)}" if status.metric_name else "as trained"
    start = run.evaluation("before").get("dev", {}).get(status.metric_name or "")
    best += "" if start is None else f", {formatting.metric(start)} before training"
    st.caption(f"The encoder, {display.escaped(best)}, in a sentence-transformers folder: {run.model_folder}")
    st.code(SNIPPET.format(folder=json.dumps(str(run.model_folder))), language=None)
    runs = shlex.quote(str(run.folder.parent))
    st.code(f"bsc evaluate {run.id} --data pairs.tsv --runs {runs}", language=None)
    with st.container(horizontal=True, vertical_alignment="center"):
        _draw_download(run, sum(path.stat().st_size for path in files))
        if st.button("Train from this model", key=f"runs.chain.{run.id}", icon=":material/link:"):
            actions.train_from_model(run)
    merge.draw(run)


def _draw_download(run: Run, size: int) -> None:
    if size > MAX_BYTES:
        st.caption(f"The model has {format_bytes(size)}, which is too large to download; copy its folder.")
        return
    display.download(
        f"Download the model ({format_bytes(size)})",
        lambda: zip_model(run),
        type="secondary",
        file_name=f"{run.id}-model.zip",
        mime="application/zip",
        key=f"runs.zip.{run.id}",
        help="A zip file of the model folder.",
    )


def model_files(run: Run) -> list[Path]:
    """Return the files of the run's model; none if it saved no complete one."""
    if run.model_folder.is_symlink() or not (run.model_folder / "modules.json").is_file():
        return []
    folder = run.model_folder.resolve()  # a link may lead outside
    paths = run.model_folder.rglob("*")
    return sorted(path for path in paths if path.is_file() and path.resolve().is_relative_to(folder))


def zip_model(run: Run) -> bytes:
    """Return the model folder as a zip file, built on disk and uncompressed, since weights hardly compress."""
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for path in model_files(run):
                archive.write(path, f"{run.id}-model/{path.relative_to(run.model_folder).as_posix()}")
        file.seek(0)
        return file.read()
