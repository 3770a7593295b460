"""Embeddings page: lasso, animation and a large map."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matrix import click_cell, matrix_of
from playwright.sync_api import expect

from bsc_core.config import make_config
from bsc_core.data.sample_data import sample_config
from bsc_core.jobs.states import advance
from bsc_core.neighbors import nearest_others
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore

SELECTED = re.compile(r"^\d[\d,]* texts selected")
CHANGED = "Texts whose neighbors changed most"
MANY = 100_000


@pytest.fixture(scope="module")
def trained(server, tiny_encoder: Path) -> Iterator[Run]:
    """Two epochs of the tiny encoder on the sample data."""
    training = {"epochs": 2, "batch_size": 32, "learning_rate": 1e-3, "threads": 1}
    encoder = {"name": str(tiny_encoder), "max_seq_length": 32}
    config = make_config({"data": sample_config().model_dump(), "encoder": encoder, "training": training})
    run = RunStore(server.store.root).create(config)
    advance(run, "running")
    run_experiment(config, run)
    advance(run, "done", exit_code=0)
    yield run
    shutil.rmtree(run.folder)  # other tests use the same server


def draw_lasso(visit, left: float, top: float, right: float, bottom: float) -> None:
    """Drag along a rectangle, given as shares of the canvas."""
    box, mouse = canvas_of(visit).bounding_box(), visit.page.mouse
    corners = [
        (box["x"] + x * box["width"], box["y"] + y * box["height"]) for x in (left, right) for y in (top, bottom)
    ]
    corners = [corners[index] for index in (0, 1, 3, 2)]
    mouse.move(*corners[0])
    mouse.down()
    for corner in corners[1:]:
        mouse.move(*corner, steps=6)
    mouse.up()


def canvas_of(visit):
    canvas = visit.page.get_by_role("img", name=re.compile(r"^Map of [\d,]+ texts"))
    expect(canvas).to_have_count(1)
    expect(canvas).to_have_attribute("data-milliseconds", re.compile(r"\d"))
    return canvas


def test_journey_from_the_embeddings_before_and_after_training_to_the_texts_that_changed_most(visitor, server, trained):
    visit = visitor(server)
    visit.open("embeddings", run=trained.id, **{"embeddings.method": "PCA"})
    canvas = canvas_of(visit)
    draw_lasso(visit, 0.12, 0.3, 0.36, 0.7)
    expect(visit.page.get_by_role("heading", name=SELECTED)).to_be_visible()
    visit.wait()
    heading = visit.page.get_by_role("heading", name=SELECTED).inner_text()
    number = int(heading.split()[0].replace(",", ""))
    total = int(re.search(r"Map of ([\d,]+)", canvas.get_attribute("aria-label")).group(1).replace(",", ""))
    assert 5 <= number < total
    expect(visit.page.get_by_text(f"{number:,} of {total:,} texts selected", exact=True)).to_be_visible()

    rows = visit.rows(f"{number:,} texts selected")
    data = texts_of(trained)
    before = np.asarray(trained.array("embeddings_before"))
    assert all(any(cell in data for cell in row) for row in rows)
    visit.select_row(f"{number:,} texts selected", 0)
    expect(visit.page.get_by_text("Nearest in embedding space to")).to_be_visible()
    visit.wait()
    text = next(cell for cell in rows[0] if cell in data)
    ids, _ = nearest_others(before, np.array([data.index(text)]), 1)
    assert data[int(ids[0, 0])] in visit.rows("Nearest, Before training")[0]
    visit.select_row(f"{number:,} texts selected", 0)
    expect(visit.page.get_by_text("Nearest in embedding space to")).to_have_count(0)
    visit.wait()

    address = visit.page.url
    again = visitor(server)
    again.page.goto(address)
    expect(again.page.get_by_role("heading", name=f"{number:,} texts selected")).to_be_visible()
    again.wait()
    again.page.close()

    click_cell(matrix_of(visit, "Before training: "), 0, 1)
    expect(visit.page.get_by_text("The line connects “")).to_be_visible()
    expect(visit.page).to_have_url(re.compile(r"embeddings\.pair=\w{6}-\d+-\d+"))

    visit.click_button("Clear the lasso")
    expect(visit.page.get_by_role("heading", name="Texts whose neighbors changed most")).to_be_visible()
    expect(visit.page.get_by_text(re.compile(rf"^{total:,} texts, before training"))).to_be_visible()
    visit.wait()
    changed = visit.rows(CHANGED)
    visit.select_row(CHANGED, 0)
    expect(visit.page.get_by_text("Nearest in embedding space to")).to_be_visible()
    visit.wait()
    visit.page.reload()
    expect(visit.page.get_by_text("Nearest in embedding space to")).to_be_visible()
    visit.wait()
    assert visit.rows(CHANGED)[0][-5:] == changed[0][-5:]


def texts_of(run: Run) -> list[str]:
    from bsc_core.preparation.experiment import load_experiment

    return list(load_experiment(run.config().data).texts)


def test_the_maps_are_wide_and_on_the_first_screen(visitor, server, trained):
    visit = visitor(server)
    visit.page.set_viewport_size({"width": 1440, "height": 900})
    for way in ("Side by side", "Animated"):
        visit.open("embeddings", run=trained.id, **{"embeddings.method": "PCA", "embeddings.way": way})
        box = canvas_of(visit).bounding_box()
        assert box["width"] > 1000
        assert box["height"] > 400
        assert box["y"] + box["height"] < 830  # above the main action
        scales = {tuple(map(float, one.split())) for one in canvas_of(visit).get_attribute("data-scale").split(",")}
        [(horizontal, vertical)] = scales  # the same on all maps
        assert max(horizontal, vertical) <= 1.3001 * min(horizontal, vertical)
        assert horizontal > vertical
    expect(visit.page.get_by_text("path of a listed text, in its color")).to_be_visible()
    expect(visit.page.get_by_role("button", name="Play the animation")).to_be_in_viewport()


def test_an_animation_moves_points_from_epoch_to_epoch(visitor, server, trained):
    visit = visitor(server)
    visit.open("embeddings", run=trained.id, **{"embeddings.method": "PCA", "embeddings.way": "Animated"})
    canvas = canvas_of(visit)
    slider = visit.page.get_by_role("slider", name="Training progress")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^Epoch 2"))
    end = canvas.evaluate("canvas => canvas.toDataURL()")
    slider.focus()
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", "Before training")
    expect(canvas).to_have_attribute("data-moment", "0.00")
    start = canvas.evaluate("canvas => canvas.toDataURL()")
    assert start != end
    visit.page.get_by_role("button", name="Play the animation").click()
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^Epoch 2"))
    expect(canvas).to_have_attribute("data-moment", "2.00")
    assert canvas.evaluate("canvas => canvas.toDataURL()") != start


def test_a_map_of_a_hundred_thousand_texts_moves_smoothly(visitor, server, large):
    visit = visitor(server)
    visit.open("embeddings", run=large.id, **{"embeddings.method": "PCA", "embeddings.most": f"{MANY:,} texts"})
    expect(visit.page.get_by_text(re.compile(rf"^{MANY:,} texts, ")).first).to_be_visible()
    visit.wait()
    visit.page.get_by_role("button", name="Drag to move the map").click()
    canvas = canvas_of(visit)
    drags, points = canvas.evaluate(
        """async (canvas, many) => {
        const box = canvas.getBoundingClientRect(), drags = [], points = [];
        const plain = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        const send = (type, x) => canvas.dispatchEvent(new PointerEvent(type, {pointerId: 1, button: 0, bubbles: true,
            clientX: box.left + box.width / 4 + x, clientY: box.top + box.height / 2}));
        canvas.setPointerCapture = () => {};
        send("pointerdown", 0);
        for (let move = 1; move <= 40; move++) {
            send("pointermove", 5 + move);
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            drags.push(Number(canvas.dataset.milliseconds));
            const start = performance.now();
            for (let point = 0; point < many; point++) {
                plain.beginPath();
                plain.arc((point * 7919) % canvas.width, (point * 104729) % canvas.height, 3, 0, 2 * Math.PI);
                plain.fill();
            }
            points.push(performance.now() - start);
        }
        send("pointerup", 45);
        return [drags, points];
    }""",
        MANY,
    )
    assert len(set(drags)) > 5, "the map was not drawn again while it was dragged"
    assert np.median(drags) < np.median(points) / 3, "drawing the map takes as long as drawing each point"


@pytest.fixture
def large(server) -> Iterator[Run]:
    """A run on 100,000 texts whose vectors are sampled around 40 centers; nothing is trained."""
    from bsc_core.preparation.experiment import load_experiment

    path = server.folder / "large.tsv"
    lines = (f"question {number}\tanswer {number}" for number in range(MANY // 2))
    path.write_text("query\tdocument\n" + "\n".join(lines) + "\n", encoding="utf-8")
    config = make_config({"data": {"train": str(path), "dev_size": 0.02}, "encoder": {"name": "static"}})
    run = RunStore(server.store.root).create(config)
    advance(run, "running")
    texts = load_experiment(config.data).texts
    random = np.random.default_rng(0)
    vectors = random.normal(size=(40, 16))[random.integers(0, 40, MANY)] + random.normal(size=(MANY, 16))
    run.write_array("embeddings_before", vectors.astype(np.float32))
    run.write_array("embeddings_after", (vectors * np.linspace(0.5, 2, 16)).astype(np.float32))
    run.write_json("texts", {"digest": texts.digest, "count": len(texts)})
    advance(run, "done", exit_code=0)
    yield run
    shutil.rmtree(run.folder)  # other tests use the same server
