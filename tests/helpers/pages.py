"""Open pages without a browser, change widgets, and read texts and tables."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from bsc_core.config import RunConfig
from bsc_core.jobs.queue import Queue
from bsc_core.presets.catalog import family_of
from bsc_core.presets.suitable_losses import DataShape
from bsc_core.runs import RunStore
from pages.ui.components import data_cache
from pages.ui.new_run.config_summary import DataSummary
from tests.helpers.waiting import PATIENCE_SECONDS

LABELED = DataShape(positives=200, negatives=400, labeled=True, graded=True, classes=0, triplets=400)
SUMMARY = DataSummary(train=600, dev=150, dev_queries=50, corpus=800, train_queries=200, train_files=1, shape=LABELED)
ROOT = Path(__file__).resolve().parents[2]
PCA = {"embeddings.method": "PCA"}  # a map that no background task computes
TEXT_KINDS = ("title", "header", "subheader", "markdown", "text", "caption", "code")


def prepare_page(page: str, **query: str) -> AppTest:
    """Return a page that has not run yet, with the query parameters of a link."""
    return _with_query(AppTest.from_file(str(ROOT / "pages" / f"{page}.py"), default_timeout=PATIENCE_SECONDS), query)


def open_page(page: str, **query: str) -> AppTest:
    """Open a page alone, without app.py."""
    return prepare_page(page, **query).run()


def open_tab(app: AppTest, part: str) -> AppTest:
    """Open a tab of the run that the Runs page shows."""
    app.session_state["runs.part.overview"] = part
    app.run()
    assert not app.exception
    return app


def open_with_settings(settings: dict[str, dict[str, Any]]) -> AppTest:
    """Open the New run page with settings that another page sent."""
    app = prepare_page("train")
    app.session_state["sent_settings"] = settings
    return app.run()


def open_app() -> AppTest:
    """Open the start page through app.py."""
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=PATIENCE_SECONDS).run()


def open_page_in_app(page: str, **query: str) -> AppTest:
    """Open a page through app.py."""
    return _with_query(open_app().switch_page(f"pages/{page}.py"), query).run()


def _with_query(app: AppTest, query: dict[str, str]) -> AppTest:
    for name, value in query.items():
        app.query_params[name] = value
    return app


def page_text(app: AppTest) -> str:
    """Return all text on the page outside tables and widgets, one element per line, as it is displayed."""
    return "\n".join(_displayed(str(element.value)) for kind in TEXT_KINDS for element in app.get(kind))


def figure_titles(app: AppTest) -> list[str]:
    """Return the titles of the figures, and other bold texts."""
    lines = [_displayed(one.value).split("  \n")[0] for one in app.markdown]
    return [line.removeprefix("**").removesuffix("**") for line in lines if line.startswith("**")]


def _displayed(text: str) -> str:
    """Return Markdown without the backslashes of `display.escaped`."""
    return re.sub(r"\\([\\`*_\[\]!<>~$#|])", r"\1", text)


def click(app: AppTest, key: str) -> AppTest:
    """Click a button and rerun the page."""
    return app.button(key=key).click().run()


def expander_labels(app: AppTest) -> list[str]:
    return [_displayed(expander.label) for expander in app.expander]


def select_preset(app: AppTest, preset: str) -> None:
    """Select a preset on the New run page, with its family."""
    app.selectbox(key="train.family").set_value(family_of(preset)).run()
    app.selectbox(key="train.preset").set_value(preset).run()


def config_file(app: AppTest) -> dict[str, Any]:
    """Return the values of the config file that the New run page shows."""
    return tomllib.loads(next(code.value for code in app.code if "[training]" in code.value))


def queued_configs(runs: RunStore) -> list[RunConfig]:
    """Return the configs of the queued runs, next one first."""
    return [runs.get(run_id).config() for run_id in Queue(runs.root).waiting()]


def toggle_with_label(app: AppTest, label: str) -> Any:
    """Return the toggle with this label."""
    return next(toggle for toggle in app.toggle if toggle.label == label)


def table_with(app: AppTest, column: str) -> Any:
    """Return the first table with this column."""
    return next(frame.value for frame in app.dataframe if column in frame.value.columns)


def added_dataset(*others: str) -> data_cache.DatasetChoice:
    """Return the only dataset besides the sample data and `others`."""
    [added] = [choice for key, choice in data_cache.datasets().items() if key not in (*data_cache.SAMPLES, *others)]
    return added


def import_paths(*paths: Path | str) -> AppTest:
    """Open the Data page and enter paths in the import form."""
    app = open_page("data")
    return app.text_area(key="data.paths.0").input("\n".join(map(str, paths))).run()


def row_count(dataset: str) -> int:
    """Return the number of rows of a dataset over all splits."""
    return sum(len(split) for split in data_cache.dataset_splits(dataset).splits.values())
