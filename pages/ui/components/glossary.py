"""Glossary of the field: the text behind every help icon. The texts are in glossary.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from bsc_core import formatting
from bsc_core.losses.catalog import CATALOG, PAPERS

AT_K = {"precision": "precision_at_k", "recall": "recall_at_k"}
OF_PAIRS = {"precision": "pair_precision", "recall": "pair_recall", "accuracy": "pair_accuracy"}


@dataclass(frozen=True)
class Term:
    """A term: its definition, equation and paper, and how released code (of a loss also this project) deviates.

    symbols: what the symbols of the equation mean. title: the name in the list of terms, if not that of the
    setting.
    """

    definition: str
    equation: str = ""
    paper: str = ""
    deviation: str = ""
    symbols: str = ""
    title: str = ""


_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PAPERS = {**PAPERS, **_TEXTS["papers"]}


def _terms(group: str) -> dict[str, Term]:
    return {
        name: Term(**{**term, "paper": term.get("paper", "").format_map(_PAPERS)})
        for name, term in _TEXTS[group].items()
    }


METRIC_TERMS = _terms("metrics")
TERMS = {
    **{
        name: Term(_TEXTS["losses"][name], loss.equation, loss.paper, loss.deviation, _TEXTS["symbols"].get(name, ""))
        for name, loss in CATALOG.items()
    },
    **_terms("terms"),
    **METRIC_TERMS,
}


def help_text(name: str) -> str:
    """Return a term as Markdown for the `help` of a widget."""
    term = TERMS[name]
    parts = [term.definition, *_equation(term)]
    parts += [f"*Paper:* {term.paper}"] if term.paper else []
    label = "Differences from the paper" if name in CATALOG else "Released code"
    parts += [f"*{label}:* {term.deviation}"] if term.deviation else []
    return "\n\n".join(parts)


def _equation(term: Term) -> list[str]:
    """Return the equation of a term and the meaning of its symbols, as far as it has them."""
    equation = f"$${term.equation}$$" if term.equation else ""
    return [part for part in (equation, term.symbols) if part]


def popover(*names: str) -> None:
    """Draw a button that opens these terms with their definitions and equations."""
    with st.popover("Glossary", icon=":material/help:"):
        for name in names:
            title = CATALOG[name].title if name in CATALOG else formatting.metric_name(name).replace("_", " ")
            title = TERMS[name].title or title
            parts = [TERMS[name].definition, *_equation(TERMS[name])]
            st.markdown(f"**{title[:1].upper()}{title[1:]}**. " + "\n\n".join(parts))


def metric_help(metric: str) -> str:
    """Return the help text of a metric by its name in the results, such as `ndcg@10`; empty when it has none."""
    base, _, cutoff = metric.partition("@")
    name = (AT_K if cutoff else OF_PAIRS).get(base, base)
    return help_text(name) if name in METRIC_TERMS else ""
