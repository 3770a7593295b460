"""The table of the Findings page: the claims with the results of `bsc reproduce`, their filters and their summary."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import streamlit as st

from bsc_core import formatting
from bsc_core.figures import theme
from bsc_core.figures.findings import verdicts
from bsc_core.presets.catalog import PRESETS
from bsc_core.reproduction.catalog import CLAIMS
from bsc_core.reproduction.claims import Claim
from bsc_core.reproduction.findings import read_findings
from pages.ui.components import display, page_layout, url
from pages.ui.findings import rerun

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
ROWS_WITH_DETAILS = 4  # rows of the table above the details of a claim, whose figure is on the same screen


@dataclass(frozen=True)
class ClaimResult:
    """A claim and its result.

    local: the result is from this runs folder, not the one shipped with the app. weak: that of the same claim from
    a weak start; None without a result.
    """

    claim: Claim
    finding: dict[str, Any] | None
    local: bool
    weak: "ClaimResult | None" = None

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


def read() -> list[ClaimResult]:
    """Return the result of every claim by paper; one in this runs folder takes precedence over the shipped one."""
    shipped, local = read_findings(), read_findings(rerun.folder())
    local = {name: finding for name, finding in local.items() if finding["form"] == "full"}
    every = [ClaimResult(claim, local.get(name) or shipped.get(name), name in local) for name, claim in CLAIMS.items()]
    weak = {result.claim.repeats: result for result in every if result.claim.repeats and result.finding}
    results = [replace(result, weak=weak.get(result.claim.name)) for result in every if not result.claim.repeats]
    return sorted(results, key=lambda result: list(PAPER_NAMES).index(result.claim.paper))


def summary(results: list[ClaimResult]) -> None:
    """Draw how many claims and recommended settings have each verdict, as a stacked bar for each kind."""
    claims = [result for result in results if result.claim.paper != RECOMMENDED]
    by_kind = {
        "claims": [result.verdict for result in claims],
        "claims from a weak start": [result.weak.verdict for result in claims if result.weak],
        "recommended settings": [result.verdict for result in results if result.claim.paper == RECOMMENDED],
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


def select(results: list[ClaimResult]) -> ClaimResult | None:
    """Draw the filters and the table of the claims that match them; return the claim selected there or in the URL."""
    papers = [name for name in PAPER_NAMES if name == ALL or any(result.claim.paper == name for result in results)]
    present = [name for name in BADGES if any(name in result.verdicts for result in results)]
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
        result
        for result in results
        if paper in (ALL, result.claim.paper) and (not verdicts or not set(verdicts).isdisjoint(result.verdicts))
    ]
    linked = st.query_params.get(CLAIM)
    if linked in CLAIMS and CLAIMS[linked].repeats:
        linked = CLAIMS[linked].repeats
        st.session_state[START] = STARTS[1]
    if page_layout.arrived():  # the row of a link is among the visible ones
        st.session_state[FIRST] = linked
    if st.session_state[FIRST] not in [result.claim.name for result in matching[:ROWS_WITH_DETAILS]]:
        matching.sort(key=lambda result: result.claim.name != st.session_state[FIRST])
    names = [result.claim.name for result in matching]
    if linked and linked not in [result.claim.name for result in results]:
        url.report(CLAIM, f"The claim {url.shorten(linked)} was not found; select one in the table.")
    selected = [names.index(linked)] if linked in names else []
    key = f"findings.table.{paper}.{'.'.join(verdicts)}.{st.session_state[FIRST]}.{url.revision()}"
    has_details = st.session_state[key]["selection"]["rows"] if key in st.session_state else selected
    visible = matching[:ROWS_WITH_DETAILS] if has_details else matching
    event = st.dataframe(
        _with_verdict_colors([summary_row(result) for result in matching]),
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
    result = matching[rows[0]]
    display.write_url({CLAIM: result.claim.name}, (CLAIM,))
    if rows[0] >= ROWS_WITH_DETAILS:  # the selected row moves to the top, where it is visible above the details
        st.session_state[FIRST] = result.claim.name
        st.rerun()
    return result


def _with_verdict_colors(rows: list[dict[str, str]]) -> Any:
    """Return table rows whose verdicts have a background in their color."""
    if not rows:
        return rows
    style = {name: f"background-color: {color}{SHADE}" for name, color in theme.VERDICTS.items()}
    table = pd.DataFrame(rows)
    return table.style.map(lambda verdict: style.get(verdict, ""), subset=["Verdict", "Weak start"])


def summary_row(result: ClaimResult) -> dict[str, str]:
    """Return a row of the table: verdict, claim and reason, the verdict from a weak start, and paper."""
    return {
        "Verdict": result.verdict,
        "Claim": result.claim.title,
        "Why": _reason(result),
        "Weak start": result.weak.verdict if result.weak else "",
        "Group": PAPER_NAMES[result.claim.paper],
    }


def _reason(result: ClaimResult) -> str:
    """Return the difference of the first statement with the verdict of the claim, and how many statements have it."""
    if not result.finding:
        return MEANINGS["not run yet"].capitalize()
    statements = [one for one in result.finding["statements"] if not one.get("informational")]
    deciding = [one for one in statements if one["verdict"] == result.verdict]
    if not deciding:
        return str(result.finding["reason"])
    first = deciding[0]
    difference = formatting.difference(first["difference"], first["low"], first["high"])
    of = f"; {len(deciding)} of {len(statements)} statements" if len(statements) > 1 else ""
    return f"{formatting.metric_name(first['metric'])} {difference}{of}"
