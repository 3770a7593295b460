"""Data page: rows generated from sentences and a run on them, and a filter that drops rows."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlparse

from playwright.sync_api import expect

from bsc_core.paths import sample_data_folder

STEPS = ("sentences", "neighbors", "above the threshold", "distinct", "examples", "limited per anchor", "sampled")


def training_rows(visit) -> int:
    """Return the number of rows on the Shape card."""
    reported = visit.page.get_by_text(re.compile(r"^[\d,]+ training (pairs|triplets)$")).first
    expect(reported).to_be_visible()
    return int(reported.inner_text().split()[0].replace(",", ""))


def test_sentences_become_triplets_and_a_run_is_launched_on_them(visit, server):
    page = visit.page
    visit.open("data")
    visit.upload(sample_data_folder() / "sentences.tsv")
    expect(page.get_by_text("Pairs or triplets from classified sentences", exact=True)).to_be_visible()
    encoder = page.get_by_role("textbox", name="Reference encoder")
    encoder.fill("static")
    encoder.press("Tab")
    cap = page.get_by_role("spinbutton", name="Examples per anchor", exact=True)
    cap.fill("3")
    cap.press("Tab")
    visit.wait()
    visit.click_button("Generate rows")
    picture = page.get_by_role("graphics-document").or_(page.locator("[data-testid=stVegaLiteChart]")).first
    expect(picture).to_be_visible()
    for step in STEPS:
        expect(page.get_by_role("radio", name=re.compile(rf"^{step} · [\d,]+$"))).to_be_visible()
    expect(page.get_by_text("anchor", exact=True)).to_have_count(3)
    expect(page.get_by_text("cosine", exact=True)).to_have_count(0)
    page.get_by_role("radio", name=re.compile("^neighbors · ")).click()
    expect(page.get_by_text("cosine", exact=True)).to_have_count(3)

    visit.click_button("Use this dataset")
    expect(page.get_by_role("combobox", name="Dataset", exact=True)).to_have_value(re.compile(r"^sentences · "))
    visit.wait()
    assert 0 < training_rows(visit) <= 3 * 160

    known = {run.id for run in server.store.list()}
    [dataset] = parse_qs(urlparse(page.url).query)["dataset"]
    visit.open("train", dataset=dataset, encoder="static")
    visit.click_button("Launch run")
    visit.wait("How is training going")
    [run] = [run for run in server.store.list() if run.id not in known]
    examples = run.config().data.examples
    assert examples is not None
    assert (examples.encoder, examples.cap, examples.kind) == ("static", 3, "triplets")


def test_a_filter_drops_rows_and_is_undone(visit, tmp_path):
    page = visit.page
    rows = [f"what is {n} good for?\tit is good for counting to {n}\t{n % 2}" for n in range(60)]
    path = tmp_path / "repeated.tsv"
    path.write_text("query\tdocument\tlabel\n" + "\n".join([*rows, *rows[:5]]) + "\n", encoding="utf-8")
    visit.open("data")
    visit.upload(path)
    visit.click_button("Import data")
    expect(page.get_by_role("combobox", name="Dataset", exact=True)).to_have_value("repeated")
    visit.wait()
    before = training_rows(visit)
    page.get_by_role("tab", name="Audit").click()
    switch = page.get_by_role("checkbox", name="Drop duplicates").or_(
        page.get_by_role("switch", name="Drop duplicates")
    )
    expect(page.get_by_text(re.compile("would drop 5 rows")).first).to_be_visible()
    page.get_by_text("Drop duplicates", exact=True).first.click()
    expect(page.get_by_text(re.compile("^dropped 5 rows")).first).to_be_visible()
    assert training_rows(visit) < before
    page.reload()
    visit.wait()
    page.get_by_role("tab", name="Audit").click()
    expect(switch.first).to_be_checked()
    page.get_by_text("Drop duplicates", exact=True).first.click()
    expect(page.get_by_text(re.compile("would drop 5 rows")).first).to_be_visible()
    assert training_rows(visit) == before


def test_mined_negatives_are_previewed_limited_and_saved(visit, tmp_path):
    page = visit.page
    words = "rose seed soil train ticket tent soup bread salt".split()
    rows = [f"how do I {words[n % 9]} {n},you {words[n % 9]} it {n} times" for n in range(40)]
    path = tmp_path / "positives.csv"
    path.write_text("query,document\n" + "\n".join(rows) + "\n", encoding="utf-8")
    visit.open("data")
    visit.upload(path)
    visit.wait()
    button = page.get_by_role("button", name="Import data", exact=True)
    visit.click_until(button, page.get_by_text("40 rows", exact=True))
    visit.wait()
    page.get_by_role("tab", name="Generate rows").click()
    visit.select_option("Method", "window")
    encoder = page.get_by_role("textbox", name="Reference encoder")
    encoder.fill("static")
    encoder.press("Tab")
    visit.wait()
    page.get_by_text("Preview", exact=True).click()
    selected = page.get_by_text(re.compile(r"^[\d,]+ negatives for 36 queries: "))
    expect(selected).to_have_text("180 negatives for 36 queries: 36 queries with 5.")
    assert len(visit.rows("Selected negatives, the most similar first")) > 5
    handle = page.get_by_role("slider", name="Scores of negatives").last
    handle.focus()
    handle.press("PageDown")  # one change, so that one rerun follows
    expect(page.get_by_text(re.compile("above the maximum score")).first).to_be_visible()
    visit.wait()  # a click during a rerun would ask for a file that the rerun replaces
    negatives = int(selected.inner_text().split()[0].replace(",", ""))
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save as .tsv").click()
    header, *saved = waiting.value.path().read_text(encoding="utf-8").splitlines()
    assert header.split("\t") == ["query", "document", "negative"]
    assert len(saved) == negatives
    visit.check_no_faults()
