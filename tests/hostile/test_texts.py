"""Markup in names, links and data files: pages show it as text, and no page contains an image or a link of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block, Element

from bsc_core.data.decisions import Decision
from bsc_core.jobs.local.processes import current_process
from bsc_core.reproduction.findings import read_findings, write_finding
from bsc_core.reproduction.progress import FINDINGS_FOLDER
from bsc_core.runs import Run, RunStore
from pages.ui.batches import triage
from pages.ui.components.display import escaped
from tests.helpers.pages import open_page, page_text
from tests.pages.conftest import finished, one_scan_for_components, runs, trained  # noqa: F401

IMAGE = "![boom](http://evil.example/x.png)"
NASTY = f"{IMAGE} [press](http://evil.example) :red[red] $x$ <b>b</b> _i_ `c` =1+1 \x1b[31m\u202e"
PLAIN_KINDS = ("text", "code", "arrow_data_frame", "table", "plotly_chart", "vega_lite_chart", "bidi_component")
PLAIN_FIELDS = ("options", "default", "value", "id", "queryString", "url", "placeholder", "rawValue", "rawValues")
MARKDOWN_OPTIONS = ("radio", "button_group")  # elements whose options are Markdown
PAGES = ("start", "learn", "lessons", "data", "batches", "train", "runs", "embeddings", "retrieval", "findings")


def markdown_texts(block: Any) -> Iterator[str]:
    """Every text of a page that the browser renders as Markdown, and those that might be."""
    for child in block.children.values():
        if isinstance(child, Block):
            yield from strings(MessageToDict(child.proto) if child.proto is not None else {}, ("id",))
            yield from markdown_texts(child)
        elif isinstance(child, Element) and child.type not in PLAIN_KINDS:
            plain = tuple(name for name in PLAIN_FIELDS if name != "options" or child.type not in MARKDOWN_OPTIONS)
            yield from strings(MessageToDict(child.proto), plain)


def strings(value: Any, plain: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if part[0] not in plain:
            yield from strings(part[1], plain)


def rendered(text: str) -> bool:
    """Whether Markdown makes an image, a link or colored text of the hostile one."""
    tokens = [one for token in MarkdownIt().parse(text) for one in token.children or ()]
    links = any("evil.example" in str(one.attrs) for one in tokens if one.type in ("image", "link_open"))
    return links or ":red[red]" in text


def check_page(app: AppTest) -> None:
    assert not app.exception
    texts = list(markdown_texts(app._tree))
    assert texts
    assert [text for text in texts if rendered(text)] == []


def test_the_check_finds_markup() -> None:
    assert rendered(f"a **b** {IMAGE}")
    assert rendered("[x](http://evil.example)")
    assert not rendered(escaped(IMAGE))


LINKS: dict[str, tuple[str, ...]] = {
    "start": ("dataset", "encoder", "run"),
    "learn": ("source", "preset", "temperature", "typed", "dataset", "cell", "compare"),
    "lessons": ("lesson", "done", "answer"),
    "data": ("dataset", "encoder"),
    "batches": ("dataset", "encoder", "run", "batches.strategies", "batches.strategy", "batches.seed", "batches.part"),
    "train": ("preset", "name", "encoder.name", "loss.name", "loss.mask_guide", "data.train", "sweep.loss.temperature"),
    "runs": ("run", "group", "compare", "runs.search", "runs.part"),
    "embeddings": ("run", "encoder", "embeddings.color", "embeddings.way"),
    "retrieval": ("run", "encoder", "retrieval.query", "retrieval.part", "q"),
    "findings": ("findings.claim", "claim", "findings.paper", "findings.verdict"),
}


@pytest.mark.parametrize("page", LINKS)
def test_a_link_with_markup_shows_it_as_text(page: str, runs: RunStore) -> None:  # noqa: F811
    check_page(open_page(page, **dict.fromkeys(LINKS[page], NASTY)))


@pytest.fixture
def named(finished: Run, runs: RunStore) -> Run:  # noqa: F811
    """A run and a dataset all of whose names, settings, messages and texts look like markup."""
    folder = runs.uploads_folder / "pairs-000000"
    folder.mkdir(parents=True)
    lines = [f"{NASTY} {number}\t{NASTY} answer {number}\t{number % 2}" for number in range(20)]
    lines.append(f"\t{NASTY}\t{NASTY}")
    (folder / f"{IMAGE.replace('/', '_')}.tsv").write_text(
        "\n".join([f"{NASTY} q\t{NASTY} d\t{NASTY} l", *lines]) + "\n", encoding="utf-8"
    )
    data = {
        "train": str(folder / f"{IMAGE.replace('/', '_')}.tsv"),
        "dev_size": 0.4,
        "columns": {"query": f"{NASTY} q", "document": f"{NASTY} d", "label": f"{NASTY} l"},
    }
    (folder / "dataset.json").write_text(json.dumps({"label": NASTY, "data": data}), encoding="utf-8")
    config = json.loads((finished.folder / "config.json").read_text())
    config |= {"name": NASTY, "group": NASTY}
    (finished.folder / "config.json").write_text(json.dumps(config))
    finished.update_status(message=NASTY, state="failed")
    for name in ("after", "before"):
        path = finished.folder / "evaluation" / f"{name}.json"
        path.write_text(path.read_text().replace('"dev"', json.dumps(f"dev {NASTY}")))
    return finished


def test_the_messages_of_an_active_run_are_shown_as_text(named: Run) -> None:
    named.update_status(state="running", message=NASTY, metric_name=NASTY, **current_process())
    check_page(open_page("runs", run=named.id))


@pytest.mark.parametrize("part", ["Config", "Model"])
def test_names_in_the_folder_of_a_run_are_shown_as_text(named: Run, part: str) -> None:
    named.update_status(state="done", metric_name=NASTY)
    (named.checkpoints_folder / f"step-{IMAGE.replace('/', '_')}").mkdir(parents=True)
    app = open_page("runs", run=named.id, **{"runs.part": part})
    assert "evil.example" in page_text(app)
    check_page(app)


@pytest.mark.parametrize("link", [{"group": NASTY}, {"run": "named-0001", "compare": "named-0002"}], ids=str)
def test_names_of_groups_and_settings_are_text(named: Run, link: dict[str, str], runs: RunStore) -> None:  # noqa: F811
    config = json.loads((named.folder / "config.json").read_text())
    for number in (1, 2):
        run = Run(runs.root / f"named-000{number}")
        shutil.copytree(named.folder, run.folder)
        config["loss"] |= {"mask": "guide", "mask_guide": f"{NASTY} {number}"}
        (run.folder / "config.json").write_text(json.dumps(config))
        run.update_status(state="done", group=NASTY, metric_name=f"{NASTY} {number}")
        (run.folder / "group.json").write_text(json.dumps({"group": NASTY, "setting": {NASTY: f"{NASTY} {number}"}}))
    shutil.rmtree(named.folder)
    app = open_page("runs", **link)
    assert "evil.example" in page_text(app)
    check_page(app)


def test_the_result_of_a_claim_is_shown_as_text(runs: RunStore) -> None:  # noqa: F811
    finding = read_findings()["margins"] | {"reason": NASTY, "note": NASTY, "device": NASTY}
    write_finding(finding, runs.root / FINDINGS_FOLDER)
    app = open_page("findings", **{"findings.claim": "margins"})
    assert "evil.example" in page_text(app)
    check_page(app)


def test_the_author_of_a_decision_is_shown_as_text() -> None:
    assert not rendered(triage._choice("theirs", Decision("q", "d", who=NASTY)))


@pytest.mark.parametrize("page", PAGES)
def test_names_and_texts_with_markup_are_shown_as_text(named: Run, page: str) -> None:
    check_page(open_page(page, run=named.id, dataset="pairs-000000", encoder="static"))


@pytest.mark.parametrize("page", ["batches", "embeddings", "retrieval"])
def test_a_link_with_a_very_long_encoder_name_is_reported(page: str, runs: RunStore) -> None:  # noqa: F811
    app = open_page(page, encoder="9" * 300)
    assert not app.exception
    assert "**Error**" in page_text(app)


def test_a_link_with_a_very_deep_key_is_reported(runs: RunStore) -> None:  # noqa: F811
    app = open_page("train", **{"sweep." + ".".join("a" * 3000): "[1, 2]"})
    assert not app.exception
    assert "is not a setting of this form" in page_text(app)
