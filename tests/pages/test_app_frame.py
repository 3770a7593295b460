"""The frame: which pages there are, what their start imports, and a context that goes from page to page."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.runs import Run, RunStore
from pages.ui import words

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "sentence_transformers", "umap", "faiss", "sklearn")
PAGES = ("start", "learn", "lessons", "data", "batches", "train", "runs", "embeddings", "retrieval", "findings")


def test_the_app_opens_on_the_three_doors(runs: RunStore) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert not app.exception
    assert [element.value for element in app.subheader][:3] == [
        "See how it works",
        "Inspect your batches",
        "Launch a run",
    ]


def test_the_frame_is_a_page_list_and_no_more() -> None:
    lines = (ROOT / "app.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 30
    assert all(f'st.Page("pages/{page}.py"' in "\n".join(lines) for page in PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_a_short_recipe(page: str) -> None:
    assert len((ROOT / "pages" / f"{page}.py").read_text(encoding="utf-8").splitlines()) <= 100


def test_the_start_of_the_app_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, json; from streamlit.testing.v1 import AppTest; "
        f"app = AppTest.from_file({str(ROOT / 'app.py')!r}, default_timeout=60).run(); assert not app.exception; "
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    import os

    environment = {**os.environ, "BSC_RUNS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_a_choice_in_the_bar_holds_on_the_next_page(runs: RunStore) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    app.switch_page("pages/data.py").run()
    app.selectbox(key="encoder").select("static").run()
    app.switch_page("pages/train.py").run()
    assert not app.exception
    assert app.selectbox(key="encoder").value == "static"


def test_a_link_opens_the_page_with_what_it_says(visit: Callable[..., AppTest], finished: Run) -> None:
    app = visit("data", encoder="static", run=finished.id)
    assert not app.exception
    assert app.selectbox(key="encoder").value == "static"
    assert app.selectbox(key="run").value == finished.id


@pytest.mark.parametrize("field", ["dataset", "run"])
def test_a_link_to_something_that_is_gone_falls_back(pages: type, runs: RunStore, field: str) -> None:
    app = pages.alone("data", **{field: "long-gone"})
    assert not app.exception
    assert app.selectbox(key=field).value in ("sample", "none")


def test_running_jobs_stand_at_the_foot_of_the_sidebar(pages: type, runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "20260101-000000-mine-0002")
    run.update_status(state="queued", step=3, steps=10, eta_seconds=42.0)
    app = pages.alone("data")
    assert not app.exception
    assert "30% · mine-0002, 42 s left" in [element.value for element in app.sidebar.text]


def test_the_shipped_settings_listen_here_only_and_send_nothing() -> None:
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert settings["server"]["address"] == "localhost"
    assert settings["browser"]["gatherUsageStats"] is False
    for mode in ("light", "dark"):
        assert len(settings["theme"][mode]["chartDivergingColors"]) == 10
        assert len(settings["theme"][mode]["chartSequentialColors"]) == 10


@pytest.mark.parametrize("name", sorted(words.WORDS))
def test_every_word_is_defined_in_a_sentence(name: str) -> None:
    card = words.help_text(name)
    assert words.WORDS[name].definition.endswith(".")
    assert card.count("$$") in (0, 2)
