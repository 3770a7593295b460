"""Taking the model of a run along: code that loads it, the folder as one file, and training on from it."""

from __future__ import annotations

import json
import shlex
import tempfile
import zipfile
from pathlib import Path

import streamlit as st

from bsc_core.runs import Run, RunStatus
from pages.ui import plan_words, run_actions, run_list

LARGEST = 2 * 2**30  # bytes of a model that a page packs; the server holds the packed file in memory while it is sent
SNIPPET = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({folder})
queries = model.encode(["how do i clean a cast iron pan"])
documents = model.encode(["Scrub it with salt and wipe it dry.", "Water the seeds every morning."])
print(model.similarity(queries, documents))
"""


def draw(run: Run, status: RunStatus) -> None:
    """What the run left, or what will be here."""
    files = model_files(run)
    if not files or not status.is_finished:
        words = "This run left no model." if status.is_finished else "The model stands here when the run has ended."
        st.caption(words)
        return
    best = f"best on dev, {run_list.best(status)}" if status.metric_name else "as trained"
    st.caption(f"The encoder, {best}, in a plain sentence-transformers folder: {run.model_folder}")
    st.code(SNIPPET.format(folder=json.dumps(str(run.model_folder))), language="python")
    where = shlex.quote(str(run.folder.parent))
    st.code(f"bsc evaluate {run.id} --data pairs.tsv --runs {where}", language="bash")
    with st.container(horizontal=True, vertical_alignment="center"):
        _zip_button(run, sum(path.stat().st_size for path in files))
        if st.button("Train on from it", key=f"runs.chain.{run.id}", icon=":material/link:"):
            run_actions.train_on_from(run)


def _zip_button(run: Run, size: int) -> None:
    if size > LARGEST:
        st.caption(f"The model takes {plan_words.size(size)}, too much for a download; copy its folder.")
        return
    st.download_button(
        f"Download the model ({plan_words.size(size)})",
        data=lambda: packed(run),
        file_name=f"{run.id}-model.zip",
        mime="application/zip",
        key=f"runs.zip.{run.id}",
        icon=":material/download:",
        on_click="ignore",
        help="One zip file, made when it is asked for",
    )


def model_files(run: Run) -> list[Path]:
    """The files of the model that a run left; none where it left no whole one."""
    if not (run.model_folder / "modules.json").is_file():
        return []
    return sorted(path for path in run.model_folder.rglob("*") if path.is_file())


def packed(run: Run) -> bytes:
    """The model's folder as a zip, packed on disk so that it is in memory once; weights hardly shrink, so stored."""
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for path in model_files(run):
                archive.write(path, f"{run.id}-model/{path.relative_to(run.model_folder).as_posix()}")
        file.seek(0)
        return file.read()
