"""Uploaded files: broken ones are reported in one sentence, and texts that look like markup stay texts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest
from matrix import cells_of, matrix_of
from playwright.sync_api import FilePayload, Page, expect

from bsc_core.config import make_config
from bsc_core.jobs import launch
from bsc_core.runs import Run
from tests.helpers.waiting import final_status

IMAGE = '<img src=x onerror="window.executed = true">'
TITLE = '12 texts selected: with "onerror bread"'
BOLD, TAG = "**bold** _slanted_ $x^2$ :red[red]", "<b>tag</b><script>window.executed = true</script>"


@dataclass(frozen=True)
class MarkupRun:
    """Key of a dataset whose texts look like markup, and a run on it."""

    key: str
    run: Run


def table(name: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": "text/csv", "buffer": content}


@pytest.fixture(scope="module")
def launched(server) -> MarkupRun:
    """Launch a run on texts that look like markup; a worker trains it while other tests run."""
    folder = server.store.uploads_folder / "markup-000000"
    folder.mkdir(parents=True)
    lines = ["query\tdocument\tlabel"]
    for number in range(12):
        lines.append(f"{IMAGE} how do I bake bread {number}?\t{BOLD} knead the dough {number}\t1.0")
        lines.append(f"{IMAGE} how do I bake bread {number}?\t{TAG} let the bread rest {number}\t0.2")
    (folder / "markup.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    columns = {"query": "query", "document": "document", "label": "label"}
    data = {"train": str(folder / "markup.tsv"), "dev_size": 0.4, "columns": columns}
    training = {"epochs": 2, "batch_size": 6, "learning_rate": 1e-3}
    config = make_config({"name": TAG, "data": data, "encoder": {"name": "static"}, "training": training})
    (folder / "dataset.json").write_text(
        json.dumps({"label": TAG, "data": config.data.model_dump(mode="json")}), encoding="utf-8"
    )
    return MarkupRun(folder.name, launch(server.store, config))


@pytest.fixture
def finished(launched: MarkupRun) -> MarkupRun:
    final_status(launched.run)
    assert launched.run.status().state == "done", launched.run.log_tail()
    return launched


def test_a_file_that_is_not_utf_8_is_reported_with_its_row(visit, launched):
    visit.open("data")
    visit.upload(table("broken.csv", b"query,document\nhow are you,fine\nwho is \xff there,nobody\n"))
    box = visit.page.get_by_text("Error", exact=True)
    expect(box).to_have_count(1)
    reported = visit.page.get_by_text(re.compile(r"broken\.csv.*UTF-8"))
    expect(reported).to_have_count(1)
    assert "3" in reported.inner_text()
    assert "Traceback" not in reported.inner_text()
    expect(visit.page.get_by_role("button", name="Import data")).to_have_count(0)


def test_journey_of_imported_data_over_its_check_to_the_mapping_of_its_columns(visit):
    """A row with an empty text and one whose label is not a number are rejected, and the others are used."""
    visit.open("data")
    good = "".join(f"what is {number},it is {number},1\n" for number in range(20))
    rows = f"query,document,label\n{good}who is missing,,1\nhow much,a lot,many\n"
    visit.upload(table("gaps.csv", rows.encode()))
    visit.click_button("Import data")
    expect(visit.page.get_by_text("22 rows", exact=True)).to_be_visible()
    expect(visit.page.get_by_text("2 rejected", exact=True)).to_be_visible()
    expect(visit.page.get_by_text("2 rows could not be used")).to_be_visible()
    rejected = [row[:3] for row in visit.rows("Rejected rows with line, field and reason", containing="gaps.csv")]
    assert rejected == [["gaps.csv", "22", "document"], ["gaps.csv", "23", "label"]]
    visit.wait()
    visit.page.get_by_role("tab", name="Audit").click()
    visit.page.wait_for_url("**data.tab=Audit*")
    expect(visit.page.get_by_role("tabpanel").get_by_text("Rejected: 2 rows", exact=True)).to_be_visible()
    visit.page.get_by_role("tab", name="Columns").click()
    visit.page.wait_for_url("**data.tab=Columns*")
    visit.wait()
    for role in ("Query", "Document", "Label"):
        expect(visit.page.get_by_role("combobox", name=role, exact=True)).to_have_value(role.lower())


def test_texts_that_look_like_markup_are_shown_unchanged(visit, finished):
    page = visit.page
    query = f"{IMAGE} how do I bake bread"
    visit.open("data", dataset=finished.key, encoder="static")
    assert visit.rows("Pairs of texts")[0][2].startswith(query)  # after line and label
    check_no_markup(page)

    visit.open("batches", dataset=finished.key, encoder="static", **{"batches.section": "One batch"})
    pin = page.get_by_test_id("stVerticalBlock").filter(has_text="Click a cell to pin it").last
    expect(pin.get_by_text(query)).to_be_visible()
    expect(pin.get_by_text(BOLD).or_(pin.get_by_text(TAG)).first).to_be_visible()
    assert all(cell["query"].startswith(query) for cell in cells_of(matrix_of(visit)))
    check_no_markup(page)

    visit.open("train", dataset=finished.key, encoder="static")
    check_no_markup(page)
    visit.open("runs", run=finished.run.id)
    assert visit.rows("Runs with state, metric on dev, settings that differ, progress, group and age")
    check_no_markup(page)

    visit.open("embeddings", run=finished.run.id, **{"embeddings.method": "PCA"})
    find = page.get_by_role("textbox", name="Find texts")
    find.fill("onerror bread")
    find.press("Enter")
    expect(page.get_by_role("heading", name=TITLE)).to_be_visible()
    assert all(row[1].startswith(query) or row[0].startswith(query) for row in visit.rows(TITLE))
    check_no_markup(page)

    visit.open("retrieval", run=finished.run.id)
    search = page.get_by_role("textbox", name="Search", exact=True).or_(page.get_by_role("searchbox")).first
    search.fill(f"{query} 3? {TAG}")
    search.press("Enter")
    expect(page.get_by_text("of the dataset, so its relevant documents are unknown.")).to_be_visible()
    answers = page.locator(".js-plotly-plot").first
    expect(answers.get_by_text(re.compile(r"\*\*bold\*\*|<b>tag</b>")).first).to_be_visible()
    check_no_markup(page)


def check_no_markup(page: Page) -> None:
    """Check that no text of the dataset was rendered as markup or executed."""
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()
    main = page.get_by_test_id("stMain")
    expect(main.locator("img[src=x], script")).to_have_count(0)
    expect(page.locator("strong, em, b", has_text=re.compile(r"^(bold|slanted|tag)$"))).to_have_count(0)
    assert page.evaluate("window.executed") is None


def test_requests_to_another_machine_are_faults_and_connections_are_refused(visitor, server) -> None:
    visit = visitor(server)
    visit.open("findings")
    refused = visit.page.evaluate("""async () => {
        const directives = [];
        document.addEventListener("securitypolicyviolation", (event) => directives.push(event.effectiveDirective));
        try { new WebSocket("wss://elsewhere.invalid/socket"); } catch { /* some browsers throw */ }
        await fetch("https://elsewhere.invalid/fetched").catch(() => null);
        const image = new Image();
        await new Promise((resolve) => { image.onerror = resolve; image.src = "https://elsewhere.invalid/image"; });
        return directives;
    }""")
    assert refused == ["connect-src", "connect-src", "img-src"]
    addresses = {fault.partition("request to another machine: ")[2] for fault in visit.faults}
    assert "https://elsewhere.invalid/image" in addresses
    visit.faults.clear()
