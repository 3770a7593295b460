"""App frame: page list, sidebar, and a context bar whose selection carries over to the next page."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bsc_core.background_task import STUDENTS
from bsc_core.config import DataConfig
from bsc_core.errors import InputError
from bsc_core.figures import theme
from bsc_core.runs import Run, RunStore
from pages.ui.components import data_cache, display, glossary, page_layout, sidebar_jobs, url
from pages.ui.data import uploads
from tests.helpers.pages import open_app, open_page, open_page_in_app, page_text

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("start", "learn", "lessons", "data", "batches", "train", "runs", "embeddings", "retrieval", "findings")


def test_the_app_opens_on_the_start_page(runs: RunStore) -> None:
    app = open_app()
    headings = [element.value for element in app.header]
    assert headings[:3] == ["See how it works", "Inspect your batches", "Launch a run"]


def test_app_py_is_a_short_list_of_pages() -> None:
    lines = (ROOT / "app.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 30
    assert all(f'st.Page("pages/{page}.py"' in "\n".join(lines) for page in PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_file_is_short(page: str) -> None:
    assert len((ROOT / "pages" / f"{page}.py").read_text(encoding="utf-8").splitlines()) <= 100


def test_a_selection_in_the_bar_carries_over_to_the_next_page(runs: RunStore) -> None:
    app = open_app()
    app.switch_page("pages/data.py").run()
    app.selectbox(key="encoder").select("static").run()
    assert "Static (fast)" in app.selectbox(key="encoder").options
    app.switch_page("pages/batches.py").run()
    assert app.selectbox(key="encoder").value == "static"


def test_the_new_run_page_has_one_box_for_the_encoder_which_starts_from_the_last_selection(runs: RunStore) -> None:
    app = open_app()
    app.switch_page("pages/data.py").run()
    app.selectbox(key="encoder").select("static").run()
    app.switch_page("pages/train.py").run()
    assert [box.key for box in app.selectbox if box.label == "Encoder"] == ["train.encoder.name"]
    assert app.selectbox(key="train.encoder.name").value == "static"


def test_a_link_sets_the_bar(visit: Callable, finished: Run) -> None:
    data = finished.config().data
    key = uploads.register(uploads.folder_for(data.train), "Trained on", data)
    app = visit("batches", encoder="static", run=finished.id)
    assert app.query_params["encoder"] == "static"
    name = Path(finished.config().encoder.name).name
    assert app.selectbox(key="encoder").options == [name], "the encoder is not that of the run"
    assert app.selectbox(key="run").value == finished.id
    assert app.selectbox(key="dataset").value == key, "the dataset is not that of the run"
    assert "dataset" not in app.query_params
    app.selectbox(key="dataset").select("sample").run()
    assert not {"dataset", "run"} & app.query_params.keys()
    assert app.selectbox(key="dataset").value == "sample"
    assert app.selectbox(key="run").value == page_layout.NO_RUN, "the page still shows the data of the run"


def test_a_link_to_another_dataset_selects_no_run_and_with_both_the_run_decides(visit: Callable, finished: Run) -> None:
    data = finished.config().data
    key = uploads.register(uploads.folder_for(data.train), "Trained on", data)
    app = visit("batches", encoder="static", run=finished.id, dataset="sample")
    assert app.selectbox(key="dataset").value == key
    assert "on which the run was trained." in page_text(app)
    del app.query_params["run"]
    app.query_params["dataset"] = "sample"
    app.run()
    assert (app.selectbox(key="dataset").value, app.selectbox(key="run").value) == ("sample", page_layout.NO_RUN)


def test_another_dataset_on_a_page_without_runs_selects_no_run(finished: Run) -> None:
    app = open_page_in_app("batches", encoder="static", run=finished.id)
    app.switch_page("pages/data.py").run()
    app.selectbox(key="dataset").select("sample-nli").run()
    assert not app.exception
    app.switch_page("pages/batches.py").run()
    assert not app.exception
    assert (app.selectbox(key="dataset").value, app.selectbox(key="run").value) == ("sample-nli", page_layout.NO_RUN)


def test_the_dataset_of_a_run_that_is_not_listed_is_named(visit: Callable, finished: Run) -> None:
    app = visit("batches", encoder="static", run=finished.id)
    assert app.selectbox(key="dataset").options == [Path(finished.config().data.train).name]
    del app.query_params["run"]
    app.query_params["dataset"] = "sample"
    app.run()
    assert (app.selectbox(key="dataset").value, app.selectbox(key="run").value) == ("sample", page_layout.NO_RUN)


@pytest.mark.parametrize("field", ["dataset", "run"])
def test_a_link_to_a_missing_dataset_or_run_falls_back_to_the_default(runs: RunStore, field: str) -> None:
    app = open_page("retrieval", **{field: "missing"})
    assert app.selectbox(key=field).value in ("sample", "none")


@pytest.mark.parametrize("page", ["start", "lessons", "runs"])
def test_a_parameter_that_a_page_does_not_have_is_reported(runs: RunStore, page: str) -> None:
    app = open_page(page, encoder="static", color="red", nope="1")
    assert "This page has no setting color or nope." in page_text(app)
    assert url.TITLE not in page_text(open_page(page, encoder="static"))


def test_a_value_that_a_setting_of_the_url_cannot_have_is_reported_until_another_is_selected(mapped: Run) -> None:
    invalid = {"embeddings.color": "<b>red</b>", "embeddings.method": "PCA", "embeddings.way": "Stacked"}
    app = open_page("embeddings", run=mapped.id, **invalid)
    sentences = [
        "embeddings.way is 'Stacked'; it must be Side by side or Animated.",
        "embeddings.color is '<b>red</b>'; it must be Side, Label, Topic, Split, Group or Search result.",
    ]
    assert [one.value for one in app.text if "it must be" in one.value] == [" ".join(sentences)]
    assert app.run().selectbox(key="embeddings.color").value == "side"
    assert " ".join(sentences) in page_text(app)
    app.query_params["embeddings.color"] = "Split"  # as a browser does when another value is selected
    assert url.TITLE not in page_text(app.run())


def test_active_jobs_are_in_the_sidebar(runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "20260101-000000-mine-0002")
    run.update_status(state="queued", step=3, steps=10, eta_seconds=42.0)
    app = open_page("data")
    assert "30% · mine-0002, 42 s left" in [element.value for element in app.sidebar.text]


def test_the_shipped_settings_use_localhost_and_send_no_statistics() -> None:
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert settings["server"]["address"] == "localhost"
    assert settings["browser"]["gatherUsageStats"] is False
    assert settings["theme"]["light"]["chartCategoricalColors"] == list(theme.CATEGORIES)
    for mode in ("light", "dark"):
        assert len(settings["theme"][mode]["chartDivergingColors"]) == 10
        assert len(settings["theme"][mode]["chartSequentialColors"]) == 10


@pytest.mark.parametrize("name", sorted(glossary.TERMS))
def test_every_glossary_term_has_a_definition(name: str) -> None:
    assert glossary.TERMS[name].definition.endswith(".")
    assert glossary.help_text(name).count("$$") in (0, 2)


@pytest.mark.parametrize("name", sorted(name for name, term in glossary.TERMS.items() if term.symbols))
def test_the_symbols_that_a_glossary_term_explains_are_in_its_equation(name: str) -> None:
    term = glossary.TERMS[name]
    assert term.symbols.startswith("In the equation, ")
    assert term.symbols.endswith(".")
    assert glossary.help_text(name).index(term.equation) < glossary.help_text(name).index(term.symbols)
    for symbol in term.symbols.split("$")[1::2]:
        assert symbol in term.equation, symbol


def test_one_file_at_a_time_is_built_for_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display.st, "session_state", {})
    sent: list[Callable[[], bytes]] = []
    monkeypatch.setattr(display.st, "download_button", lambda label, data, **options: sent.append(data))
    display.download("First", lambda: sent[1](), key="first")
    display.download("Second", lambda: b"second", key="second")
    with pytest.raises(InputError, match="another file is being built"):
        sent[0]()
    assert sent[1]() == b"second"


def test_one_file_at_a_time_is_built_for_a_link_of_students(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Callable[[], bytes]] = []
    monkeypatch.setattr(display.st, "download_button", lambda label, data, **options: sent.append(data))
    monkeypatch.setattr(display.users, "task_user", lambda: STUDENTS)
    for page, link in enumerate(("class-a", "class-a", "class-b")):
        monkeypatch.setattr(display.st, "session_state", {})
        monkeypatch.setattr(display.users, "current_user", lambda link=link: SimpleNamespace(name=link))
        display.download("Save", (lambda: sent[1]()) if page == 0 else lambda: b"file", key="save")
    with pytest.raises(InputError, match="another file is being built"):
        sent[0]()
    assert sent[1]() == sent[2]() == b"file"


def test_the_files_that_a_link_of_students_saves_in_ten_minutes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Callable[[], bytes]] = []
    monkeypatch.setattr(display.st, "download_button", lambda label, data, **options: sent.append(data))
    monkeypatch.setattr(display.st, "session_state", {})
    monkeypatch.setattr(display, "MAX_BUILT", 100)
    monkeypatch.setattr(display.users, "current_user", lambda: SimpleNamespace(name="class-of-savers"))
    now = [1000.0]
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for task_user in (STUDENTS, "ben"):
        monkeypatch.setattr(display.users, "task_user", lambda user=task_user: user)
        display.download("Save", lambda: bytes(60), key="save")
    student, member = sent
    assert [len(student()), len(student())] == [60, 60]
    with pytest.raises(InputError, match="try again in ten minutes"):
        student()
    assert [len(member()) for _ in range(4)] == [60] * 4
    now[0] += display.BUILT_SECONDS + 1
    assert len(student()) == 60


def test_the_stamps_of_a_folder_change_with_any_file_in_it(tmp_path: Path) -> None:
    path = tmp_path / "dataset" / "train" / "data.arrow"
    path.parent.mkdir(parents=True)
    path.write_text("rows")
    before = data_cache.file_stamps(tmp_path / "dataset")
    assert data_cache.file_stamps(tmp_path / "dataset") == before
    path.write_text("other rows")
    assert data_cache.file_stamps(tmp_path / "dataset") != before


def test_a_dataset_with_the_name_of_sample_data_does_not_replace_it(runs: RunStore, small_pairs: Path) -> None:
    data = DataConfig(train=str(small_pairs), dev_size=0.2)
    key = uploads.register(uploads.folder_for(small_pairs), "sample", data)
    box = open_page("data").selectbox(key="dataset")
    assert box.options == ["sample", "sample-nli", f"sample ({key})"]
    assert open_page("data", dataset=key).selectbox(key="dataset").value == key


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ({"a": "x", "b": "y"}, ["x", "y"]),
        ({"a": "x", "b": "x", "c": "y"}, ["x (a)", "x (b)", "y"]),
        ({"a": "a", "b": "a"}, ["a", "a (b)"]),
        ({"a": "b", "b": "y"}, ["b (a)", "y"]),
        ({"a": "x (b)", "b": "x", "c": "x"}, ["x (b) (a)", "x (b) (b)", "x (c)"]),
    ],
)
def test_every_option_of_a_select_box_has_its_own_label(labels: dict[str, str], shown: list[str]) -> None:
    assert list(data_cache.unique_labels(labels).values()) == shown


@pytest.mark.parametrize(
    ("run_id", "text"),
    [
        ("20260101-000000-bsc-nearest-9907-012-temperature-0.05-seed-1", "30% · bsc-neare… 012"),
        ("20260101-000000-warmup-9907-012-seed-1", "30% · warmup 012"),
        ("20260101-000000-9907-012-seed-1-ab12", "30% · 9907 012"),
        ("20260101-000000-mse-12ab", "30% · mse-12ab"),
        ("20260101-000000-bsc-nearest-t0.05-12ab", "30% · …t0.05-12ab"),
    ],
)
def test_the_sidebar_names_a_run_by_what_distinguishes_it(run_id: str, text: str) -> None:
    assert sidebar_jobs.label("30%", run_id) == text
