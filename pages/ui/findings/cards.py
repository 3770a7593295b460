"""The claims of the Findings page from the results of `bsc reproduce`: a table, and one claim as a card."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core import formatting
from bsc_core.config import setting_name
from bsc_core.figures import theme
from bsc_core.figures.findings import verdicts
from bsc_core.figures.runs.parallel import format_value
from bsc_core.presets.catalog import PRESETS
from bsc_core.reproduction.catalog import CLAIMS
from bsc_core.reproduction.claims import PAPERS, Claim
from bsc_core.reproduction.findings import read_findings
from bsc_core.reproduction.report import includes_paper, settings_sentence
from pages.ui.components import display, glossary, page_layout, url
from pages.ui.findings import figures, rerun

ALL, RECOMMENDED = "all", "best"
PAPER_NAMES = {
    ALL: "All",
    "bsc": "Batch softmax",
    "article": "SBERT article",
    "margins": "Margins",
    "scl": "SCL",
    "negatives": "False negatives",
    "beliefs": "Beliefs",
    RECOMMENDED: "Recommended",
}
BADGES = {  # verdict -> color and icon
    "supported": ("green", ":material/check:"),
    "contradicted": ("orange", ":material/close:"),
    "ruled out": ("yellow", ":material/block:"),
    "smaller than claimed": ("blue", ":material/trending_down:"),
    "inconclusive": ("gray", ":material/question_mark:"),
    "not run yet": ("gray", ":material/hourglass_empty:"),
}
CLAIM = "findings.claim"  # session key and URL parameter: name of the claim in detail
FIRST = "findings.first"  # session key: name of the claim whose link opened the page
START = "findings.start"  # session key and URL parameter: one of STARTS
STARTS = ("bundled encoder", "weak start")
PARAMETERS = (
    *(CLAIM, START),
    *(f"findings.{name}" for name in ("paper", "verdict", "ten.*", "details.*")),
    *rerun.PARAMETERS,
)
MEANINGS = {
    "supported": "the difference has the claimed sign and is significant.",
    "smaller than claimed": "as supported, but the difference in the paper is larger than the interval allows.",
    "contradicted": "the difference has the opposite sign and is significant.",
    "ruled out": "there is no difference of practical size, and the difference in the paper is excluded.",
    "inconclusive": "the runs do not decide between these.",
    "not run yet": "there is no result of the full experiment.",
}
WIDTHS = {"Verdict": 138, "Claim": 410, "Why": 350, "Weak start": 112, "Group": 110}  # pixels
WEAK_START = (
    "A weak start: the upper three of the six layers of the bundled encoder have random weights, since the models of "
    "the papers were not trained for similarity either. The runs train on all rows, as long as in the paper."
)
HELP = {
    "Why": "The difference of the first statement with this verdict, with its 95% interval, and how many of the "
    "statements of the claim have this verdict.",
    "Weak start": WEAK_START,
}
SHADE = "40"  # opacity of the color of a verdict in the table, in hexadecimal
ROW_HEIGHT = 28  # pixels
ROWS_WITH_CARD = 4  # rows of the table above a card, whose figure is on the same screen


@dataclass(frozen=True)
class ClaimCard:
    """A claim and its result.

    local: the result is from this runs folder, not the one shipped with the app. weak: the card of the same claim from
    a weak start; None without a result.
    """

    claim: Claim
    finding: dict[str, Any] | None
    local: bool
    weak: "ClaimCard | None" = None

    @property
    def verdict(self) -> str:
        return self.finding["verdict"] if self.finding else "not run yet"

    @property
    def verdicts(self) -> list[str]:
        """The verdicts from the bundled encoder and, with a result, from a weak start."""
        return [self.verdict, *([self.weak.verdict] if self.weak else [])]

    @property
    def is_preset(self) -> bool:
        """Whether the claim is about a recommended setting that is a preset of the New run page."""
        return self.claim.name in PRESETS


def read() -> list[ClaimCard]:
    """Return a card for every claim by paper; a result in this runs folder takes precedence over the shipped one."""
    shipped, local = read_findings(), read_findings(rerun.folder())
    local = {name: finding for name, finding in local.items() if finding["form"] == "full"}
    every = [ClaimCard(claim, local.get(name) or shipped.get(name), name in local) for name, claim in CLAIMS.items()]
    weak = {card.claim.repeats: card for card in every if card.claim.repeats and card.finding}
    cards = [replace(card, weak=weak.get(card.claim.name)) for card in every if not card.claim.repeats]
    return sorted(cards, key=lambda card: list(PAPER_NAMES).index(card.claim.paper))


def summary(cards: list[ClaimCard]) -> None:
    """Draw how many claims and recommended settings have each verdict, as a stacked bar for each kind."""
    claims = [card for card in cards if card.claim.paper != RECOMMENDED]
    by_kind = {
        "claims": [card.verdict for card in claims],
        "claims from a weak start": [card.weak.verdict for card in claims if card.weak],
        "recommended settings": [card.verdict for card in cards if card.claim.paper == RECOMMENDED],
    }
    bars = {f"{len(names)} {kind}": Counter(names) for kind, names in by_kind.items() if names}
    title = summary_title(Counter(by_kind["claims"]))
    figure, about = verdicts.verdict_bars(bars, list(BADGES)), "; ".join(map(_described, bars, bars.values()))
    display.figure(figure, alt=about, name="verdicts", title=title or "No claim has been tested")


def _described(kind: str, counts: Counter[str]) -> str:
    return f"{kind}: {', '.join(f'{counts[name]} {name}' for name in BADGES if counts[name])}"


def summary_title(counts: Counter[str]) -> str:
    """Return `1 of 22 tested claims is supported, 5 are contradicted` from the number of claims with each verdict."""
    tested = sum(number for verdict, number in counts.items() if verdict != "not run yet")
    if not tested:
        return ""
    supported, contradicted = (
        f"{number} {'is' if number == 1 else 'are'} {verdict}"
        for verdict in ("supported", "contradicted")
        for number in [counts[verdict]]
    )
    number, _, rest = supported.partition(" ")
    return f"{number} of {formatting.plural(tested, 'tested claim')} {rest}, {contradicted}"


def select(cards: list[ClaimCard]) -> ClaimCard | None:
    """Draw the filters and the table of the claims that match them; return the claim selected there or in the URL."""
    papers = [name for name in PAPER_NAMES if name == ALL or any(card.claim.paper == name for card in cards)]
    present = [name for name in BADGES if any(name in card.verdicts for card in cards)]
    with st.container(horizontal=True, gap="medium"):
        paper = st.segmented_control(
            "Group",
            papers,
            format_func=PAPER_NAMES.__getitem__,
            default=ALL,
            required=True,
            width="content",
            **url.bound("findings.paper", map(PAPER_NAMES.__getitem__, papers)),
        )
        verdicts = st.pills(
            "Verdict",
            present,
            selection_mode="multi",
            width="content",
            help="  \n".join(f"**{name.capitalize()}**: {MEANINGS[name]}" for name in present),
            **url.bound("findings.verdict", present),
        )
    matching = [
        card
        for card in cards
        if paper in (ALL, card.claim.paper) and (not verdicts or not set(verdicts).isdisjoint(card.verdicts))
    ]
    linked = st.query_params.get(CLAIM)
    if linked in CLAIMS and CLAIMS[linked].repeats:
        linked = CLAIMS[linked].repeats
        st.session_state[START] = STARTS[1]
    if page_layout.arrived():  # the row of a link is among the visible ones
        st.session_state[FIRST] = linked
    if st.session_state[FIRST] not in [card.claim.name for card in matching[:ROWS_WITH_CARD]]:
        matching.sort(key=lambda card: card.claim.name != st.session_state[FIRST])
    names = [card.claim.name for card in matching]
    if linked and linked not in [card.claim.name for card in cards]:
        url.report(CLAIM, f"The claim {url.shorten(linked)} was not found; select one in the table.")
    selected = [names.index(linked)] if linked in names else []
    key = f"findings.table.{paper}.{'.'.join(verdicts)}.{st.session_state[FIRST]}.{url.revision()}"
    has_card = st.session_state[key]["selection"]["rows"] if key in st.session_state else selected
    visible = matching[:ROWS_WITH_CARD] if has_card else matching
    event = st.dataframe(
        _with_verdict_colors([summary_row(card) for card in matching]),
        key=key,
        on_select="rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": selected}},
        hide_index=True,
        height=38 + ROW_HEIGHT * len(visible),
        row_height=ROW_HEIGHT,
        alt="Claims of the papers with their verdicts and the reasons",
        column_config={
            name: st.column_config.Column(width=width, help=HELP.get(name)) for name, width in WIDTHS.items()
        },
    )
    rows = event["selection"]["rows"]
    if not rows:
        display.write_url({}, (CLAIM,))
        st.caption("Select a claim to see its intervals, data and settings, and to run it again.")
        return None
    card = matching[rows[0]]
    display.write_url({CLAIM: card.claim.name}, (CLAIM,))
    if rows[0] >= ROWS_WITH_CARD:  # the selected row moves to the top, where it is visible above the card
        st.session_state[FIRST] = card.claim.name
        st.rerun()
    return card


def _with_verdict_colors(rows: list[dict[str, str]]) -> Any:
    """Return table rows whose verdicts have a background in their color."""
    if not rows:
        return rows
    style = {name: f"background-color: {color}{SHADE}" for name, color in theme.VERDICTS.items()}
    table = pd.DataFrame(rows)
    return table.style.map(lambda verdict: style.get(verdict, ""), subset=["Verdict", "Weak start"])


def summary_row(card: ClaimCard) -> dict[str, str]:
    """Return a row of the table: verdict, claim and reason, the verdict from a weak start, and paper."""
    return {
        "Verdict": card.verdict,
        "Claim": card.claim.title,
        "Why": _reason(card),
        "Weak start": card.weak.verdict if card.weak else "",
        "Group": PAPER_NAMES[card.claim.paper],
    }


def _reason(card: ClaimCard) -> str:
    """Return the difference of the first statement with the verdict of the claim, and how many statements have it."""
    if not card.finding:
        return MEANINGS["not run yet"].capitalize()
    statements = [one for one in card.finding["statements"] if not one.get("informational")]
    deciding = [one for one in statements if one["verdict"] == card.verdict]
    if not deciding:
        return str(card.finding["reason"])
    first = deciding[0]
    difference = formatting.difference(first["difference"], first["low"], first["high"])
    of = f"; {len(deciding)} of {len(statements)} statements" if len(statements) > 1 else ""
    return f"{formatting.metric_name(first['metric'])} {difference}{of}"


def draw(card: ClaimCard, bar: DeltaGenerator) -> None:
    """Draw the verdict, claim, intervals and details of a card, and in the bar the button that runs the claim."""
    if card.weak and _start() == STARTS[1]:
        card = card.weak
    claim, finding = card.claim, card.finding
    with st.container(border=True, key=f"findings.card.{claim.name}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.header(claim.title, anchor=claim.name)
            color, icon = BADGES[card.verdict]
            st.badge(card.verdict, color=color, icon=icon)  # type: ignore[arg-type]
        st.markdown(claim.claim)
        st.caption(f"{PAPERS[claim.paper]}{', ' + claim.table if claim.table else ''}")
        if finding is None:
            st.text("There is no result of the full experiment yet. Run it below; it needs the datasets.")
        else:
            _result(card, finding)
        rerun.draw(claim, finding, bar, primary=not card.is_preset)


def _start() -> str:
    options = url.bound(START, STARTS)
    return st.segmented_control("Start", STARTS, default=STARTS[0], required=True, help=WEAK_START, **options)


def _result(card: ClaimCard, finding: dict[str, Any]) -> None:
    table = verdicts.statements_table(finding["statements"])
    display.figure(
        _verdicts(finding["statements"]),
        alt=f"{finding['reason']} " + " ".join(statement["sentence"] for statement in finding["statements"]),
        name=f"findings.{card.claim.name}",
        data=table,
    )
    if about := verdicts.caption(table):
        st.caption(about)
    figures.draw(finding)
    where = "in this runs folder" if card.local else "on the developers' machine"
    st.markdown(display.escaped(f"{finding['reason']} {finding['note']}".strip()))
    details = st.expander("Data and settings", on_change="rerun", **url.flag(f"findings.details.{card.claim.name}"))
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
