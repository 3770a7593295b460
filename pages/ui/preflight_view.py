"""The preflight of the New run page: a few steps of the run in a process of their own, watched but never waited for."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core.config import RunConfig
from bsc_core.data.places import cache_folder
from bsc_core.figures import theme
from bsc_core.preflight import STEPS, Preflight
from bsc_core.preflight.job import result_file
from pages.ui import plan_words, show, store

CHECK = "1s"
KEPT = 40
STATE = "train.preflight"  # the folder of the one that this session has under way


def folder_of(config: RunConfig) -> Path:
    """Where the preflight of a config is kept: its settings, the state of its files and the runs folder name it."""
    one = config.training.model_copy(update={"seeds": ()})
    settings = config.model_copy(update={"name": "", "training": one}).model_dump_json()
    told = json.dumps([settings, store.times_of(config.data), store.folder_time(config.encoder.name), _root()])
    return cache_folder() / "preflight" / hashlib.sha256(told.encode()).hexdigest()[:20]


def found(config: RunConfig) -> Preflight | None:
    """What was found for exactly this config; None while nothing was."""
    return _read(result_file(folder_of(config)))


def panel(config: RunConfig, runs: int, times: float) -> None:
    """The numbers where they were measured, how far it is while they are, else the button that starts it.

    runs: how many there are to be, of which `config` is the first; times: how much longer all take than it.
    """
    folder = folder_of(config)
    under_way = st.session_state.get(STATE) == str(folder)
    report = _read(result_file(folder))
    if report is not None:
        st.session_state.pop(STATE, None) if under_way else None
        _draw(folder, report, config, (runs, times))
    elif under_way and (why := _progress(folder)["error"]):
        _refused(why, config)
    elif under_way:
        st.fragment(_watch, run_every=CHECK)(folder)
    else:
        _offer(config)


def _offer(config: RunConfig) -> None:
    st.button(
        f"Check it with {STEPS} steps",
        key="train.preflight.begin",
        icon=":material/speed:",
        on_click=_begin,
        args=(config,),
        width="stretch",
        help="Reads the data, loads the encoder, takes a few steps and writes one checkpoint, in a process of its own. "
        "Nothing of it is kept.",
    )


def _root() -> str:
    return str(store.run_store().root)


def _begin(config: RunConfig) -> None:
    """Start the child for this config, in place of one that this session has under way."""
    folder = folder_of(config)
    _end_own()
    _forget_oldest(folder.parent)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("result.json", "progress.json"):
        (folder / name).unlink(missing_ok=True)
    wanted = {"config": config.model_dump(mode="json"), "runs": _root()}
    draft = folder / f"request.{os.getpid()}.json"
    draft.write_text(json.dumps(wanted), encoding="utf-8")
    draft.replace(folder / "request.json")
    _child.clear(str(folder))
    _child(str(folder), config.training.threads)
    st.session_state[STATE] = str(folder)


@st.cache_resource(max_entries=64, show_spinner=False)
def _child(folder: str, _threads: int | None) -> subprocess.Popen[bytes]:
    """The one child of a folder; the cache keeps it, so that its exit status can be asked for."""
    from bsc_core.jobs.local import worker_environment

    environment = {**os.environ, **worker_environment(_threads), "PYTHONPATH": os.pathsep.join(sys.path)}
    with (Path(folder) / "log.txt").open("wb") as log:
        command = [sys.executable, "-m", "bsc_core.preflight.job", folder]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def _end_own() -> None:
    """End the child that this session has under way, if there is one."""
    folder = st.session_state.pop(STATE, None)
    if folder is not None and (child := _child(folder, None)).poll() is None:
        child.terminate()
        child.wait()


def _watch(folder: Path) -> None:
    """How far it is; the page is drawn again, without this watch, when it has ended or was stopped."""
    report = _progress(folder)
    if report["error"] or result_file(folder).is_file() or st.session_state.get(STATE) != str(folder):
        st.rerun(scope="app")
    passed = time.time() - (folder / "request.json").stat().st_mtime
    words = f"Checking: {report['doing']} · {theme.duration(passed)}"
    st.progress(min(1.0, report["done"] / max(1, report["of"])), text=words)
    st.button("Stop the check", key="train.preflight.end", icon=":material/stop:", type="tertiary", on_click=_end_own)


def _progress(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = {"done": 0, "of": 1, "doing": "starting", "error": None}
    if (folder / "progress.json").is_file():
        report |= json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    if _child(str(folder), None).poll() not in (None, 0) and not report["error"]:
        report["error"] = f"the process ended early, perhaps for want of memory; its log is {folder / 'log.txt'}"
    return report


def _refused(why: str, config: RunConfig) -> None:
    with st.container(border=True):
        st.markdown(":material/error: **This run could not begin**")
        st.text(why)
        st.button(
            "Check again", key="train.preflight.again", on_click=_begin, args=(config,), icon=":material/refresh:"
        )


def _draw(folder: Path, report: Preflight, config: RunConfig, several: tuple[int, float]) -> None:
    """Rows, steps, time, memory and disk as measured, then what is odd."""
    runs, times = several
    of_all = ", all runs" if runs > 1 else ""
    cells = [
        ("Rows", theme.count(report.rows)),
        ("Steps", theme.count(report.steps)),
        (f"Time{of_all}", f"about {theme.duration(report.total_seconds * times)}"),
        ("Memory, at least", plan_words.size(report.memory_bytes)),
        (f"Disk{of_all}", plan_words.size(report.disk_bytes * runs)),
        (
            "A step",
            f"{1000 * report.step_seconds:.0f} ms" if report.step_seconds < 1 else theme.duration(report.step_seconds),
        ),
    ]
    for place, (label, value) in zip(show.columns(len(cells), least=130), cells, strict=True):
        with place:
            show.text(label, value)
    ago = theme.duration(time.time() - result_file(folder).stat().st_mtime)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{time_words(report)} Measured {ago} ago on {report.device} in {report.precision}.")
        st.button(
            "Again",
            key="train.preflight.again",
            type="tertiary",
            icon=":material/refresh:",
            on_click=_begin,
            args=(config,),
            width="content",
        )
    for oddity in (*report.odd, *_of_many(report, runs)):
        st.markdown(f":orange[:material/info:] {oddity}")


def _of_many(report: Preflight, runs: int) -> list[str]:
    """What is odd about so many such runs."""
    if runs == 1 or report.disk_bytes * runs <= 0.9 * report.disk_free_bytes:
        return []
    free = plan_words.size(report.disk_free_bytes)
    return [f"So many runs fill the disk, on which {free} are free: keep one checkpoint of each, or delete runs."]


def time_words(report: Preflight) -> str:
    """What takes the time, the largest part first."""
    names = {"start": "start", "encode": "measuring", "plan": "plans", "train": "steps", "checkpoint": "checkpoints"}
    parts = sorted(report.seconds.items(), key=lambda part: -part[1])
    told = [f"{names[name]} {seconds / report.total_seconds:.0%}" for name, seconds in parts]
    return f"Of the time: {', '.join(told[:3])}."


def _read(path: Path) -> Preflight | None:
    if not path.is_file():
        return None
    try:
        return Preflight.from_report(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, KeyError):  # written by a version with other fields
        return None


def _forget_oldest(base: Path) -> None:
    import shutil

    folders = sorted(base.glob("*/request.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in folders[KEPT - 1 :]:
        shutil.rmtree(path.parent, ignore_errors=True)
