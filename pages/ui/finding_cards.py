"""The cards of the Findings page: one for each claim, from what `bsc reproduce` wrote."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core.figures import theme, verdicts
from pages.ui import finding_again, finding_pictures, show, words

if TYPE_CHECKING:
    import pandas as pd

    from bsc_core.recipes.claims import Recipe

ALL, RECOMMENDED = "all", "best"
PAPER_NAMES = {
    ALL: "All",
    "bsc": "Batch softmax",
    "article": "SBERT article",
    "margins": "Margins",
    "scl": "SCL",
    RECOMMENDED: "Recommended",
}
BADGES = {"holds": "green", "does not hold": "orange", "cannot be told": "gray", "not run yet": "gray"}
SEVERAL = {"holds": "hold", "does not hold": "do not hold"}
ICONS = {
    "holds": ":material/check:",
    "does not hold": ":material/close:",
    "cannot be told": ":material/question_mark:",
    "not run yet": ":material/hourglass_empty:",
}


@dataclass(frozen=True)
class Card:
    """A claim beside what was found: what came with the app, or what this runs folder holds since."""

    recipe: Recipe
    finding: dict[str, Any] | None
    own: bool

    @property
    def verdict(self) -> str:
        return self.finding["verdict"] if self.finding else "not run yet"


def read() -> list[Card]:
    """Every recipe with its finding in full form, those without one behind.

    A finding of this runs folder comes before the one that came with the app.
    """
    from bsc_core.recipes.catalogue import RECIPES
    from bsc_core.recipes.findings import read_findings

    packaged, own = read_findings(), read_findings(finding_again.folder())
    own = {name: found for name, found in own.items() if found["form"] == "full"}
    cards = [Card(recipe, own.get(name) or packaged.get(name), name in own) for name, recipe in RECIPES.items()]
    return sorted(cards, key=lambda card: card.finding is None)


def summary(cards: list[Card]) -> None:
    """How many claims came out which way, and how many recommended settings are proved."""
    told = []
    for noun, own in (("claim", False), ("recommended setting", True)):
        counts = Counter(card.verdict for card in cards if (card.recipe.paper == RECOMMENDED) == own)
        if counts:
            found = [f"{counts[name]} {SEVERAL.get(name, name) if counts[name] > 1 else name}" for name in BADGES]
            found = [words for name, words in zip(BADGES, found, strict=True) if counts[name]]
            told.append(f"**{theme.many(counts.total(), noun)}**: {', '.join(found)}.")
    st.markdown(" ".join(told))


def chosen(cards: list[Card]) -> list[Card]:
    """The cards of the paper and the verdict that the reader asks for."""
    papers = [name for name in PAPER_NAMES if name == ALL or any(card.recipe.paper == name for card in cards)]
    found = [name for name in BADGES if any(card.verdict == name for card in cards)]
    with st.container(horizontal=True, gap="large"):
        paper = st.segmented_control(
            "Paper",
            papers,
            format_func=PAPER_NAMES.__getitem__,
            default=ALL,
            key="findings.paper",
            required=True,
            width="content",
        )
        wanted = st.pills("Verdict", found, selection_mode="multi", key="findings.verdict", width="content")
    return [card for card in cards if paper in (ALL, card.recipe.paper) and (not wanted or card.verdict in wanted)]


def rule() -> str:
    """How verdicts are reached."""
    from bsc_core.recipes.verdicts import RULE

    return RULE


def draw(card: Card) -> None:
    """Verdict, claim, intervals, and what lies behind them."""
    recipe, finding = card.recipe, card.finding
    with st.container(border=True, key=f"findings.card.{recipe.name}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.subheader(recipe.title, anchor=recipe.name)
            st.badge(card.verdict, color=BADGES[card.verdict], icon=ICONS[card.verdict])  # type: ignore[arg-type]
        st.markdown(recipe.claim)
        st.caption(f"{_citation(recipe)}{', ' + recipe.table if recipe.table else ''}")
        if finding is None:
            st.text("No result in full came with this version. Run it below; it needs the data sets.")
        else:
            _result(card, finding)
        finding_again.offer(recipe, finding)


def _citation(recipe: Recipe) -> str:
    from bsc_core.recipes.claims import PAPERS

    return PAPERS[recipe.paper]


def _result(card: Card, finding: dict[str, Any]) -> None:
    table = verdicts.statements_table(finding["statements"])
    show.figure(
        verdicts.verdicts_figure(table),
        alt=f"{finding['reason']} " + " ".join(one["sentence"] for one in finding["statements"]),
        name=f"findings.{card.recipe.name}",
        data=table,
    )
    finding_pictures.draw(finding)
    where = "in this runs folder" if card.own else "on the project's own machine"
    st.markdown(f"{finding['reason']} {finding['note']}".strip())
    details = st.expander("Data and settings", key=f"findings.details.{card.recipe.name}", on_change="rerun")
    if details.open:
        with details:
            _details(finding, where)


def _details(finding: dict[str, Any], where: str) -> None:
    drawn = [f"{one['folder']}: {_rows(one['rows'])}" for one in finding["data"]]
    seeds = theme.many(len(finding["seeds"]), "seed")
    st.text("\n".join(drawn))
    st.caption(
        f"{finding['budget'].rstrip('.')}. {seeds}; {finding['device']}, {finding['precision']}; "
        f"{theme.duration(finding['seconds'])} of training and measuring {where}, {finding['date']}.".strip()
    )
    st.dataframe(arms_table(finding), hide_index=True, width="stretch")
    with st.container(horizontal=True):
        show.table_download(arms_table(finding), name=finding["name"], key=f"findings.arms.{finding['name']}")
    st.caption("p-values", help=words.help_text("holm"))
    st.dataframe(tests_table(finding), hide_index=True, width="stretch")
    st.code(finding["command"], language="bash")


def _rows(rows: dict[str, int]) -> str:
    parts = [f"{theme.count(number)} {name}" for name, number in rows.items() if not name.startswith("queries_")]
    return ", ".join(parts)


def arms_table(finding: dict[str, Any]) -> pd.DataFrame:
    """One row for each setting: what differs, and every metric with its interval."""
    import pandas as pd

    rows = []
    for arm in finding["arms"]:
        row = {"Setting": arm["title"]}
        for split, metrics in arm["metrics"].items():
            for name, found in metrics.items():
                span = None if found["low"] is None else (found["low"], found["high"])
                row[f"{name}, {split}"] = theme.metric(found["value"], span, why="not for these data")
        row |= {"Steps": _steps(arm["runs"]), "Runs": str(len(arm["runs"]))}
        row["What differs"] = ", ".join(f"{key} = {value}" for key, value in arm["settings"].items())
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def _steps(runs: list[dict[str, Any]]) -> str:
    """The steps that each run took: one number where they agree, empty for the untrained encoder."""
    found = sorted({run["steps"] for run in runs if run.get("steps")})
    return "" if not found else theme.count(found[0]) if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def tests_table(finding: dict[str, Any]) -> pd.DataFrame:
    """One row for each statement: the difference, its interval, the corrected p and the verdict."""
    import pandas as pd

    from bsc_core.recipes.report import holds_paper

    return pd.DataFrame(
        [
            {
                "Statement": one["words"],
                "Metric": f"{one['metric']}, {one['split']}",
                "Difference": theme.change(one["difference"]),
                "Interval": _span(one),
                "p, corrected": "" if one["p_holm"] is None else f"{one['p_holm']:.2g}",
                "In the paper": f"{theme.change(one['paper'])}{'' if holds_paper(one) else ', outside the interval'}",
                "Verdict": one["verdict"],
            }
            for one in finding["statements"]
        ]
    )


def _span(one: dict[str, Any]) -> str:
    if one["low"] is None or one["high"] is None:
        return theme.NOT_DEFINED
    return f"{theme.change(one['low'])} to {theme.change(one['high'])}"
