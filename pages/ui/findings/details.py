"""Details of one claim on the Findings page: verdict, intervals, data, settings, and the button that runs it again."""

from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core import formatting
from bsc_core.config import setting_name
from bsc_core.figures.findings import verdicts
from bsc_core.figures.runs.parallel import format_value
from bsc_core.reproduction.claims import PAPERS
from bsc_core.reproduction.report import includes_paper, settings_sentence
from pages.ui.components import display, glossary, url
from pages.ui.findings import figures, rerun
from pages.ui.findings.table import BADGES, START, STARTS, WEAK_START, ClaimResult


def draw(result: ClaimResult, bar: DeltaGenerator) -> None:
    """Draw the verdict, claim, intervals and details of a claim, and in the bar the button that runs the claim."""
    if result.weak and _start() == STARTS[1]:
        result = result.weak
    claim, finding = result.claim, result.finding
    with st.container(border=True, key=f"findings.card.{claim.name}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.header(claim.title, anchor=claim.name)
            color, icon = BADGES[result.verdict]
            st.badge(result.verdict, color=color, icon=icon)  # type: ignore[arg-type]
        st.markdown(claim.claim)
        st.caption(f"{PAPERS[claim.paper]}{', ' + claim.table if claim.table else ''}")
        if finding is None:
            st.text("There is no result of the full experiment yet. Run it below; it needs the datasets.")
        else:
            _result(result, finding)
        rerun.draw(claim, finding, bar, primary=not result.is_preset)


def _start() -> str:
    options = url.bound(START, STARTS)
    return st.segmented_control("Start", STARTS, default=STARTS[0], required=True, help=WEAK_START, **options)


def _result(result: ClaimResult, finding: dict[str, Any]) -> None:
    table = verdicts.statements_table(finding["statements"])
    display.figure(
        _verdicts(finding["statements"]),
        alt=f"{finding['reason']} " + " ".join(statement["sentence"] for statement in finding["statements"]),
        name=f"findings.{result.claim.name}",
        data=table,
    )
    if about := verdicts.caption(table):
        st.caption(about)
    figures.draw(finding)
    where = "in this runs folder" if result.local else "on the developers' machine"
    st.markdown(display.escaped(f"{finding['reason']} {finding['note']}".strip()))
    details = st.expander("Data and settings", on_change="rerun", **url.flag(f"findings.details.{result.claim.name}"))
    if details.open:
        with details:
            _details(finding, where)


@st.cache_data(max_entries=100, show_spinner=False)
def _verdicts(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return display.vega_lite_spec(verdicts.verdicts_figure(verdicts.statements_table(statements)))


def _details(finding: dict[str, Any], where: str) -> None:
    samples = [f"{data['folder']}: {_rows(data['rows'])}" for data in finding["data"]]
    seeds = formatting.plural(len(finding["seeds"]), "seed")
    st.text("\n".join(samples))
    about = (
        f"{finding['budget'].rstrip('.')}. {seeds}; {finding['device']}, {finding['precision']}; "
        f"{formatting.duration(finding['seconds'])} of training and evaluation {where}, {finding['date']}. "
        f"{settings_sentence(finding)}".strip()
    )
    st.caption(display.escaped(about))
    st.dataframe(arms_table(finding), hide_index=True, width="stretch")
    with st.container(horizontal=True):
        display.csv_button(arms_table(finding), name=finding["name"], key=f"findings.arms.{finding['name']}")
    st.caption("p-values", help=glossary.help_text("holm"))
    st.dataframe(tests_table(finding), hide_index=True, width="stretch")
    st.code(finding["command"], language=None)


def _rows(rows: dict[str, int]) -> str:
    parts = [f"{formatting.count(number)} {name}" for name, number in rows.items() if not name.startswith("queries_")]
    return ", ".join(parts)


def arms_table(finding: dict[str, Any]) -> pd.DataFrame:
    """Return one row per setting: its metrics with intervals, steps, runs and what differs."""
    rows = []
    for arm in finding["arms"]:
        row = {"Setting": arm["title"]}
        for split, metrics in arm["metrics"].items():
            for name, result in metrics.items():
                interval = None if result["low"] is None else (result["low"], result["high"])
                row[f"{formatting.metric_name(name)}, {split}"] = formatting.metric(
                    result["value"], interval, why="not applicable to these data"
                )
        row |= {"Steps": _steps(arm["runs"]), "Runs": str(len(arm["runs"]))}
        row["What differs"] = ", ".join(
            f"{setting_name(key)} {format_value(value)}" for key, value in arm["settings"].items()
        )
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def _steps(runs: list[dict[str, Any]]) -> str:
    """Return the steps per run: one number or a range; empty for the untrained encoder."""
    steps = sorted({run["steps"] for run in runs if run.get("steps")})
    return "" if not steps else formatting.count(steps[0]) if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"


def tests_table(finding: dict[str, Any]) -> pd.DataFrame:
    """Return one row per statement: difference, interval, detectable difference, corrected p-value and verdict."""
    return pd.DataFrame(
        [
            {
                "Statement": statement["text"],
                "Metric": f"{formatting.metric_name(statement['metric'])}, {statement['split']}",
                "Difference": formatting.signed(
                    statement["difference"], formatting.signed_digits(statement["low"], statement["high"])
                ),
                "Interval": _interval(statement),
                "Detectable (80% power)": formatting.signed(statement["detectable"]),
                "Queries": str(statement["queries"]),
                "Seeds": str(len(finding["seeds"])),
                "Corrected p-value": "" if statement["p_holm"] is None else f"{statement['p_holm']:.2g}",
                "In the paper": formatting.signed(statement["paper"])
                + ("" if includes_paper(statement) else ", outside the interval"),
                "Verdict": statement["verdict"],
            }
            for statement in finding["statements"]
        ]
    )


def _interval(statement: dict[str, Any]) -> str:
    if statement["low"] is None or statement["high"] is None:
        return formatting.NOT_DEFINED
    digits = formatting.signed_digits(statement["low"], statement["high"])
    return f"{formatting.signed(statement['low'], digits)} to {formatting.signed(statement['high'], digits)}"
