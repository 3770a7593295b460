"""Plans of many rows are made by a child process and kept on disk; the page reads how far it is and goes on."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core.batching import MeasuredPlan
from bsc_core.data import PairDataset
from bsc_core.data.places import cache_folder
from bsc_core.errors import InputError
from bsc_core.figures import theme
from bsc_core.preparation.plan_job import PlanItem, plan_file, refused_file, save_rows
from pages.ui.batch_source import Source

CHECK = "1s"
FOLDERS_KEPT = 12


def folder_of(pairs: PairDataset) -> Path:
    """Where the plans of these rows are kept."""
    return cache_folder() / "plans" / pairs.digest[:24]


@st.cache_resource(max_entries=48, show_spinner=False)
def finished(path: str) -> MeasuredPlan:
    """A plan that stands on disk."""
    return MeasuredPlan.load(Path(path))


def begin(source: Source, pairs: PairDataset, items: list[PlanItem]) -> Path:
    """Start the child that makes these plans, unless one is at it; returns the request's folder."""
    folder = folder_of(pairs)
    encoder = None if all(item.vectors for item in items) else source.encoder.model_dump()
    text = json.dumps({"encoder": encoder, "items": [asdict(item) for item in items]})
    request = folder / "requests" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not (request / "request.json").is_file():
        if not (folder / "rows.npz").is_file():
            _forget_oldest(folder.parent)
            save_rows(pairs, folder / "rows.npz")
        request.mkdir(parents=True, exist_ok=True)
        draft = request / f"request.{os.getpid()}.json"
        draft.write_text(text, encoding="utf-8")
        draft.replace(request / "request.json")
    _child(str(folder), str(request))
    return request


@st.cache_resource(max_entries=64, show_spinner=False)
def _child(folder: str, request: str) -> subprocess.Popen[bytes]:
    """The one child of a request; the cache keeps it, so that its exit status can be asked for."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (Path(request) / "log.txt").open("ab") as log:
        command = [sys.executable, "-m", "bsc_core.preparation.plan_job", folder, request]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def _forget_oldest(base: Path) -> None:
    import shutil

    folders = sorted(base.glob("*/rows.npz"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in folders[FOLDERS_KEPT - 1 :]:
        shutil.rmtree(path.parent, ignore_errors=True)


def wait(folder: Path, request: Path, names: list[str]) -> None:
    """Draw how far a request is, and draw the page again when its plans stand."""
    st.fragment(_wait, run_every=CHECK)(folder, request, names)


def _wait(folder: Path, request: Path, names: list[str]) -> None:
    if all(plan_file(folder, name).is_file() or refused_file(request, name).is_file() for name in names):
        st.rerun(scope="app")
    report = _progress(folder, request)
    if report["error"]:
        with st.container(border=True):
            st.markdown(":material/error: **The plan could not be made**")
            st.text(report["error"])
            st.button("Try again", key=f"batches.again.{request.name}", on_click=_again, args=(folder, request))
        return
    passed = time.time() - (request / "request.json").stat().st_mtime
    words = f"Building the plan: {report['doing']} · {theme.duration(passed)}"
    st.progress(min(1.0, report["done"] / max(1, report["of"])), text=words)


def _progress(folder: Path, request: Path) -> dict[str, Any]:
    report: dict[str, Any] = {"done": 0, "of": 1, "doing": "starting", "error": None}
    if (request / "progress.json").is_file():
        report |= json.loads((request / "progress.json").read_text(encoding="utf-8"))
    if _child(str(folder), str(request)).poll() not in (None, 0) and not report["error"]:
        report["error"] = f"the process that builds it ended early; its log is {request / 'log.txt'}"
    return report


def _again(folder: Path, request: Path) -> None:
    """Forget a child that failed, so that the next look starts another."""
    _child.clear(str(folder), str(request))
    (request / "progress.json").unlink(missing_ok=True)


def refusal(request: Path, name: str) -> InputError | None:
    """Why a plan of a request cannot be made, or None."""
    path = refused_file(request, name)
    return InputError(path.read_text(encoding="utf-8")) if path.is_file() else None
