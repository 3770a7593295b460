"""Triage of likely false negatives on the Batches page: by keyboard, with undo, reload, a run, and a merge."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import WIDE
from playwright.sync_api import expect

from bsc_core.data.decisions import Decision, as_text, read_decisions
from tests.helpers.waiting import wait_until

PHONE = {"width": 390, "height": 844}
KINDS = {"p": "positive", "d": "drop", "n": "true_negative"}


def test_pairs_are_triaged_by_keyboard_and_a_run_applies_the_decisions(private_server, visitor):
    visit = visitor(private_server)
    visit.open("batches", encoder="static", **{"batches.strategies": "nearest"})
    page, path = visit.page, private_server.store.root / "false_negatives" / "sample.tsv"
    card = page.get_by_role("group", name="Pair to decide.")
    page.get_by_role("tab", name="Triage", exact=True).click()
    expect(card).to_be_focused()
    expect(card).to_be_in_viewport()
    keys = ["p", "d", "n", "d"] * 5
    expected = {}
    for number, key in enumerate(keys):
        expect(page.get_by_text(re.compile(rf"^Pair \d+ of .* · {number} decided"))).to_be_visible()
        expected[shown_pair(card)] = KINDS[key]
        card.press(key)
    expect(page.get_by_text(re.compile(rf" · {len(keys)} decided"))).to_be_visible()
    wait_until(lambda: decided(path) == expected, lambda: str(decided(path)))

    card.press("u")
    wait_until(lambda: decided(path) == dict(list(expected.items())[:-1]), lambda: str(decided(path)))
    assert shown_pair(card) == list(expected)[-1], "undo returns to the pair"
    card.press("k")
    assert shown_pair(card) == list(expected)[-2]
    card.press("ArrowRight")
    page.get_by_role("button", name="Drop").click()
    wait_until(lambda: decided(path) == expected, lambda: str(decided(path)))
    expect(card).to_be_focused()

    page.set_viewport_size(PHONE)
    page.get_by_role("tab", name="One batch", exact=True).click()
    expect(visit.by_key("batches.groups.frame")).to_be_visible()
    main = page.get_by_test_id("stMain")
    wait_until(lambda: main.evaluate("main => main.scrollWidth") <= PHONE["width"], "the page scrolls sideways")
    page.set_viewport_size(WIDE)

    page.get_by_role("tab", name="Triage", exact=True).click()
    visit.wait()
    page.reload()
    visit.wait("Which negatives does a batch contain")
    counts = r"5 positives, 10 dropped \(ignored by the loss\), 5 true negatives"
    applied = re.compile(rf"20 decisions applied: {counts}; \d+ training rows? removed")
    expect(page.get_by_text(re.compile(r"^Pair 1 of .* · 0 decided"))).to_be_visible()
    expect(card).to_be_focused()
    name = page.get_by_label("Your name (optional)")
    name.fill("Ada")
    page.get_by_text("This batch", exact=True).click()
    expect(card).to_be_focused()
    name.press("End")
    name.press_sequentially(" B")
    visit.wait()
    expect(name).to_have_value("Ada B")
    page.get_by_role("tab", name="Hardness", exact=True).click()
    expect(page.get_by_text(applied)).to_be_visible()
    visit.click_button("Train with this plan")
    visit.wait("What will this run do")
    expect(page.get_by_text(applied)).to_be_visible()


def test_a_colleagues_decisions_are_merged_with_a_choice_for_each_conflict(private_server, visitor, tmp_path):
    visit = visitor(private_server)
    visit.open("batches", encoder="static", **{"batches.strategies": "nearest", "batches.section": "Triage"})
    page, path = visit.page, private_server.store.root / "false_negatives" / "sample.tsv"
    card = page.get_by_role("group", name="Pair to decide.")
    pairs = []
    card.focus()
    for key in "dpd":
        pairs.append(shown_pair(card))
        card.press(key)
    wait_until(lambda: len(decided(path)) == 3, lambda: str(decided(path)))
    theirs = [
        Decision(*pairs[0], "positive", "Ada"),
        Decision(*pairs[1], "drop", "Ada"),
        Decision("a", "b", "drop", "Ada"),
    ]
    file = tmp_path / "ada.tsv"
    file.write_text(as_text(theirs), encoding="utf-8")
    page.get_by_text("Merge a colleague's decisions").click()
    upload(visit, file)
    expect(page.get_by_text("1 new decision, 2 conflicts")).to_be_visible()
    page.get_by_text("theirs: positive (Ada)").click()
    visit.wait()
    merge = page.get_by_role("button", name="Merge decisions")
    visit.click_until(merge, page.get_by_text("0 new decisions, 1 conflict"))
    merged = {pairs[0]: "positive", pairs[1]: "positive", pairs[2]: "drop", ("a", "b"): "drop"}
    wait_until(lambda: decided(path) == merged, lambda: str(decided(path)))
    visit.wait()  # the button of the page before the merge has a file that is removed now
    with page.expect_download() as download:
        page.get_by_role("button", name="Download decisions").click()
    download.value.save_as(tmp_path / "downloaded.tsv")
    assert decided(tmp_path / "downloaded.tsv") == merged

    wrong = tmp_path / "wrong.tsv"
    wrong.write_text("query\tdocument\tdecision\na\tb\tdrop\na\tb\tpositive\n", encoding="utf-8")
    upload(visit, wrong)
    expect(
        page.get_by_text("wrong.tsv: row 3 decides positive for a pair that an earlier row decides drop")
    ).to_be_visible()
    assert decided(path) == merged


def shown_pair(card) -> tuple[str, str]:
    """Return the texts of the query and of the suspected document."""
    query, _, document = card.locator(".text").all_inner_texts()
    return query, document


def decided(path: Path) -> dict[tuple[str, str], str]:
    return {one.pair: one.decision for one in read_decisions(path)} if path.is_file() else {}


def upload(visit, file: Path) -> None:
    visit.page.get_by_test_id("stFileUploader").locator("input").set_input_files(file)
    visit.wait()
