"""End-to-end test on the sample data: from the Start page over a run to search with the trained model."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from answers import nearest_documents, result_lists, submit_query
from matrix import cells_of, click_cell, matrix_of
from playwright.sync_api import expect

from bsc_core import formatting
from bsc_core.data import audit, load_data
from bsc_core.data.sample_data import sample_config
from bsc_core.evaluation.retrieval.rank import retrieval_task
from bsc_core.presets.catalog import PRESETS, suggested
from bsc_core.presets.suitable_losses import shape_of
from bsc_core.runs import Run
from pages.ui.embeddings.frames import maps_folder
from tests.helpers.waiting import held, wait_until

EPOCHS = 6
NEW_QUERY = "my sourdough loaf is flat and dense"
STEP = re.compile(r"step (\d+) of (\d+)")


@pytest.fixture(scope="module")
def sample_rows(sample_pairs: Path) -> dict[int, dict[str, str]]:
    """Rows of the sample data by line number."""
    with sample_pairs.open(encoding="utf-8", newline="") as file:
        return dict(enumerate(csv.DictReader(file, delimiter="\t"), start=2))


def test_journey_from_the_start_page_over_a_preset_to_the_result_of_a_run(visit, sample_rows):
    check_the_start_page(visit)
    check_the_data(visit, sample_rows)
    check_a_batch(visit, sample_rows)
    run = launch_a_run(visit)
    reload_the_page_during_training(visit, run)
    check_the_finished_run(visit, run)
    check_the_embedding_map(visit, run)
    search_with_both_models(visit, run)


def check_the_start_page(visit):
    visit.open()
    for card in ("See how it works", "Inspect your batches", "Launch a run"):
        expect(visit.page.get_by_role("heading", name=card, exact=True)).to_be_visible()
    expect(visit.page.get_by_test_id("stVegaLiteChart")).to_have_count(2)
    expect(visit.page.get_by_role("button", name="Launch run")).to_be_enabled()
    visit.click_button("Import data")


def check_the_data(visit, sample_rows):
    visit.wait("What is in this dataset")
    page, data = visit.page, load_data(sample_config(), seed=0)
    visit.select_option("Dataset", "sample")
    read = f"{len(sample_rows):,} rows, {len(data.corpus):,} documents"
    expect(page.get_by_text(read, exact=True)).to_be_visible()
    expect(page.get_by_text("0 rejected", exact=True)).to_be_visible()
    expect(page.get_by_text(f"{len(data.train):,} training pairs", exact=True)).to_be_visible()
    for line, _, query, document, *_ in visit.rows("Pairs of texts"):
        assert (query, document) == (sample_rows[int(line)]["query"], sample_rows[int(line)]["document"])
    page.get_by_role("tab", name="Columns").click()
    roles = {row[0]: row[1] for row in visit.rows("Columns, their roles and examples")}
    assert roles["query"] == "query"
    assert roles["topic"] == "not used"
    page.get_by_role("tab", name="Audit").click()
    result = audit(data)
    assert result
    for finding in result:
        expect(page.get_by_text(finding.title)).to_be_visible()
    visit.select_option("Encoder", "Static (fast)")
    visit.click_button("Inspect the batches")


def check_a_batch(visit, sample_rows):
    visit.wait("Which negatives does a batch contain")
    page = visit.page
    page.get_by_role("tab", name="One batch", exact=True).click()
    visit.wait()
    reported = cells_of(matrix_of(visit))
    assert len(reported) == 32 * 32
    unlabeled = next(index for index, one in enumerate(reported) if one["kind"] == "in-batch negative")
    closer = [index for index, one in enumerate(reported) if one["kind"] == "closer than the positive"][-1]
    for index in (unlabeled, closer):
        click_cell(matrix_of(visit), *divmod(index, 32))
        check_the_pinned_pair(visit, reported[index], sample_rows)
        visit.wait()

    hardest = [line[-5:] for line in visit.rows("Hardest in-batch negatives")]  # without the checkbox of the row
    cosines = [float(line[1]) for line in hardest]
    assert len(hardest) > 5
    assert cosines == sorted(cosines, reverse=True)
    answers = {(one["query"], one["document"]): float(one["label"]) for one in sample_rows.values()}
    assert all(answers.get((query, document), 0.0) <= 0.5 for *_, query, document in hardest)
    groups = re.compile(r"^(\d+) groups in this batch.*\. The mean cosine of neighbors to their anchor is 0\.\d{3}$")
    number = int(groups.match(page.get_by_text(groups).inner_text())[1])
    titles = page.get_by_test_id("stVegaLiteChart").nth(1).locator("text", has_text=re.compile(r"^group \d+$"))
    expect(titles).to_have_count(number)
    visit.click_button("Train with this plan")


def check_the_pinned_pair(visit, expected: dict[str, str], sample_rows) -> None:
    pin = visit.page.get_by_test_id("stVerticalBlock").filter(has_text="Click a cell to pin it").last
    expect(pin.get_by_text(f"Pinned pair · {expected['kind']}")).to_be_visible()
    for side in ("query", "document"):
        start = expected[side].removesuffix("…")  # the tooltip cuts long texts
        expect(pin.get_by_text(re.compile(f"^{re.escape(start)}")).first).to_be_visible()
        line = pin.get_by_text(re.compile(rf"^{side.capitalize()} · line \d+$")).inner_text().split()[-1]
        assert sample_rows[int(line)][side].startswith(start)
    shown = [float(number) for number in pin.get_by_test_id("stMetricValue").all_inner_texts()[:2]]
    assert shown == pytest.approx(
        [float(expected[name].replace("\u2212", "-")) for name in expected if name.startswith("cosine")], abs=0.0095
    )


def launch_a_run(visit) -> Run:
    visit.wait("What will this run do")
    page, known = visit.page, {run.id for run in visit.server.store.list()}
    recommended = PRESETS[suggested(shape_of(load_data(sample_config(), seed=0).train))].title
    expect(page.get_by_role("combobox", name="Start from", exact=True)).to_have_value(recommended)
    visit.select_option("Start from", "Fast lesson")
    page.get_by_text(re.compile("^Training: 5 epochs")).click()
    epochs = page.get_by_role("spinbutton", name="Epochs")
    epochs.fill(str(EPOCHS))
    epochs.press("Enter")
    expect(page.get_by_text(re.compile(f"^Training: {EPOCHS} epochs, batch 32,"))).to_be_visible()
    expect(page.get_by_text("Start from static token vectors")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Run a preflight")).click()
    expect(page.get_by_role("button", name="Cancel the preflight")).to_be_visible()
    visit.click_button("Launch run")  # leaves the page while the preflight is shown
    visit.wait("How is training going")
    (run,) = [run for run in visit.server.store.list() if run.id not in known]
    chosen = run.config()
    assert (chosen.encoder.name, chosen.batching.strategy, chosen.training.epochs) == ("static", "nearest", EPOCHS)
    return run


def reload_the_page_during_training(visit, run):
    page = visit.page
    expect(page.get_by_role("combobox", name="Run", exact=True)).to_have_value(run.id[len("20260101-000000-") :])
    wait_until(lambda: run.status().step >= 1, lambda: "\n".join(run.log_tail()))
    with held(run):  # so that it does not end before the page is checked
        before = shown_step(visit, at_least=1)
        page.reload()
        visit.wait("How is training going")
        assert not run.status().is_finished
        expect(page.get_by_role("combobox", name="Run", exact=True)).to_have_value(run.id[len("20260101-000000-") :])
        assert run.id in page.url
        after = shown_step(visit, at_least=before)
        assert [row[3] for row in visit.rows(RUNS) if run.id.endswith(row[1])] == ["● running"]
        expect(page.get_by_test_id("stSidebar").get_by_role("link", name=re.compile(r"^.*\d+% · "))).to_be_visible()
        expect(page.get_by_test_id("stVegaLiteChart").or_(page.locator(".js-plotly-plot")).first).to_be_visible()
    shown_step(visit, at_least=after + 1)


RUNS = "Runs with state, metric on dev, settings that differ, progress, group and age"
METRICS = "Metrics before and after training"
INTERVAL = re.compile(r"(-?\d\.\d{3}) \[(-?\d\.\d{3}), (-?\d\.\d{3})\]")
VERDICTS = ("yes, ", "inconclusive", "no difference")


def shown_step(visit, *, at_least: int) -> int:
    """Wait until the page shows at least this step, and return the step shown."""
    line = visit.page.get_by_test_id("stMain").get_by_text(STEP)
    digits = "|".join(str(step) for step in range(at_least, 1000))
    expect(line).to_have_text(re.compile(rf"step ({digits}) of"))
    return int(STEP.search(line.inner_text())[1])


def check_the_finished_run(visit, run):
    page = visit.page
    badge = page.locator(".stMarkdownBadge").first
    expect(badge).to_contain_text("done")
    visit.wait("How is training going")
    status = run.status()
    assert (status.state, status.step, status.exit_code) == ("done", status.steps, 0)
    expect(
        page.get_by_text(f"step {status.step} of {status.steps} · epoch {EPOCHS} of {EPOCHS} · took")
    ).to_be_visible()
    before, after = run.read_json("evaluation/before")["dev"], run.read_json("evaluation/after")["dev"]
    assert before["mrr"] != after["mrr"]
    lines = {row[1]: row for row in visit.rows(METRICS, containing="Spearman") if row[0] == "dev"}
    for name in ("mrr", "has_positive@1", "spearman"):
        check_intervals(lines[formatting.metric_name(name)], before[name], after[name])
    expect(page.get_by_test_id("stSidebar").get_by_text("No run is active.")).to_be_visible()
    visit.click_button("Open the embedding map")


def check_intervals(line: list[str], before: float, after: float) -> None:
    """Check a row `split, metric, before, after, significant?`: each value is within its interval, with a verdict."""
    for cell, value in zip(line[2:4], (before, after), strict=True):
        reported, low, high = (
            float(number) for number in INTERVAL.fullmatch(cell.replace(formatting.MINUS, "-")).groups()
        )
        assert reported == pytest.approx(value, abs=5.1e-4)
        assert low <= reported <= high
    assert line[4].startswith(VERDICTS)


def check_the_embedding_map(visit, run):
    visit.wait("Which texts are close")
    page, texts = visit.page, run.read_json("texts")["count"]
    caption = page.get_by_text(re.compile(r"^Of a text's 10 nearest neighbors"))
    umap = page.get_by_test_id("stProgress").filter(has_text="The PCA map is shown until then")
    expect(umap).to_be_visible()
    title = page.get_by_text(re.compile(rf"^{texts:,} texts, before training and after training \(")).first
    expect(title).to_contain_text("(PCA; UMAP")
    check_maps_drawn(visit, texts)
    expect(umap).to_have_count(0)
    visit.wait()
    (folder,) = maps_folder(run).glob("umap-*")
    with np.load(folder / "map.npz", allow_pickle=False) as archive:
        preserved = [formatting.percent(float(share)) for share in archive["trust"]]
    expect(caption).to_contain_text(f"{preserved[0]} (before training) and {preserved[1]} (after training)")
    expect(title).to_contain_text("(UMAP)")
    of_umap = caption.inner_text()
    check_maps_drawn(visit, texts)

    page.get_by_role("radio", name="PCA").click()
    expect(title).to_contain_text("(PCA)")
    expect(caption).not_to_have_text(of_umap)
    visit.click_button("Search with this model")


def check_maps_drawn(visit, texts: int) -> None:
    """Check that both maps are drawn with all texts."""
    name = f"Map of {texts:,} texts, Before training and After training."
    canvas = visit.page.get_by_role("img", name=re.compile(f"^{re.escape(name)}"))
    expect(canvas).to_have_attribute("data-milliseconds", re.compile(r"\d"))


def search_with_both_models(visit, run):
    visit.wait("Which documents does a model find")
    page = visit.page
    before, after = run.read_json("evaluation/before")["dev"], run.read_json("evaluation/after")["dev"]
    card = page.get_by_test_id("stMetric").filter(has_text="MRR")
    expect(card.get_by_test_id("stMetricValue")).to_have_text(f"{after['mrr']:.3f}")
    change = f"{after['mrr'] - before['mrr']:+.3f}"
    expect(card.get_by_test_id("stMetricDelta")).to_contain_text(change)

    data = load_data(run.config().data, seed=0)
    task = retrieval_task(data.dev, data.corpus)
    query = int(task.query[0])
    submit_query(visit, data.texts[query].upper())
    expect(page.get_by_text(re.compile("^(Largest (win|loss)|Example)"))).to_have_count(0)
    visit.wait()
    expect(page.get_by_text(re.compile("^★ relevant document: ")).first).to_be_visible()
    nearest = [nearest_documents(run.array(f"embeddings_{part}"), query, task.corpus) for part in ("before", "after")]
    wait_until(lambda: result_lists(visit) == nearest, "the documents of the query are not shown")

    submit_query(visit, NEW_QUERY)
    expect(page.get_by_text("of the dataset, so its relevant documents are unknown.")).to_be_visible()
    wait_until(lambda: result_lists(visit)[0] not in ([], nearest[0]), "the documents of the new query are not shown")
    assert [len(side) for side in result_lists(visit)] == [10, 10]
