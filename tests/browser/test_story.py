"""The whole story on the sample data, as somebody lives it who opens the app for the first time."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from answers import best, lists, search
from playwright.sync_api import expect

from bsc_core.data import audit, load_data
from bsc_core.evaluation.retrieval import retrieval_task
from bsc_core.figures import theme
from bsc_core.recipes.sample import sample_config
from bsc_core.runs import Run

EPOCHS = 24
MINUTES_MS = 120_000
OWN_QUERY = "my sourdough loaf is flat and dense"
STEP = re.compile(r"step (\d+) of (\d+)")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def sample_rows(sample_pairs: Path) -> dict[int, dict[str, str]]:
    """Line number in the file -> the row that stands there."""
    with sample_pairs.open(encoding="utf-8", newline="") as file:
        return dict(enumerate(csv.DictReader(file, delimiter="\t"), start=2))


def test_from_the_first_look_at_the_data_to_what_training_changed(visit, sample_rows):
    look_at_the_start(visit)
    look_at_the_data(visit, sample_rows)
    look_at_a_batch(visit, sample_rows)
    run = launch_a_run(visit)
    reload_the_page_while_it_trains(visit, run)
    see_it_end(visit, run)
    see_what_moved(visit, run)
    search_with_both_models(visit, run)


def look_at_the_start(visit):
    visit.open()
    for door in ("See how it works", "Inspect your batches", "Launch a run"):
        expect(visit.page.get_by_role("heading", name=door, exact=True)).to_be_visible()
    expect(visit.page.get_by_test_id("stVegaLiteChart")).to_have_count(2)
    expect(visit.page.get_by_role("button", name="Launch")).to_be_enabled()
    visit.press("Bring your own pairs")


def look_at_the_data(visit, sample_rows):
    visit.whole("What is in these pairs")
    page, data = visit.page, load_data(sample_config(), seed=0)
    visit.choose("Dataset", "sample")
    read = len(sample_rows) + len(data.corpus)
    expect(page.get_by_text(f"{read:,} rows", exact=True)).to_be_visible()
    expect(page.get_by_text("0 rejected", exact=True)).to_be_visible()
    expect(page.get_by_text(f"{len(data.train):,} training pairs", exact=True)).to_be_visible()
    for line, query, document, *_ in visit.rows("Pairs of texts"):
        assert (query, document) == (sample_rows[int(line)]["query"], sample_rows[int(line)]["document"])
    page.get_by_role("tab", name="Columns").click()
    roles = {row[0]: row[1] for row in visit.rows("Columns, their roles and examples")}
    assert roles["query"] == "query"
    assert roles["topic"] == "not used"
    page.get_by_role("tab", name="Audit").click()
    found = audit(data)
    assert found
    for finding in found:
        expect(page.get_by_text(finding.title, exact=True)).to_be_visible()
    visit.choose("Encoder", "static")
    visit.press("Look at the batches")


def look_at_a_batch(visit, sample_rows):
    visit.whole("Which pairs meet in a batch")
    page = visit.page
    cells = visit.keyed("batches.matrix").locator("[aria-roledescription='rect mark'][aria-label*='own document: ']")
    expect(cells).to_have_count(30 * 30)
    told = [facts(label) for label in cells.evaluate_all("all => all.map(cell => cell.ariaLabel)")]
    plain = next(place for place, one in enumerate(told) if one["kind"] == "in-batch negative")
    marked = [place for place, one in enumerate(told) if one["kind"] == "nearer than the own document"][-1]
    for place in (plain, marked):
        cells.nth(place).click(force=True)  # in its middle, where a mark may lie above it
        pinned_pair_shows(visit, told[place], sample_rows)
        visit.whole()

    hardest = [line[-5:] for line in visit.rows("Hardest in-batch negatives")]  # after the box that chooses the line
    cosines = [float(line[0]) for line in hardest]
    assert len(hardest) > 5
    assert cosines == sorted(cosines, reverse=True)
    answers = {(one["query"], one["document"]): float(one["label"]) for one in sample_rows.values()}
    assert all(answers.get((query, document), 0.0) <= 0.5 for _, _, query, document, *_ in hardest)
    groups = re.compile(r"^(\d+) groups in this batch; neighbours have a mean cosine of 0\.\d{3} to their anchor\.")
    number = int(groups.match(page.get_by_text(groups).inner_text())[1])
    small = page.get_by_test_id("stVegaLiteChart").nth(2).locator("text", has_text=re.compile(r"^group \d+$"))
    expect(small).to_have_count(number)
    visit.press("Train with this plan")


def facts(label: str) -> dict[str, str]:
    """What a cell tells a screen reader: `cosine: 0.4; query: ...; document: ...; kind: ...` by name."""
    return dict(part.split(": ", 1) for part in re.split(r"; (?=[a-z ]+: )", label))


def pinned_pair_shows(visit, told: dict[str, str], sample_rows) -> None:
    pin = visit.page.get_by_test_id("stVerticalBlock").filter(has_text="Click a cell to pin it").last
    expect(pin.get_by_text(f"Pinned pair · {told['kind']}")).to_be_visible()
    for side in ("query", "document"):
        expect(pin.get_by_text(told[side], exact=True).first).to_be_visible()
        line = pin.get_by_text(re.compile(rf"^{side.capitalize()} · line \d+$")).inner_text().split()[-1]
        assert sample_rows[int(line)][side] == told[side]
    shown = [float(number) for number in pin.get_by_test_id("stMetricValue").all_inner_texts()[:2]]
    assert shown == pytest.approx([float(told["similarity"]), float(told["own document"])], abs=0.0011)


def launch_a_run(visit) -> Run:
    visit.whole("What should the encoder learn")
    page, known = visit.page, {run.id for run in visit.server.store.list()}
    visit.choose("Start from", "Fast lesson")
    page.get_by_text(re.compile("^Training: 5 epochs")).click()
    epochs = page.get_by_role("spinbutton", name="Epochs")
    epochs.fill(str(EPOCHS))
    epochs.press("Enter")
    expect(page.get_by_text(re.compile(f"^Training: {EPOCHS} epochs, batch 30,"))).to_be_visible()
    expect(page.get_by_text("Start from static token vectors")).to_be_visible()
    visit.press("Launch")
    visit.whole("What are the runs doing")
    (run,) = [run for run in visit.server.store.list() if run.id not in known]
    chosen = run.config()
    assert (chosen.encoder.name, chosen.batching.strategy, chosen.training.epochs) == ("static", "examples", EPOCHS)
    return run


def reload_the_page_while_it_trains(visit, run):
    page = visit.page
    expect(page.get_by_role("combobox", name="Run", exact=True)).to_have_value(run.id)
    before = shown_step(visit, at_least=1)
    page.reload()
    visit.whole("What are the runs doing")
    assert not run.status().is_finished, "the run ended before the page was reloaded: give it more epochs"
    expect(page.get_by_role("combobox", name="Run", exact=True)).to_have_value(run.id)
    assert run.id in page.url
    after = shown_step(visit, at_least=before)
    shown_step(visit, at_least=after + 1)
    assert [row[1] for row in visit.rows(RUNS) if run.id in row[0]] == ["● running"]
    expect(page.get_by_test_id("stSidebar").get_by_role("link", name=re.compile(r"^.*\d+% · "))).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart").or_(page.locator(".js-plotly-plot")).first).to_be_visible()


RUNS = "Runs with state, progress, step, time left, metric on dev, group and age"
MEASURED = "Metrics before and after training"
INTERVAL = re.compile(r"(-?\d\.\d{3}) \[(-?\d\.\d{3}), (-?\d\.\d{3})\]")
ANSWERS = ("yes, ", "cannot be told", "no difference")


def shown_step(visit, *, at_least: int) -> int:
    """The step that the page shows, once it is as far as this; no step that the run has not made is shown."""
    line = visit.page.get_by_test_id("stMain").get_by_text(STEP)
    digits = "|".join(str(step) for step in range(at_least, 1000))
    expect(line).to_have_text(re.compile(rf"step ({digits}) of"), timeout=MINUTES_MS)
    return int(STEP.search(line.inner_text())[1])


def see_it_end(visit, run):
    page = visit.page
    badge = page.locator(".stMarkdownBadge").first
    expect(badge).to_contain_text("done", timeout=MINUTES_MS)
    visit.whole("What are the runs doing")
    status = run.status()
    assert (status.state, status.step, status.exit_code) == ("done", status.steps, 0)
    expect(
        page.get_by_text(f"step {status.step} of {status.steps} · epoch {EPOCHS} of {EPOCHS} · took")
    ).to_be_visible()
    before, after = run.read_json("evaluation/before")["dev"], run.read_json("evaluation/after")["dev"]
    assert before["mrr"] != after["mrr"]
    lines = {row[1]: row for row in visit.rows(MEASURED, holding="spearman") if row[0] == "dev"}
    for name in ("mrr", "has_positive@1", "spearman"):
        shows_with_intervals(lines[name], before[name], after[name])
    expect(page.get_by_test_id("stSidebar").get_by_text("No run is active.")).to_be_visible()
    visit.press("See what moved")


def shows_with_intervals(line: list[str], before: float, after: float) -> None:
    """A line `split, metric, before, after, is this a difference?`: each value within its interval, and an answer."""
    for cell, value in zip(line[2:4], (before, after), strict=True):
        told, low, high = (float(number) for number in INTERVAL.fullmatch(cell).groups())
        assert told == pytest.approx(value, abs=5.1e-4)
        assert low <= told <= high
    assert line[4].startswith(ANSWERS)


def see_what_moved(visit, run):
    visit.whole("Which texts does the encoder hold to be close")
    page, texts = visit.page, run.read_json("texts")["count"]
    made = page.get_by_text(re.compile(r"^Of a text's 10 nearest neighbours"))
    umap = page.get_by_test_id("stProgress").filter(has_text="PCA stands in below")
    expect(umap).to_be_visible()
    maps_of(visit, texts)
    pca = made.inner_text()
    expect(umap).to_have_count(0, timeout=MINUTES_MS)
    visit.whole()
    (folder,) = (run.folder / "maps").glob("umap-*")
    with np.load(folder / "map.npz", allow_pickle=False) as archive:
        trust = [theme.share(float(share)) for share in archive["trust"]]
    expect(made).to_contain_text(f"{trust[0]} (before training) and {trust[1]} (after training)")
    assert made.inner_text() != pca
    maps_of(visit, texts)

    page.get_by_role("radio", name="PCA").click()
    expect(made).to_have_text(pca)
    visit.press("Search with it")


def maps_of(visit, texts: int) -> None:
    """Both maps are drawn, of all texts."""
    name = f"Map of {texts:,} texts, Before training and After training."
    canvas = visit.page.get_by_role("img", name=re.compile(f"^{re.escape(name)}"))
    expect(canvas).to_have_attribute("data-milliseconds", re.compile(r"\d"))


def search_with_both_models(visit, run):
    visit.whole("What does the model find")
    page = visit.page
    before, after = run.read_json("evaluation/before")["dev"], run.read_json("evaluation/after")["dev"]
    card = page.get_by_test_id("stMetric").filter(has_text="MRR")
    expect(card.get_by_test_id("stMetricValue")).to_have_text(f"{after['mrr']:.3f}")
    change = f"{after['mrr'] - before['mrr']:+.3f}"
    expect(card.get_by_test_id("stMetricDelta")).to_contain_text(change)

    data = load_data(run.config().data, seed=0)
    task = retrieval_task(data.dev, data.corpus)
    query = int(task.query[0])
    search(visit, data.texts[query].upper())
    expect(page.get_by_text("An example, the query whose gold moved most")).to_have_count(0)
    visit.whole()
    expect(page.get_by_text(re.compile("^★ gold: left ")).first).to_be_visible()
    found = lists(visit)
    for part, answers in zip(("before", "after"), found, strict=True):
        assert answers == best(run.array(f"embeddings_{part}"), query, task.corpus)

    search(visit, OWN_QUERY)
    expect(page.get_by_text("A query of your own: no gold is known for it.")).to_be_visible()
    left, right = lists(visit)
    assert (len(left), len(right)) == (10, 10)
    assert left != found[0]
