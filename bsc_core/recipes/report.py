"""The findings as a section of Markdown, written between two marks of a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from bsc_core.errors import FileFormatError, PathError
from bsc_core.figures.forest import forest_svg
from bsc_core.files import write_whole
from bsc_core.recipes.catalogue import RECIPES
from bsc_core.recipes.findings import Finding, read_findings
from bsc_core.recipes.verdicts import RULE

BEGIN = "<!-- bsc reproduce: begin -->"
END = "<!-- bsc reproduce: end -->"
WIDTH = 170
OUTSIDE = 'Where the difference that the paper shows lies outside the interval found here, "outside" stands beside it.'
_PARTS = ("train", "dev", "test")


def write_report(document: Path, findings: Mapping[str, Finding] | None = None) -> Path:
    """Write the findings, those of the package where none are given, between the marks of a document.

    Their pictures go into the folder `pictures` beside it.

    Raises PathError where there is no such document, FileFormatError where it lacks a mark.
    """
    if not document.is_file():
        raise PathError(f"{document}: there is no such file; name the document to write into")
    before, opening, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not (opening and closing):
        raise FileFormatError(f"{document}: it lacks the marks {BEGIN} and {END}; add both, one a line")
    found = read_findings() if findings is None else findings
    for one in found.values():
        path = document.parent / picture_of(one["name"])
        path.parent.mkdir(exist_ok=True)
        write_whole(path, picture(one).encode())
    told = "\n".join(report(found))
    write_whole(document, f"{before}{BEGIN}\n{told}\n{END}{after}".encode())
    return document


def report(findings: Mapping[str, Finding]) -> list[str]:
    """The lines of the section: a table of all verdicts, then each finding with its tables."""
    ordered = _in_order(findings)
    lines = [
        *wrap(RULE, WIDTH),
        "",
        OUTSIDE,
        "",
        "| claim | recipe | verdict | of its statements | processor minutes |",
    ]
    lines += ["| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {one['claim']} | [{one['name']}](#{_anchor(one)}) | **{one['verdict']}** | {one['reason']} "
        f"| {one['seconds'] / 60:.1f} |"
        for one in ordered
    ]
    waiting = [f"`{recipe.name}` ({recipe.title})" for recipe in RECIPES.values() if recipe.name not in findings]
    lines += ["", f"Not run in full yet: {', '.join(waiting)}."] if waiting else []
    for one in ordered:
        lines += ["", *_section(one)]
    return lines


def _in_order(findings: Mapping[str, Finding]) -> list[Finding]:
    """As the catalogue lists them, others behind."""
    known = [findings[name] for name in RECIPES if name in findings]
    return known + [one for name, one in findings.items() if name not in RECIPES]


def _section(one: Finding) -> Iterable[str]:
    yield f"### {_heading(one)}"
    yield ""
    yield f"{one['citation']}, {one['table']}. {one['claim']} **{one['verdict'].capitalize()}.** {one['reason']}"
    yield ""
    made = ", ".join([one["date"], one["device"], one["precision"], f"seeds {_listed(one['seeds'])}"])
    yield f"`{one['command']}` ({made}; {_data(one)})"
    yield ""
    if one["budget"]:
        yield f"Budget: {one['budget']}.{' ' + one['note'] if one['note'] else ''}"
        yield ""
    yield f"![{one['title']}: every statement's difference with its interval]({picture_of(one['name'])})"
    yield ""
    yield from _arms(one)
    yield ""
    yield from _statements(one)


def picture(one: Finding) -> str:
    """The statements of a finding as SVG."""
    return forest_svg(one["statements"], f"{one['title']}: {one['reason']}")


def picture_of(name: str) -> str:
    """Where a finding's picture stands beside the document."""
    return f"pictures/{name}.svg"


def _heading(one: Finding) -> str:
    return f"{one['title']}: {one['name']}"


def _anchor(one: Finding) -> str:
    """The address that a heading has on GitHub."""
    kept = "".join(letter for letter in _heading(one).lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _data(one: Finding) -> str:
    return "; ".join(f"{data['folder']}: {_rows(data['rows'])}" for data in one["data"])


def _rows(rows: Mapping[str, int]) -> str:
    told = [f"{part} {rows[part]:,} rows of {rows[f'queries_{part}']:,} queries" for part in _PARTS if part in rows]
    return ", ".join(told + ([f"corpus {rows['corpus']:,}"] if "corpus" in rows else []))


def _arms(one: Finding) -> Iterable[str]:
    """A table of what every arm came to on the split that the statements speak of."""
    columns = list(dict.fromkeys((said["split"], said["metric"]) for said in one["statements"]))
    split = columns[0][0] if columns else "dev"
    shown = [metric for arm in one["arms"] for metric in arm["metrics"].get(split, {})]
    columns += [(split, metric) for metric in dict.fromkeys(shown) if (split, metric) not in columns]
    yield "| setting | " + " | ".join(f"{metric}, {split}" for split, metric in columns) + " |"
    yield "| --- |" + " --- |" * len(columns)
    for arm in one["arms"]:
        cells = [_range(arm["metrics"].get(split, {}).get(metric)) for split, metric in columns]
        yield f"| {arm['title']} | {' | '.join(cells)} |"


def _statements(one: Finding) -> Iterable[str]:
    yield "| statement | in the paper | here | interval of 95% | p, corrected | verdict |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for said in one["statements"]:
        paper = "-" if said["paper"] is None else f"{said['paper']:+.3f}{'' if holds_paper(said) else ', outside'}"
        drawn = "-" if said["low"] is None else f"{said['low']:+.3f} to {said['high']:+.3f}"
        chance = "-" if said["p_holm"] is None else f"{said['p_holm']:.3f}" if said["p_holm"] >= 0.001 else "< 0.001"
        here = f"{said['difference']:+.3f}"
        yield f"| {said['words']} | {paper} | {here} | {drawn} | {chance} | {said['verdict']} |"


def holds_paper(said: Mapping[str, Any]) -> bool:
    """Whether the interval of a statement leaves the paper's difference possible; true where there is nothing to say.

    What cannot be told better or worse may still be told apart from what the paper shows.
    """
    if said["paper"] is None or said["low"] is None:
        return True
    return bool(said["low"] <= said["paper"] <= said["high"])


def _range(value: Mapping[str, float | None] | None) -> str:
    if value is None or value["value"] is None:
        return "-"
    if value["low"] is None:
        return f"{value['value']:.3f}"
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))
