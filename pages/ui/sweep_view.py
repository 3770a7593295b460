"""The runs of one group together: parallel axes, curves, a table over seeds, and the best setting as a config."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bsc_core.config import RunConfig, to_toml
from bsc_core.figures import curves, parallel, theme
from bsc_core.runs import Run
from pages.ui import run_actions, run_list, show, store, sweep_sure, words

PARTS = ("Parallel axes", "Curves", "Settings", "Best setting")
SEED = "training.seed"


def draw(group: str, runs: list[Run]) -> None:
    """The group's pictures, live while one of its runs goes on."""
    run_list.watched(lambda: _draw(group, runs), runs)


def _draw(group: str, runs: list[Run]) -> None:
    from bsc_core.jobs import group_summary

    with show.calm_errors(stop=False):
        summary = group_summary(runs)
        st.subheader(headline(group, summary), anchor=False)
        drawn = dict(zip(PARTS, (axes, all_curves, settings, best_setting), strict=True))
        for tab, part in zip(
            st.tabs(list(drawn), on_change="rerun", key=f"runs.sweep.{group}"), drawn.values(), strict=True
        ):
            if tab.open:
                with tab:
                    part(group, runs, summary)


def headline(group: str, summary: dict[str, Any]) -> str:
    """`Sweep name: 3 of 4 runs done, 1 failed`."""
    others = [f"{count} {state}" for state, count in summary["states"].items() if state != "done" and count]
    return f"{store.short_id(group)}: {summary['done']} of {theme.many(summary['runs'], 'run')} done" + "".join(
        f", {words}" for words in others
    )


def axes(group: str, runs: list[Run], summary: dict[str, Any]) -> None:
    """Every run as a line over the axes of the settings that differ, the metric last."""
    chosen, results = of_runs(summary)
    if not chosen:
        st.caption("The runs of this group are not there any more.")
        return
    metric = summary["metric"] or "metric on dev"
    picture = parallel.parallel(chosen, results, metric=metric)
    show.figure(picture, alt=" ".join(parallel.headline(chosen, results, metric=metric)), name=f"sweep.{group}")


def of_runs(summary: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, float | None]]:
    """Of every run its settings, and its best metric on dev (None until it is done), by the run's id.

    The seed is one of the settings only where nothing else differs.
    """
    chosen: dict[str, dict[str, Any]] = {}
    results: dict[str, float | None] = {}
    for cell in summary["settings"]:
        for run_id, seed, value in zip(cell["runs"], cell["seeds"], cell["values"], strict=True):
            chosen[run_id] = dict(cell["setting"]) or {SEED: seed}
            results[run_id] = value
    return chosen, results


def all_curves(group: str, runs: list[Run], summary: dict[str, Any]) -> None:
    """The metric on dev by epoch and the loss by step of all runs, the best one's over the others."""
    rows = {run.id: run_list.metric_rows(run) for run in runs}
    metric, top = summary["metric"], summary["best_run"]
    left, right = show.columns(2)
    told = f"the best is {store.short_id(top)}" if top else "none is done"
    with left:
        losses = {run_id: curves.series(lines, "loss", most=128) for run_id, lines in rows.items()}
        picture = parallel.sweep_curves(losses, title=f"The loss; {told}", value="loss", across="step", top=top)
        show.figure(picture, alt=f"Loss by step of {len(rows)} runs", name=f"sweep.loss.{group}")
    if metric:
        with right:
            measured = {run_id: curves.evaluations(lines, metric) for run_id, lines in rows.items()}
            title = f"{metric} on dev; {told}"
            picture = parallel.sweep_curves(measured, title=title, value=metric, across="epoch", top=top)
            show.figure(picture, alt=f"{metric} by epoch of {len(rows)} runs", name=f"sweep.dev.{group}")


def settings(group: str, runs: list[Run], summary: dict[str, Any]) -> None:
    """One line for each setting: its seeds, and mean, interval, deviation and best of the metric over them."""
    lines = table(summary, sweep_sure.spans(summary, runs))
    st.dataframe(lines, hide_index=True, key=f"runs.cells.{group}", alt="Settings of the sweep, the best mean first")
    show.table_download(lambda: _frame(lines), name=f"sweep.{group}", key=f"runs.cells.save.{group}")
    _sureness(runs, summary)


def _sureness(runs: list[Run], summary: dict[str, Any]) -> None:
    """Whether the best setting is above the next one, where two have a run that is done."""
    told = sweep_sure.against_next(summary, runs)
    if told is None:
        return
    about = f"{words.help_text('interval')}\n\n{words.help_text('p_value')}"
    if any(len(cell["runs"]) > 1 for cell in summary["settings"]):
        about += f"\n\n{words.help_text('seed_spread')}"
    st.text(told, help=about)


def _frame(lines: list[dict[str, Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(lines)


def table(summary: dict[str, Any], spans: list[str]) -> list[dict[str, Any]]:
    """The settings as rows, the best mean first. spans: the interval of each."""
    metric = summary["metric"] or "metric"
    return [
        {key: parallel.words(value) for key, value in cell["setting"].items()}
        | {
            "Runs": len(cell["runs"]),
            "Seeds": parallel.words(cell["seeds"]),
            f"{metric}, mean": _told(cell["mean"], "not done"),
            "95% interval": span,
            "Deviation": _told(cell["deviation"], "one value" if cell["mean"] is not None else ""),
            "Best": _told(cell["best"], ""),
        }
        for cell, span in zip(summary["settings"], spans, strict=True)
    ]


def _told(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else theme.metric(value)


def best_setting(group: str, runs: list[Run], summary: dict[str, Any]) -> None:
    """The setting with the best mean as a config file, ready to train with."""
    config = best_config(summary)
    if config is None:
        going = any(not run.status().is_finished for run in runs)
        awaited = "The best setting stands here as a config when the first run is done."
        st.caption(awaited if going else "No run of this group is done, so there is no best setting.")
        return
    cell = summary["settings"][0]
    over = f" over {theme.many(len(cell['runs']), 'seed')}" if len(cell["runs"]) > 1 else ""
    interval = sweep_sure.spans(summary, runs)[0]
    value = f"{theme.metric(cell['mean'])} {interval}" if interval.startswith("[") else theme.metric(cell["mean"])
    st.text(f"{sweep_sure.named(cell)}: {summary['metric']} {value}{over}")
    _sureness(runs, summary)
    text = to_toml(config)
    st.code(text, language="toml", height=320)
    with st.container(horizontal=True):
        st.download_button(
            "Save config.toml",
            text,
            file_name="config.toml",
            mime="application/toml",
            key=f"runs.best.toml.{group}",
            on_click="ignore",
            icon=":material/download:",
        )
        if st.button("Train with it", key=f"runs.best.train.{group}", type="primary", icon=":material/arrow_forward:"):
            run_actions.start_from(config)


def best_config(summary: dict[str, Any]) -> RunConfig | None:
    """The config of the best run of the setting with the best mean; None while none is done."""
    run_id = summary["settings"][0]["best_run"] if summary["settings"] else None
    return store.run_store().get(run_id).config() if run_id else None
