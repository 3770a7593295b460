"""Rows made of sentences in the browser, as far as the run that learns from them; and a remedy that drops rows."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from bsc_core.data.places import sample_data_folder

STEPS = ("sentences", "neighbours", "above the threshold", "distinct", "examples", "after the cap", "after the target")


def bring(visit, path: Path) -> None:
    visit.page.get_by_text("Bring your own pairs or sentences").click()
    visit.whole()
    visit.page.locator("input[type=file]").first.set_input_files(str(path))


def training_rows(visit) -> int:
    """The number on the card of the shape."""
    told = visit.page.get_by_text(re.compile(r"^[\d,]+ training (pairs|triplets)$")).first
    expect(told).to_be_visible()
    return int(told.inner_text().split()[0].replace(",", ""))


def test_sentences_become_triplets_and_a_run_is_launched_on_them(visit, server):
    page = visit.page
    visit.open("data")
    bring(visit, sample_data_folder() / "sentences.tsv")
    expect(page.get_by_text("Examples from classified sentences")).to_be_visible()
    encoder = page.get_by_role("textbox", name="Reference encoder")
    encoder.fill("static")
    encoder.press("Tab")
    cap = page.get_by_role("spinbutton", name="Cap", exact=True)
    cap.fill("3")
    cap.press("Tab")
    visit.whole()
    visit.press("Make examples")
    picture = page.get_by_role("graphics-document").or_(page.locator("[data-testid=stVegaLiteChart]")).first
    expect(picture).to_be_visible()
    for step in STEPS:
        expect(page.get_by_role("radio", name=re.compile(rf"^{step} · [\d,]+$"))).to_be_visible()
    expect(page.get_by_text("anchor", exact=True)).to_have_count(3)
    expect(page.get_by_text("cosine", exact=True)).to_have_count(0)
    page.get_by_role("radio", name=re.compile("^neighbours · ")).click()
    expect(page.get_by_text("cosine", exact=True)).to_have_count(3)

    visit.press("Use this dataset")
    expect(page.get_by_role("combobox", name="Dataset", exact=True)).to_have_value(re.compile("^sentences-"))
    visit.whole()
    made = training_rows(visit)
    assert 0 < made <= 3 * 160

    known = {run.id for run in server.store.list()}
    dataset = page.get_by_role("combobox", name="Dataset", exact=True).input_value()
    visit.open("train", dataset=dataset, encoder="static")
    visit.press("Launch")
    visit.whole("run")
    [run] = [run for run in server.store.list() if run.id not in known]
    examples = run.config().data.examples
    assert examples is not None
    assert (examples.encoder, examples.cap, examples.kind) == ("static", 3, "triplets")


def test_a_remedy_drops_rows_and_gives_them_back(visit, tmp_path):
    page = visit.page
    rows = [f"what is {n} good for?\tit is good for counting to {n}\t{n % 2}" for n in range(60)]
    path = tmp_path / "repeated.tsv"
    path.write_text("query\tdocument\tlabel\n" + "\n".join([*rows, *rows[:5]]) + "\n", encoding="utf-8")
    visit.open("data")
    bring(visit, path)
    visit.press("Use these columns")
    expect(page.get_by_role("combobox", name="Dataset", exact=True)).to_have_value(re.compile("^repeated-"))
    visit.whole()
    before = training_rows(visit)
    page.get_by_role("tab", name="Audit").click()
    switch = page.get_by_role("checkbox", name="Drop repeats").or_(page.get_by_role("switch", name="Drop repeats"))
    expect(page.get_by_text(re.compile("would drop 5 rows")).first).to_be_visible()
    page.get_by_text("Drop repeats", exact=True).first.click()
    expect(page.get_by_text(re.compile("^dropped 5 rows")).first).to_be_visible()
    assert training_rows(visit) < before
    page.reload()
    visit.whole()
    page.get_by_role("tab", name="Audit").click()
    expect(switch.first).to_be_checked()
    page.get_by_text("Drop repeats", exact=True).first.click()
    expect(page.get_by_text(re.compile("would drop 5 rows")).first).to_be_visible()
    assert training_rows(visit) == before
