"""Loss lab: computed numbers, controls, pinned cells, links and toy training."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, WebSocket, expect

from bsc_core.config import DIRECTIONS
from bsc_core.lab.lessons import LESSONS
from bsc_core.lab.lessons.batches import ordered_batch
from bsc_core.lab.lessons.margins import DISTANCES, active, margin_batch, triplet_loss
from bsc_core.lab.lessons.negatives import logit_gradient
from bsc_core.lab.presets import preset_batch
from bsc_core.lab.settings import LabSettings, explain_batch
from bsc_core.losses.explain import Explanation, explain
from tests.helpers.waiting import PATIENCE_MS, wait_until

FIRST_DIRECTION = LabSettings(symmetric=False).config()
QUIET_MS = 1000  # longer than a browser waits until it sends a value
SOME_NUMBER = re.compile(r"\d")
COUNT_RERUNS = """
window.runs = 0;
new MutationObserver(() => window.runs++).observe(
  document.querySelector("[data-testid=stApp]"), {attributes: true, attributeFilter: ["data-test-script-state"]});
"""
PANELS = {"similarity": "similarity", "probability": "rows", "gradient": "gradient"}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.03, "symmetric": False},
    {"temperature": 2.0, "normalization": "range_columns", "reduction": "sum"},
    {"temperature": 1.0, "normalization": "minmax_columns", "duplicates": "merge"},
    {"normalization": "l2_columns", "duplicates": "multi_positive", "average": "positives"},
    {"normalization": "none", "labeled_negatives": False, "threshold": 0.1},
    {"mask": "self", "mask_margin": 0.3, "hardness": "in_batch_negatives", "symmetric": True},
    {"mask": "self", "mask_margin": -0.05, "decoupled": True, "duplicates": "merge", "normalization": "l2_columns"},
    {"mask": "guide", "mask_margin": 0.1, "hardness": "in_batch_negatives"},
    {"mask": "self", "mask_margin": 0.4, "mask_margin_kind": "relative"},
    {"mask": "guide", "mask_margin": -0.2, "mask_margin_kind": "relative", "symmetric": False},
    {"debiased_prior": 0.1, "temperature": 0.3},
    {"debiased_prior": 0.2, "decoupled": True, "hardness": "in_batch_negatives", "hardness_strength": 2.0},
    *(
        {"directions": DIRECTIONS if partition == "joint" else DIRECTIONS[:2], "partition": partition} | more
        for partition in ("joint", "per_direction")
        for more in (
            {"mask": "guide", "mask_margin": 0.1, "hardness": "in_batch_negatives"},
            {"mask": "self", "mask_margin": 0.3, "decoupled": True, "labeled_negatives": False},
            {"debiased_prior": 0.1, "duplicates": "merge", "average": "positives"},
            {"duplicates": "multi_positive", "normalization": "l2_columns", "temperature": 0.3},
        )
    ),
    *({"directions": (DIRECTIONS[0], other), "partition": "joint"} for other in DIRECTIONS[1:]),
]
SIDES = {"queries": "query_query", "documents": "document_document"}


def shown(board: Locator, kind: str, side: str = "") -> np.ndarray:
    """Return the values of a panel at full precision."""
    of_side = f".panels[data-side='{side}'] " if kind != "change" else ""
    cells = board.locator(f"{of_side}.panel.{kind} .cell")
    expect(cells.last).to_have_attribute("aria-label", SOME_NUMBER)
    values = cells.evaluate_all("cells => cells.map(cell => cell.value)")
    size = int(len(values) ** 0.5)
    return np.array(values).reshape(size, size)


def link(settings: dict[str, Any]) -> dict[str, str]:
    return LabSettings(**settings).to_query()


def gradient_sum(result: Explanation) -> float:
    sides = [cells for name in SIDES.values() if (cells := getattr(result, name))]
    return float(np.abs(result.gradient).sum() + sum(np.abs(cells.gradient).sum() / 2 for cells in sides))


def expect_result(board: Locator, result: Explanation) -> None:
    for kind, name in PANELS.items():
        np.testing.assert_allclose(shown(board, kind), getattr(result, name), atol=1e-4)
    reported = board.locator(".sum").evaluate("line => ({...line.dataset})")
    assert float(reported["total"]) == pytest.approx(result.total, abs=1e-4)
    assert float(reported["first"]) == pytest.approx(result.query_to_document, abs=1e-4)
    assert float(reported["gradientSum"]) == pytest.approx(gradient_sum(result), abs=1e-3)
    assert float(reported["effective"]) == pytest.approx(result.effective_negatives, abs=1e-4)
    assert int(reported["hardest"]) == result.hardest_row


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("preset", ["near_misses", "repeats"])
def test_the_browser_computes_what_the_core_computes(scripts, preset: str, settings: dict[str, Any]) -> None:
    batch = preset_batch(preset)
    arguments = [batch.plain(), asdict(LabSettings(**settings))]
    computed = scripts.evaluate("([batch, settings]) => explainBatch(batch, settings)", arguments)
    result = explain_batch(batch, **settings)
    probability = {"rows": computed["rows"]["probability"]}
    if computed["columns"]:
        probability["columns"] = np.transpose(computed["columns"]["probability"])
    for name, values in ({name: computed[name] for name in ("similarity", "gradient")} | probability).items():
        np.testing.assert_allclose(values, getattr(result, name), atol=1e-4, err_msg=name)
    assert (result.columns is None) == ("columns" not in probability)
    for side, name in SIDES.items():
        assert (getattr(result, name) is None) == (computed[side] is None)
        for kind in ("similarity", "probability", "gradient", "candidates", "masked") if computed[side] else ():
            expected = getattr(getattr(result, name), kind)
            np.testing.assert_allclose(computed[side][kind], expected, atol=1e-4, err_msg=f"{side} {kind}")
    names = {
        "total": "total",
        "first": "query_to_document",
        "effective": "effective_negatives",
        "hardest": "hardest_row",
    }
    for name, expected in names.items():
        assert computed[name] == pytest.approx(getattr(result, expected), abs=1e-4), name
    assert computed["gradientSum"] == pytest.approx(gradient_sum(result), abs=1e-3)


def test_of_equal_values_apart_from_rounding_the_browser_takes_the_first(scripts) -> None:
    assert scripts.evaluate("values => firstLargest(values)", [1.0, 2 - 1e-9, 2.0]) == 1
    assert scripts.evaluate("values => firstLargest(values)", [1.0, 2 - 1e-3, 2.0]) == 2


@pytest.mark.parametrize("settings", [SETTINGS[3], SETTINGS[8]], ids=str)
def test_the_lab_shows_the_values_of_the_settings_in_its_link(visit, settings: dict[str, Any]) -> None:
    visit.open("learn", preset="repeats", **link(settings))
    board = visit.page.locator(".board")
    expect(board.locator(".sum")).to_have_attribute("data-total", SOME_NUMBER)
    result = explain_batch(preset_batch("repeats"), **settings)
    expect_result(board, result)
    board.get_by_role("button", name="Show document → queries").click()
    np.testing.assert_allclose(shown(board, "probability"), result.columns, atol=1e-4)


def test_dragging_the_temperature_redraws_without_a_rerun_and_writes_the_link_at_the_end(visit) -> None:
    visit.open("learn")
    page, board = visit.page, visit.page.locator(".board")
    slider = board.get_by_role("slider", name="Temperature τ")
    summary = page.get_by_text("rank a positive first")
    expect(summary).to_contain_text("At temperature 0.1,")
    before, address = shown(board, "probability"), page.url
    page.evaluate(COUNT_RERUNS)
    box = slider.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 3, middle)
    page.mouse.down()
    temperatures = []
    for share in (0.4, 0.5, 0.6, 0.7):
        page.mouse.move(box["x"] + box["width"] * share, middle)
        temperatures.append(float(board.get_by_role("spinbutton", name="Temperature τ").input_value()))
        tau = temperatures[-1]
        result = explain_batch(preset_batch("confusable"), temperature=tau)
        np.testing.assert_allclose(shown(board, "probability"), result.rows, atol=1e-4)
    assert temperatures == sorted(set(temperatures))
    assert not np.allclose(shown(board, "probability"), before, atol=0.01)
    assert page.evaluate("window.runs") == 0
    assert page.url == address
    expect(summary).to_contain_text("At temperature 0.1,")
    page.mouse.up()
    expect(summary).not_to_contain_text("At temperature 0.1,")
    expect(page).to_have_url(re.compile(re.escape(f"temperature={temperatures[-1]:.4g}")))
    np.testing.assert_allclose(shown(board, "probability"), result.rows, atol=1e-4)


def test_repeated_keys_move_the_temperature_and_the_link_has_the_last_value(visit) -> None:
    visit.open("learn")
    page, board = visit.page, visit.page.locator(".board")
    slider = board.get_by_role("slider", name="Temperature τ")
    slider.focus()
    temperatures = []
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        temperatures.append(float(board.get_by_role("spinbutton", name="Temperature τ").input_value()))
    assert temperatures == sorted(set(temperatures))
    expect(page).to_have_url(re.compile(re.escape(f"temperature={temperatures[-1]:.4g}")))
    expect(slider).to_be_focused()


@pytest.mark.parametrize(
    ("name", "lesson", "slider"),
    [
        ("learn", "", "Temperature τ"),
        ("lessons", "temperature", "Temperature"),
        ("lessons", "margins", "Margin"),
        ("lessons", "in-batch-negatives", "Batch size"),
        ("lessons", "hardness-weights", "Hardness strength"),
    ],
)
def test_the_server_gets_no_message_while_a_slider_is_dragged_and_one_when_it_is_released(
    visit, name: str, lesson: str, slider: str
) -> None:
    page, sockets, messages = visit.page, [], []

    def collect(socket: WebSocket) -> None:
        sockets.append(socket)
        for event in ("framesent", "framereceived"):
            socket.on(event, lambda message: messages.append(message))

    page.on("websocket", collect)
    visit.open(name, **({"lesson": lesson, "guess": "1"} if lesson else {}))
    assert messages
    while messages:  # of the first run of the page
        messages.clear()
        page.wait_for_timeout(QUIET_MS)
    handle = page.get_by_role("slider", name=slider)
    handle.evaluate("slider => slider.scrollIntoView({block: 'center'})")  # not below the bar of buttons
    is_streamlit = lesson == "temperature"
    track = (page.get_by_test_id("stSlider").get_by_role("group") if is_streamlit else handle).bounding_box()
    assert track is not None
    middle = track["y"] + track["height"] / 2
    page.mouse.move(track["x"] + 0.3 * track["width"], middle)
    page.mouse.down()
    for share in (0.4, 0.6, 0.8):
        value = handle.input_value()
        page.mouse.move(track["x"] + share * track["width"], middle)
        wait_until(lambda value=value: handle.input_value() != value, "the slider does not move")
    page.wait_for_timeout(QUIET_MS)
    assert messages == []
    with sockets[-1].expect_event("framesent", timeout=PATIENCE_MS):
        page.mouse.up()


def test_a_cell_is_pinned_by_click_and_by_keyboard_with_its_formula(visit) -> None:
    visit.open("learn")
    page, board = visit.page, visit.page.locator(".board")
    card = page.locator(".card")
    expect(card).to_contain_text("Point at a cell")
    board.locator(".panel.gradient .cell").nth(1).hover()
    expect(card).to_contain_text("p (document given query)")
    board.locator(".panel.gradient .cell").nth(1).click()
    result = explain_batch(preset_batch("confusable"))
    expect(card).to_contain_text(f"= {result.gradient[0, 1]:.3f}")
    expect(board.locator(".cell.pinned")).to_have_count(3)
    page.mouse.move(0, 0)
    expect(card).to_contain_text(preset_batch("confusable").document_texts[1])
    page.wait_for_url("**pin=1-2**")
    first = board.locator(".panel.similarity .cell").first
    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url("**pin=2-3**")
    expect(board.locator(".panel.similarity .cell[data-cell='1,2']")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(board.locator(".cell.pinned")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("pin="))


@pytest.mark.parametrize("width", [390, 800, 1440])
def test_the_card_of_a_cell_covers_no_matrix_and_moves_none(visitor, server, width: int) -> None:
    visit = visitor(server, viewport={"width": width, "height": 900})
    visit.open("learn")
    page, card, cells = visit.page, visit.page.locator(".card"), visit.page.locator(".board .panel.gradient .cell")
    expect(cells.last).to_have_attribute("aria-label", SOME_NUMBER)
    boxes = """lab => ["card", "matrix"].map((name) => [...lab.querySelectorAll(`.${name}`)].map((one) => {
      const { left, top, width, height } = one.getBoundingClientRect(), { x, y } = lab.getBoundingClientRect();
      return [left - x, top - y, left - x + width, top - y + height];
    }))"""
    cells.nth(8).scroll_into_view_if_needed()
    before: list[list[float]] = []

    def is_still() -> bool:
        """Whether the matrices are where they were, as the sidebar can still be closing in a narrow window."""
        nonlocal before
        last, (_, before) = before, page.locator(".lab").evaluate(boxes)
        page.wait_for_timeout(500)
        return last == before

    wait_until(is_still, "the page keeps moving")
    cells.nth(8).click()
    expect(card).to_contain_text("p (document given query)")
    expect(card).to_be_in_viewport()
    (shown_card,), after = page.locator(".lab").evaluate(boxes)
    assert after == before
    for left, top, right, bottom in after:
        assert shown_card[2] <= left or right <= shown_card[0] or shown_card[3] <= top or bottom <= shown_card[1]
    page.wait_for_url("**pin=2-3**")


def test_the_label_of_a_cell_contains_its_marks(visit) -> None:
    visit.open("learn", preset="repeats", mask="self", mask_margin="0.3")
    board, result = visit.page.locator(".board"), explain_batch(preset_batch("repeats"), mask="self", mask_margin=0.3)

    def label(row: int, column: int) -> str:
        cell = board.locator(f".panel.similarity .cell[data-cell='{row},{column}']")
        expect(cell).to_have_attribute("aria-label", SOME_NUMBER)
        return cell.get_attribute("aria-label") or ""

    assert label(0, 0).endswith("; positive pair")
    assert "; repeated text: false negative" in label(0, 4)
    row, column = np.argwhere(result.row_masked)[0]
    assert "; excluded by the false-negative mask" in label(row, column)


def test_the_cells_of_queries_and_of_documents_are_shown_if_the_directions_use_them(visit) -> None:
    settings = {"directions": DIRECTIONS, "partition": "joint", "mask": "self", "mask_margin": 0.3}
    batch, result = preset_batch("repeats"), explain_batch(preset_batch("repeats"), **settings)
    visit.open("learn", preset="repeats", **link(settings))
    page, board, card = visit.page, visit.page.locator(".board"), visit.page.locator(".card")
    expect(board.locator(".panel")).to_have_count(9)
    expect_result(board, result)
    for side, name in SIDES.items():
        cells, panels = getattr(result, name), board.locator(f".panels[data-side={side}]")
        for kind in ("similarity", "probability", "gradient"):
            np.testing.assert_allclose(shown(board, kind, side), getattr(cells, kind), atol=1e-4)
        expect(panels.locator(".panel.similarity .cell.masked")).to_have_count(int(cells.masked.sum()))
        label = panels.locator(".panel.gradient .cell[data-cell='0,4']").get_attribute("aria-label") or ""
        kind = side.replace("queries", "query").replace("documents", "document")
        assert label.startswith(f"{kind} 1, {kind} 5: gradient")
        assert label.endswith("repeated text: false negative; excluded")
    row, column = np.argwhere(np.triu(result.query_query.masked))[0]
    board.locator(f".panels[data-side=queries] .panel.similarity .cell[data-cell='{row},{column}']").hover()
    expect(card).to_contain_text("excluded by the mask: cosine")
    rectangles = page.locator(".lab").evaluate("lab => lab.picture().querySelectorAll('rect').length")
    assert rectangles == 9 * len(batch) ** 2 + 1


def test_a_cell_of_two_queries_is_pinned_by_keyboard_with_its_formula(visit) -> None:
    settings = {"directions": (DIRECTIONS[0], DIRECTIONS[2]), "partition": "joint"}
    batch, result = preset_batch("confusable"), explain_batch(preset_batch("confusable"), **settings)
    visit.open("learn", **link(settings))
    page, board, card = visit.page, visit.page.locator(".board"), visit.page.locator(".card")
    board.locator(".panels[data-side=queries] .panel.gradient .cell").first.focus()
    expect(card).to_contain_text("a query is not compared with itself")
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**pin=q1-q3**")
    expect(board.locator(".cell.pinned")).to_have_count(3)
    page.reload()
    visit.wait()
    for text in (batch.query_texts[0], batch.query_texts[2], "p (query 3 given query 1)"):
        expect(card).to_contain_text(text)
    there, back = result.query_query.probability[0, 2], result.query_query.probability[2, 0]
    gradient = f"[({there:.3f} − 0) + ({back:.3f} − 0)] / (6 · 0.1) = {result.query_query.gradient[0, 2]:.3f}"
    expect(card).to_contain_text(gradient)
    directions = board.get_by_role("combobox", name="Directions")
    expect(directions).to_have_value("query → document + queries: joint softmax")
    directions.select_option("query → document")
    expect(board.locator(".panel")).to_have_count(3)
    expect(card).to_contain_text("Point at a cell")
    expect_result(board, explain_batch(batch, symmetric=False))
    expect(page).to_have_url(re.compile("symmetric=0"))
    assert "directions" not in page.url
    directions.select_option("query ↔ document + documents: joint softmax")
    expect(page).to_have_url(re.compile("partition=joint&directions=query_to_doc%2Cdoc_to_query%2Cdoc_to_doc"))
    expect_result(board, explain_batch(batch, directions=(*DIRECTIONS[:2], DIRECTIONS[3]), partition="joint"))


def test_a_row_that_is_labeled_negative_has_no_term_in_the_loss_and_no_false_negative(visit) -> None:
    explanation = "the pair of this row is labeled negative, so the row has no term in the loss"
    copies = visit.page.locator(".panel.probability .cell.copy")
    for symmetric in ("0", "1"):
        visit.open("learn", preset="near_misses", symmetric=symmetric)
        board, card = visit.page.locator(".board"), visit.page.locator(".card")
        expect(board.locator(".panel.gradient .cell").last).to_have_attribute("aria-label", SOME_NUMBER)
        expect(copies).to_have_count(0)
        expect(visit.page.locator(".marks")).to_contain_text("negative pair")
        expect(visit.page.locator(".marks")).not_to_contain_text("false negative")
        board.locator(".panel.gradient .cell[data-cell='1,1']").hover()
        expect(card).to_contain_text(f"{explanation}; nor has the column" if symmetric == "1" else explanation)
        board.locator(".panel.gradient .cell[data-cell='1,0']").hover()  # the positive of the same query
        expect(card).to_contain_text("∂L/∂s = ½ · (" if symmetric == "1" else explanation)
    board.get_by_role("button", name="Show document → queries").click()
    batch = preset_batch("near_misses")
    repeated = (batch.query_ids[:, None] == batch.query_ids) & ~np.eye(len(batch), dtype=bool)
    expect(copies).to_have_count(int(repeated[:, batch.labels > 0.5].sum()))  # the queries of a positive
    expect(visit.page.locator(".marks")).to_contain_text("repeated text: false negative")


def test_false_negatives_in_other_words_are_marked_in_both_directions(visit) -> None:
    visit.open("learn", preset="paraphrases")
    marked = visit.page.locator(".panel.probability .cell.reworded")
    for _ in range(2):
        expect(marked).to_have_count(10)
        assert marked.evaluate_all("cells => cells.map((cell) => cell.dataset.cell)")[:2] == ["0,1", "1,0"]
        expect(visit.page.locator(".marks")).to_contain_text("same answer in other words: false negative")
        visit.page.locator(".board .panel.probability .toggle").click()
    visit.open("learn", preset="confusable")
    expect(visit.page.locator(".panel.gradient .cell").last).to_have_attribute("aria-label", SOME_NUMBER)
    expect(marked).to_have_count(0)


def test_cells_without_numbers_show_the_sign_of_the_gradient(visit) -> None:
    visit.open("learn", source="circle", pairs="12", temperature="0.3")
    board = visit.page.locator(".board")
    gradient = shown(board, "gradient")
    texts = board.locator(".panel.gradient .cell").all_inner_texts()
    digits = 3 if float(board.locator(".panel.gradient .high").inner_text()) < 0.1 else 2
    rounded = np.round(gradient.ravel(), digits)
    assert texts == ["+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else "" for value in rounded]
    assert {"+", "\N{MINUS SIGN}"} < set(texts)
    assert set(board.locator(".panel.probability .cell").all_inner_texts()) == {""}


def test_a_masked_cell_says_why_it_left_and_a_weighted_one_its_factor(visit) -> None:
    settings = {"mask": "self", "mask_margin": 0.3, "hardness": "in_batch_negatives"}
    batch = preset_batch("confusable")
    result = explain_batch(batch, **settings)
    row, column = np.argwhere(result.row_masked)[0]
    visit.open("learn", **link(settings))
    board, card = visit.page.locator(".board"), visit.page.locator(".card")
    masked = board.locator(".panel.similarity .cell.masked")
    expect(masked).to_have_count(int(result.row_masked.sum()))
    board.locator(f".panel.similarity .cell[data-cell='{row},{column}']").hover()
    expect(card).to_contain_text("excluded by the mask: cosine")
    expect(visit.page.locator(".marks")).to_contain_text("excluded by the false-negative mask")
    row, column = np.argwhere(result.row_candidates & ~np.eye(len(batch), dtype=bool))[0]
    board.locator(f".panel.similarity .cell[data-cell='{row},{column}']").hover()
    weight = result.bumps[row, column]
    sign = "\N{MINUS SIGN}" if weight < 0 else "+"
    expect(card).to_contain_text(f"hardness weight: s/τ {sign} {abs(weight):.2f}, so exp(s/τ) × {np.exp(weight):.1f}")


def test_the_mask_of_a_guide_says_what_the_guide_computed_and_needs_an_example_batch(visit) -> None:
    batch = preset_batch("confusable")
    result = explain_batch(batch, mask="guide", mask_margin=0.1)
    row, column = np.argwhere(result.row_masked)[0]
    visit.open("learn", mask="guide", mask_margin="0.1")
    board, card = visit.page.locator(".board"), visit.page.locator(".card")
    expect_result(board, result)
    expect(board.locator(".panel.similarity .cell.masked")).to_have_count(int(result.row_masked.sum()))
    board.locator(f".panel.similarity .cell[data-cell='{row},{column}']").hover()
    cosine = batch.plain()["guide"]["query_to_doc"][row][column]
    expect(card).to_contain_text(f"excluded by the mask: cosine of the guide model {cosine:.3f}")
    visit.open("learn", source="circle", mask="guide")
    expect(visit.page.get_by_text("Only the example batches have vectors of a guide model")).to_be_visible()
    mask = visit.page.locator(".board").get_by_role("combobox", name="False-negative mask")
    expect(mask).to_have_value("none")
    values = mask.locator("option").evaluate_all("options => options.map(option => option.value)")
    assert values == ["none", "self"]


def test_a_link_opens_two_settings_and_their_differences(visit) -> None:
    visit.open("learn", preset="near_misses", compare="1", b_labeled_negatives="0", pin="1-1")
    page = visit.page
    expect(page.locator(".board")).to_have_count(2)
    batch = preset_batch("near_misses")
    both = [explain_batch(batch), explain_batch(batch, labeled_negatives=False)]
    for board, result in zip(page.locator(".board").all(), both, strict=True):
        expect_result(board, result)
    change = shown(page.locator(".differs"), "change")
    np.testing.assert_allclose(change, both[1].rows - both[0].rows, atol=1e-4)
    expect(page.locator(".differs")).to_contain_text("Labeled negatives: true → false")
    expect(page.locator(".differs")).to_contain_text("not comparable: labeled negatives changes the scale of the loss")
    expect(page.locator(".cell.pinned")).to_have_count(7)


def test_gradient_colors_have_a_fixed_scale_until_they_are_rescaled(visit) -> None:
    def color_and_end(temperature: str) -> tuple[str, str]:
        visit.open("learn", temperature=temperature)
        board = visit.page.locator(".board")
        gradient = shown(board, "gradient")
        largest = int(np.abs(gradient).argmax())
        assert board.locator(".sum").inner_text().count("sum of |∂L/∂s|") == 1
        cell = board.locator(".panel.gradient .cell").nth(largest)
        fill = cell.evaluate("cell => cell.style.backgroundColor")
        return fill, board.locator(".panel.gradient .high").inner_text()

    warm, cold = color_and_end("0.5"), color_and_end("0.05")
    assert warm[1] == cold[1] == f"{1 / (0.1 * len(preset_batch('confusable'))):.2f}"
    assert warm[0] != cold[0]
    gradient = shown(visit.page.locator(".board"), "gradient")
    visit.page.locator(".panel.gradient").get_by_role("button", name="Rescale colors").click()
    expect(visit.page.locator(".panel.gradient .high")).to_have_text(f"{np.abs(gradient).max():.2f}")
    visit.page.locator(".panel.gradient").get_by_role("button", name="Fixed color scale").click()
    expect(visit.page.locator(".panel.gradient .high")).to_have_text(cold[1])


def test_toy_training_is_animated(visit) -> None:
    visit.open("learn", source="circle", watch="bsc")
    player = visit.page.locator(".player")
    expect(player).to_have_attribute("data-step", "100")
    last = float(player.get_attribute("data-loss") or "nan")
    slider = player.get_by_role("slider", name="Step")
    slider.focus()
    visit.page.keyboard.press("Home")
    expect(player).to_have_attribute("data-step", "0")
    assert float(player.get_attribute("data-loss") or "nan") > 2 * last
    expect(player.locator("circle.query")).to_have_count(6)
    player.get_by_role("button", name="Play").click()
    expect(player.get_by_role("button", name="Pause")).to_be_visible()


def test_a_lesson_opens_the_lab_with_its_settings(visit) -> None:
    visit.open("lessons", lesson="normalization")
    page = visit.page
    claim = LESSONS["normalization"].sentences()["claim"].replace("`", "")
    expect(page.get_by_text(claim)).to_be_visible()
    board = page.locator(".board")
    before = shown(board, "probability")
    expect(board.get_by_role("combobox")).to_have_count(0)
    page.get_by_text("For all 6").first.click()
    expect(page.get_by_text(f"1 of {len(LESSONS)} completed")).to_be_visible()
    board.get_by_role("combobox", name="Normalization").select_option("l2")
    wait_until(lambda: not np.allclose(shown(board, "probability"), before, atol=0.01), "the loss has not changed")
    visit.click_button("Open in the loss lab")
    visit.wait("What does a loss compute")
    expect(page.locator(".board").get_by_role("combobox", name="Normalization")).to_have_value("none")


def test_a_later_visit_without_a_link_continues_the_lessons(visit) -> None:
    stored, page = "localStorage.getItem('bsc-lab-lessons')", visit.page
    visit.open("lessons", done="temperature", missed="temperature", lesson="temperature")
    wait_until(lambda: page.evaluate(stored), "the progress is not stored")
    visit.open("lessons")
    expect(page.get_by_text("1 of 14 completed, 0 correct on the first attempt")).to_be_visible()
    page.evaluate('localStorage.setItem(\'bsc-lab-lessons\', \'{"done": ["unknown", "normalization"], "missed": []}\')')
    visit.open("lessons", done="margins", lesson="margins")
    expect(page.get_by_text("2 of 14 completed, 2 correct on the first attempt")).to_be_visible()
    wait_until(lambda: "unknown" not in page.evaluate(stored), "the progress is not stored")
    visit.open("lessons", done=",".join(LESSONS), lesson=list(LESSONS)[-1])
    visit.click_button("Start over")
    expect(page.get_by_text("0 of 14 completed")).to_be_visible()
    wait_until(lambda: not page.evaluate(stored), "the progress is still stored")


def test_the_formula_of_a_cell_is_visible_while_the_pointer_is_on_it(visitor, server) -> None:
    visit = visitor(server, viewport={"width": 1440, "height": 800})
    visit.open("learn")
    card = visit.page.locator(".card")
    for panel, cell in (("similarity", "4,2"), ("gradient", "0,5")):
        visit.page.locator(f".panel.{panel} .cell[data-cell='{cell}']").hover()
        expect(card).to_contain_text("∂L/∂s =")
        expect(card).to_be_in_viewport(ratio=1)
    visit.page.get_by_role("heading", level=1).hover()
    expect(card).to_contain_text("Point at a cell")
    expect(card).not_to_have_class(re.compile("floating"))


def test_an_increase_of_the_probability_is_green(visit) -> None:
    visit.open("learn", compare="1", b_temperature="0.02")
    cells = visit.page.locator(".panel.change .cell")
    expect(cells.first).to_have_attribute("aria-label", SOME_NUMBER)
    values = cells.evaluate_all("cells => cells.map(cell => [cell.value, getComputedStyle(cell).backgroundColor])")
    strong = [(value, [int(part) for part in color[4:-1].split(",")]) for value, color in values if abs(value) > 0.1]
    assert {value > 0 for value, _ in strong} == {True, False}
    assert all((green > red) == (value > 0) for value, (red, green, _) in strong)


def test_additional_settings_are_open_only_if_a_link_changes_one(visit) -> None:
    more = visit.page.locator(".board details")
    visit.open("learn")
    expect(more).to_have_js_property("open", False)
    visit.open("learn", debiased_prior="0.05")
    expect(more).to_have_js_property("open", True)


def test_a_locked_lesson_does_not_show_the_probability_that_it_asks_for(visit) -> None:
    visit.open("lessons", lesson="symmetrization")
    page, asked = visit.page, "p (query given document)"
    card, pair = page.locator(".card"), page.locator(".panel.probability .cell[data-cell='1,1']")
    pair.click()
    expect(card).to_contain_text("p (document given query)")
    expect(card).not_to_contain_text(asked)
    page.get_by_text("A clearly lower one").click()
    expect(page.get_by_text(f"1 of {len(LESSONS)} completed")).to_be_visible()
    pair.click()
    expect(card).to_contain_text(asked)


@pytest.mark.parametrize(
    ("slug", "control", "words", "setting"),
    [
        ("mask-margin", "Mask margin", "At a margin of 0.2, the mask excludes 9 of 10 false negatives", "mask=self"),
        (
            "hardness-weights",
            "Hardness strength",
            "At a hardness strength of 11: hardest negative",
            "hardness_strength=10",
        ),
        ("matryoshka", "Dimensions", "MRR with the first 128 of 384 dimensions", None),
        ("debiased", "Debiased prior", "At a prior of 0.055: 4 of 6 queries", "debiased_prior=0.05"),
    ],
)
def test_a_lesson_on_the_negatives_follows_its_control_and_answers_after_a_guess(
    visit, slug: str, control: str, words: str, setting: str | None
) -> None:
    visit.open("lessons", lesson=slug)
    page, lesson = visit.page, LESSONS[slug]
    texts = lesson.sentences()
    expect(page.get_by_text(texts["claim"])).to_be_visible()
    expect(page.get_by_text(texts["answer"])).to_have_count(0)
    expect(page.get_by_text(words)).to_have_count(0)
    page.get_by_text(texts[f"option {lesson.correct}"], exact=True).click()
    expect(page.get_by_text(texts["answer"])).to_be_visible()
    expect(page.get_by_text(f"1 of {len(LESSONS)} completed")).to_be_visible()
    slider = page.get_by_role("slider", name=control)
    slider.focus()
    page.keyboard.press("ArrowLeft" if slug == "matryoshka" else "ArrowRight")
    expect(page.get_by_text(words)).to_be_visible()
    if setting is None:
        expect(page.get_by_role("button", name="Open in the loss lab")).to_have_count(0)
        return
    visit.click_button("Open in the loss lab")
    visit.wait("What does a loss compute")
    expect(page.locator(".board .sum").first).to_have_attribute("data-total", SOME_NUMBER)
    expect(page).to_have_url(re.compile(re.escape(setting)))


def test_the_matrix_of_a_lesson_has_as_many_pairs_as_its_slider_selects(visit) -> None:
    visit.open("lessons", lesson="in-batch-negatives", done="in-batch-negatives", at="4")
    page, board = visit.page, visit.page.locator(".board")
    batch = ordered_batch()
    page.evaluate(COUNT_RERUNS)
    slider = page.get_by_role("slider", name="Batch size")
    for size, key in ((4, ""), (16, "End"), (15, "ArrowLeft")):
        if key:
            slider.focus()
            page.keyboard.press(key)
        expect(board.locator(".cell")).to_have_count(size**2)
        part = explain(batch.queries[:size], batch.documents[:size], np.ones(size), config=FIRST_DIRECTION)
        np.testing.assert_allclose(shown(board, "probability"), part.rows, atol=1e-4)
        expect(board.locator(".sum")).to_have_text(f"Loss of the batch in the matrix: {part.total:.3f}")
    expect(page).to_have_url(re.compile("at=15"))
    expect(page.get_by_text("At batch size 15: 14 negatives for each query")).to_be_visible()


@pytest.mark.parametrize(
    ("slug", "at", "preset", "settings"),
    [
        ("hardness-weights", "10", "confusable", {"hardness": "in_batch_negatives", "hardness_strength": 10}),
        ("debiased", "0.1", "easy", {"debiased_prior": 0.1}),
    ],
)
def test_the_matrices_of_a_lesson_follow_its_slider(
    visit, slug: str, at: str, preset: str, settings: dict[str, Any]
) -> None:
    visit.open("lessons", lesson=slug, done=slug, at=at)
    board = visit.page.locator(".board")
    result = explain_batch(preset_batch(preset), symmetric=False, **settings)
    is_by_logits = slug == "debiased"
    expected = logit_gradient(settings["debiased_prior"]) if is_by_logits else result.gradient
    np.testing.assert_allclose(shown(board, "gradient"), expected, atol=1e-4)
    board.locator(".panel.gradient .cell[data-cell='2,2']").hover()
    name = "∂L₃/∂z₃₃ = (" if is_by_logits else "∂L/∂s = ("
    for words in (name, f" = {expected[2, 2]:.3f}".replace("-", "\N{MINUS SIGN}")):
        expect(visit.page.locator(".card")).to_contain_text(words)
    before = shown(board, "gradient")
    visit.page.get_by_role("slider").focus()
    visit.page.keyboard.press("Home")
    wait_until(lambda: not np.allclose(shown(board, "gradient"), before, atol=0.01), "the matrix has not changed")
    expect(visit.page).to_have_url(re.compile("at=0(&|$)"))


def test_the_circles_of_a_lesson_show_the_triplets_that_violate_the_margin(visit) -> None:
    visit.open("lessons", lesson="margins", done="margins", at="1")
    page, batch = visit.page, margin_batch()
    circles, slider = page.locator(".triplets figure"), page.get_by_role("slider", name="Margin")
    for key in ("", "ArrowRight", "End", "Home"):
        if key:
            slider.focus()
            page.keyboard.press(key)
        margin = float(slider.get_attribute("aria-valuetext") or "nan")
        for circle, distance in zip(circles.all(), DISTANCES, strict=True):
            expect(circle.locator(".triplet.active")).to_have_count(int(active(batch, margin, distance).sum()))
        loss = float(circles.first.get_attribute("data-loss") or "nan")
        assert loss == pytest.approx(triplet_loss(batch, margin), abs=1e-6)
    expect(page).to_have_url(re.compile("at=0.01"))
    expect(page.get_by_text("At a margin of 0.01:")).to_be_visible()


def test_no_two_points_of_a_pair_overlap_on_the_circle_of_a_lesson(visit) -> None:
    visit.open("lessons", lesson="temperature", guess="2")
    player = visit.page.locator(".player")
    expect(player).to_have_attribute("data-step", "100")
    for text in ("query (inside)", "document (outside)"):
        expect(player.locator("figcaption + .legend")).to_contain_text(text)
    points = player.locator("circle:is(.query, .document)")
    read = "points => points.map((one) => [one.cx, one.cy, one.r].map((length) => length.baseVal.value))"
    x, y, radius = np.array(points.evaluate_all(read)).T
    pairs = len(x) // 2
    distance = np.hypot(x[:pairs] - x[pairs:], y[:pairs] - y[pairs:])
    assert (distance > radius[0] + radius[1]).all()
    assert player.locator("text.name").all_text_contents() == [*map(str, range(1, pairs + 1))] * 2


def test_the_points_of_the_triplets_have_numbers_that_do_not_overlap(visit) -> None:
    visit.open("lessons", lesson="margins", done="margins")
    circle = visit.page.locator(".triplets figure").first
    numbers = circle.locator("text")
    expect(numbers).to_have_text([*map(str, range(1, len(margin_batch()) + 1))] * 2)
    boxes = [box for one in numbers.all() if (box := one.bounding_box())]
    tops = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes[len(boxes) // 2 :]]
    distances = [np.hypot(a[0] - b[0], a[1] - b[1]) for at, a in enumerate(tops) for b in tops[:at]]
    assert min(distances) > 12, "the numbers of two documents overlap"


def test_two_toy_trainings_are_next_to_each_other_and_differ(visit) -> None:
    visit.open("learn", source="circle", watch="bsc", second_loss="mse")
    runs = visit.page.locator(".player .run")
    expect(visit.page.locator(".player")).to_have_attribute("data-step", "100")
    boxes = [run.bounding_box() for run in runs.all()]
    assert boxes[0]["y"] == pytest.approx(boxes[1]["y"], abs=1)
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    facts = runs.locator(".facts").all_inner_texts()
    assert facts[0] != facts[1]


@pytest.mark.parametrize("width", [390, 800])
def test_cells_are_large_enough_to_touch_on_narrow_screens(visitor, server, width: int) -> None:
    narrow = visitor(server, viewport={"width": width, "height": 900})
    for query in ({"preset": "near_misses"}, {"source": "circle", "pairs": "16"}):
        narrow.open("learn", **query)
        cells = narrow.page.locator(".panel .cell")
        expect(cells.last).to_have_attribute("aria-label", SOME_NUMBER)
        sizes = cells.evaluate_all(
            "cells => cells.map(cell => cell.getBoundingClientRect()).map(box => [box.width, box.height])"
        )
        assert np.min(sizes) >= 24
        np.testing.assert_allclose(*np.transpose(sizes), atol=1)
        assert narrow.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_lab_is_readable_in_dark_mode_on_a_narrow_screen(visitor, server) -> None:
    narrow = visitor(server, viewport={"width": 800, "height": 900}, color_scheme="dark")
    narrow.open("learn", preset="near_misses", watch="mse")
    page = narrow.page
    expect(page.locator(".panel")).to_have_count(3)
    boxes = [panel.bounding_box() for panel in page.locator(".panel").all()]
    assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= 800 for box in boxes)
    text = page.locator(".lab").evaluate("lab => getComputedStyle(lab).color")
    ground = page.get_by_test_id("stApp").evaluate("app => getComputedStyle(app).backgroundColor")
    bright = [sum(int(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]) for color in (text, ground)]
    assert bright[0] - bright[1] > 300
    narrow.check_no_faults()
