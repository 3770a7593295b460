"""Files that a visitor brings: broken ones get one calm sentence, and texts stay texts, whatever they look like."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from bsc_core.config import make_config
from bsc_core.jobs import launch
from bsc_core.jobs.identity import wait_until
from bsc_core.runs import Run

IMAGE = '<img src=x onerror="window.executed = true">'
BOLD, TAG = "**bold** _slanted_ $x^2$ :red[red]", "<b>tag</b><script>window.executed = true</script>"
PAGES = ("", "data", "batches", "train", "runs", "embeddings", "retrieval")
DARK = "rgb(18, 23, 29)"
RUN_SECONDS = 90.0


@dataclass(frozen=True)
class Brought:
    """A dataset whose texts look like markup, by its key, and a finished run on it."""

    key: str
    run: Run


def bring(visit, name: str, content: str | bytes) -> None:
    """Drop a file into the box for pairs."""
    page = visit.page
    page.get_by_text("Bring your own pairs").click()
    visit.whole()
    content = content.encode() if isinstance(content, str) else content
    file = {"name": name, "mimeType": "text/csv", "buffer": content}
    page.get_by_label(re.compile("^Pairs: CSV")).locator("input[type=file]").or_(
        page.locator("input[type=file]")
    ).first.set_input_files(file)


@pytest.fixture(scope="module")
def brought(server) -> Brought:
    """Trained by a worker in the background, while other tests look at something else."""
    folder = server.store.uploads_folder / "markup-000000"
    folder.mkdir(parents=True)
    lines = ["query\tdocument\tlabel"]
    for number in range(12):
        lines.append(f"{IMAGE} how do I bake bread {number}?\t{BOLD} knead the dough {number}\t1.0")
        lines.append(f"{IMAGE} how do I bake bread {number}?\t{TAG} let the bread rest {number}\t0.2")
    (folder / "markup.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    columns = {"query": "query", "document": "document", "label": "label"}
    data = {"train": str(folder / "markup.tsv"), "dev_share": 0.4, "columns": columns}
    training = {"epochs": 2, "batch_size": 6, "learning_rate": 1e-3}
    config = make_config({"name": TAG, "data": data, "encoder": {"name": "static"}, "training": training})
    (folder / "dataset.json").write_text(
        json.dumps({"label": TAG, "data": config.data.model_dump(mode="json")}), encoding="utf-8"
    )
    return Brought(folder.name, launch(server.store, config))


@pytest.fixture
def finished(brought: Brought) -> Brought:
    assert wait_until(lambda: brought.run.status().is_finished, RUN_SECONDS), brought.run.log_tail()
    assert brought.run.status().state == "done", brought.run.log_tail()
    return brought


def test_a_file_that_is_not_utf_8_gets_one_sentence_that_says_where_and_what_to_do(visit, brought):
    visit.open("data")
    bring(visit, "broken.csv", b"query,document\nhow are you,fine\nwho is \xff there,nobody\n")
    box = visit.page.get_by_text("This cannot be used as it is")
    expect(box).to_have_count(1)
    told = visit.page.get_by_text(re.compile(r"broken\.csv.*UTF-8"))
    expect(told).to_have_count(1)
    assert "3" in told.inner_text()
    assert "Traceback" not in told.inner_text()
    expect(visit.page.get_by_role("button", name="Use these columns")).to_have_count(0)


def test_a_row_with_an_empty_text_is_counted_and_shown_and_the_others_are_kept(visit):
    visit.open("data")
    good = "".join(f"what is {number},it is {number},1\n" for number in range(20))
    bring(visit, "gaps.csv", f"query,document,label\n{good}who is missing,,1\nhow much,a lot,many\n")
    visit.press("Use these columns")
    expect(visit.page.get_by_text("22 rows", exact=True)).to_be_visible()
    expect(visit.page.get_by_text("2 rejected", exact=True)).to_be_visible()
    expect(visit.page.get_by_text("2 rows could not be used")).to_be_visible()
    rejected = [row[:3] for row in visit.rows("Rejected rows with line, field and reason", holding="gaps.csv")]
    assert rejected == [["gaps.csv", "22", "document"], ["gaps.csv", "23", "label"]]
    visit.whole()


def test_texts_that_look_like_html_or_markdown_are_shown_as_they_are_and_run_nothing(visit, finished):
    page = visit.page
    query = f"{IMAGE} how do I bake bread"
    visit.open("data", dataset=finished.key, encoder="static")
    assert visit.rows("Pairs of texts")[0][1].startswith(query)
    nothing_ran(page)

    visit.open("batches", dataset=finished.key, encoder="static")
    pin = page.get_by_test_id("stVerticalBlock").filter(has_text="Click a cell to pin it").last
    expect(pin.get_by_text(query)).to_be_visible()
    expect(pin.get_by_text(BOLD).or_(pin.get_by_text(TAG)).first).to_be_visible()
    cell = visit.keyed("batches.matrix").locator("[aria-roledescription='rect mark'][aria-label*='own document: ']")
    cell.first.hover(position={"x": 2, "y": 2})
    expect(page.locator("#vg-tooltip-element")).to_contain_text(query)
    nothing_ran(page)

    visit.open("train", dataset=finished.key, encoder="static")
    nothing_ran(page)
    visit.open("runs", run=finished.run.id)
    assert visit.rows("Runs with state, progress, step, time left, metric on dev, group and age")
    nothing_ran(page)

    visit.open("embeddings", run=finished.run.id)
    page.get_by_role("radio", name="PCA").click()
    find = page.get_by_role("textbox", name="Find texts")
    find.fill("onerror bread")
    find.press("Enter")
    expect(page.get_by_role("heading", name="12 texts picked")).to_be_visible()
    assert all(row[1].startswith(query) or row[0].startswith(query) for row in visit.rows("12 texts picked"))
    nothing_ran(page)

    visit.open("retrieval", run=finished.run.id)
    search = page.get_by_role("textbox", name="Search", exact=True).or_(page.get_by_role("searchbox")).first
    search.fill(f"{query} 3? {TAG}")
    search.press("Enter")
    expect(page.get_by_text("A query of your own: no gold is known for it.")).to_be_visible()
    answers = page.locator(".js-plotly-plot").first
    expect(answers.get_by_text(re.compile(r"\*\*bold\*\*|<b>tag</b>")).first).to_be_visible()
    nothing_ran(page)


def nothing_ran(page: Page) -> None:
    """No text of the dataset became part of the page."""
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()
    main = page.get_by_test_id("stMain")
    expect(main.locator("img[src=x], script")).to_have_count(0)
    expect(page.locator("strong, em, b", has_text=re.compile(r"^(bold|slanted|tag)$"))).to_have_count(0)
    assert page.evaluate("window.executed") is None


def test_every_page_fits_into_800_pixels_in_the_dark(visitor, server, finished):
    visit = visitor(server, viewport={"width": 800, "height": 900}, color_scheme="dark")
    for name in PAGES:
        visit.open(name, dataset=finished.key, encoder="static", **({"run": finished.run.id} if name else {}))
        widths = visit.page.evaluate(
            "[document.documentElement, document.querySelector('[data-testid=stMain]')]"
            ".map(part => [part.scrollWidth, part.clientWidth])"
        )
        assert all(needed <= there for needed, there in widths), (name, widths)
        expect(visit.page.get_by_test_id("stApp")).to_have_css("background-color", DARK)
