"""Data: what was read, what was refused and why, and a file of one's own from upload to dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import DataConfig, ExamplesConfig
from bsc_core.errors import FileFormatError
from bsc_core.runs import RunStore
from pages.ui import store, uploads

HEADER = "question,reply,score\n"
MARKUP = '"<b>Is</b> **this** $x$ safe? <script>alert(1)</script>"'


def told(app: AppTest) -> str:
    return "\n".join(str(element.value) for kind in ("caption", "markdown", "text") for element in app.get(kind))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Twenty good rows, one without a reply and one whose label is no number."""
    rows = [f"what is {number},it is <script>{number}</script> **indeed**,{number % 2}" for number in range(19)]
    rows += [f"{MARKUP},yes it is,1", "no reply,,1", "no label,some reply,many"]
    path = tmp_path / "own.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def dataset(runs: RunStore, own: Path) -> str:
    return uploads.describe(uploads.folder_for(own), "Own", DataConfig(train=str(own), dev_share=0.3))


def test_the_sample_data_are_described_in_four_steps(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("data")
    assert not app.exception
    words = told(app)
    assert all(step in words for step in ("1 · Source", "2 · Columns", "3 · Audit", "4 · Shape"))
    assert "**1,676 rows**" in words
    assert [tab.label for tab in app.tabs] == ["Source", "Columns", "Audit", "Make examples", "Shape", "Export"]


def test_rejected_rows_are_shown_with_line_field_and_reason(pages: type, dataset: str) -> None:
    app = pages.alone("data", dataset=dataset)
    assert not app.exception
    table = next(frame.value for frame in app.dataframe if "reason" in frame.value.columns)
    assert table["line"].tolist() == [22, 23]
    assert table["field"].tolist() == ["reply", "score"]
    assert "2 rows could not be used" in told(app)


def test_texts_stay_letter_by_letter_and_are_never_markup(pages: type, dataset: str) -> None:
    app = pages.alone("data", dataset=dataset)
    shown = [text for frame in app.dataframe for column in frame.value.columns for text in frame.value[column]]
    assert any("<script>" in str(text) for text in shown)
    assert not any("<script>" in str(element.value) for kind in ("markdown", "caption") for element in app.get(kind))


def test_guessed_columns_are_shown_with_examples_and_can_be_changed(pages: type, runs: RunStore, own: Path) -> None:
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input(str(own)).run()
    assert not app.exception
    assert "guessed from the header" in told(app)
    described = next(frame.value for frame in app.dataframe if "role" in frame.value.columns)
    assert described["role"].tolist() == ["query", "document", "label"]
    assert described["examples"][0].startswith("what is 0 · what is 1")
    app.selectbox(key="data.new.label").select("— none —").run()
    app.text_input(key="data.new.name").input("Mine").run()
    app.button(key="data.new.use").click().run()
    assert not app.exception
    kept = [choice for choice in store.datasets().values() if choice.label == "Mine"]
    assert len(kept) == 1
    assert kept[0].data.columns is not None
    assert kept[0].data.columns.label is None


def test_the_columns_of_ones_own_dataset_can_be_changed_later(pages: type, dataset: str) -> None:
    app = pages.alone("data", dataset=dataset)
    key = f"data.edit.{dataset}"
    app.selectbox(key=f"{key}.query").select("reply").run()
    app.selectbox(key=f"{key}.document").select("question").run()
    app.button(key=f"{key}.use").click().run()
    assert not app.exception
    columns = store.data_config(dataset).columns
    assert columns is not None
    assert (columns.query, columns.document) == ("reply", "question")


def test_a_column_mapped_twice_is_refused_calmly(pages: type, dataset: str) -> None:
    app = pages.alone("data", dataset=dataset)
    app.selectbox(key=f"data.edit.{dataset}.query").select("reply").run()
    app.button(key=f"data.edit.{dataset}.use").click().run()
    assert not app.exception
    assert "This cannot be used as it is" in told(app)
    assert store.data_config(dataset).columns is None


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.csv", b"", "empty"),
        ("broken.csv", b"question,reply\nwhat,\xff\xfe\n", "UTF-8"),
        ("archive.csv", b"PK\x03\x04rest of a zip", "zip"),
        ("header.csv", b"question,reply\n", "header.csv"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    pages: type, runs: RunStore, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input(str(path)).run()
    if any(button.key == "data.new.use" for button in app.button):
        app.button(key="data.new.use").click().run()
    assert not app.exception
    assert "This cannot be used as it is" in told(app)
    assert any(reason in element.value for element in app.text)


def test_a_path_outside_the_allowed_roots_is_refused(
    pages: type, runs: RunStore, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = pages.alone("data")
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "elsewhere"))
    app.text_area(key="data.paths.0").input(str(own)).run()
    assert not app.exception
    assert any("outside the folders" in element.value for element in app.text)


def test_the_same_upload_lands_in_the_same_place(runs: RunStore) -> None:
    first, second = (uploads.save_file("My pairs.csv", b"a,b\n1,2\n") for _ in range(2))
    assert first == second
    assert first.is_relative_to(runs.uploads_folder)
    assert uploads.save_file("My pairs.csv", b"a,b\n3,4\n") != first


def test_an_upload_cannot_leave_its_folder(runs: RunStore) -> None:
    assert uploads.save_file("../../evil.csv", b"a,b\n").is_relative_to(runs.uploads_folder)
    with pytest.raises(FileFormatError, match="empty"):
        uploads.save_file("none.csv", b"")


def test_a_dataset_whose_file_is_gone_says_so(pages: type, dataset: str, own: Path) -> None:
    own.unlink()
    app = pages.alone("data", dataset=dataset)
    assert not app.exception
    assert any("no such file" in element.value for element in app.text)


def test_the_losses_that_fit_are_listed_with_when_to_choose_them(pages: type, runs: RunStore) -> None:
    for dataset, fits in ((store.SAMPLE, False), (store.SAMPLE_NLI, True)):
        app = pages.alone("data", dataset=dataset)
        assert not app.exception
        table = next(frame.value for frame in app.dataframe if "when to choose it" in frame.value.columns)
        assert ("softmax" in table["loss"].tolist()) == fits
        assert "bsc" in table["loss"].tolist()


def test_the_sample_nli_data_show_their_classes(pages: type, runs: RunStore) -> None:
    app = pages.alone("data", dataset=store.SAMPLE_NLI)
    table = next(frame.value for frame in app.dataframe if "class" in frame.value.columns)
    assert set(table["class"]) == {"entailment", "neutral", "contradiction"}
    assert "These are the sample data" in told(app)


def test_a_wrong_document_and_a_class_can_be_mapped(pages: type, runs: RunStore, tmp_path: Path) -> None:
    rows = [f"what is {n},it is {n},it is not {n},{'same' if n % 2 else 'other'}" for n in range(20)]
    path = tmp_path / "triplets.csv"
    path.write_text("ask,right,wrong,kind\n" + "\n".join(rows) + "\n", encoding="utf-8")
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input(str(path)).run()
    for role, column in (("query", "ask"), ("document", "right"), ("negative", "wrong"), ("class_label", "kind")):
        app.selectbox(key=f"data.new.{role}").select(column).run()
    app.button(key="data.new.use").click().run()
    assert not app.exception
    [own] = [choice for key, choice in store.datasets().items() if key not in store.SAMPLES]
    assert own.data.columns is not None
    assert (own.data.columns.negative, own.data.columns.class_label) == ("wrong", "kind")
    train = store.experiment_data(own.key).train
    assert train.negative is not None
    assert train.class_names == ("other", "same")


@pytest.fixture
def untidy(runs: RunStore, tmp_path: Path) -> str:
    """Forty good pairs, three of them repeated, and two that are paired with themselves."""
    rows = [f"what is {n} good for?,it is good for counting to {n},{n % 2}" for n in range(40)]
    rows += [*rows[1:4], "the same,the same,1", "also same,also same,1"]
    path = tmp_path / "untidy.csv"
    path.write_text("question,answer,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return uploads.describe(uploads.folder_for(path), "Untidy", DataConfig(train=str(path), dev_share=0.2))


def switch_of(app: AppTest, label: str) -> Any:
    return next(toggle for toggle in app.toggle if toggle.label == label)


def rows_in(key: str) -> int:
    return sum(len(part) for part in store.experiment_data(key).parts.values())


def test_a_remedy_says_what_it_would_drop_and_is_kept_with_the_dataset(pages: type, untidy: str) -> None:
    app = pages.alone("data", dataset=untidy)
    assert "would drop 3 rows" in told(app)
    before = rows_in(untidy)
    switch_of(app, "Drop repeats").set_value(True).run()
    assert not app.exception
    assert store.data_config(untidy).remedies == ("drop_repeats",)
    assert rows_in(untidy) == before - 3
    assert "dropped 3 rows" in told(app)
    assert "remedies dropped 3 rows" in told(app)
    assert "**Mended**" in told(app)
    switch_of(app, "Drop self pairs").set_value(True).run()
    assert store.data_config(untidy).remedies == ("drop_repeats", "drop_self_pairs")
    assert rows_in(untidy) == before - 5
    switch_of(app, "Drop repeats").set_value(False).run()
    assert store.data_config(untidy).remedies == ("drop_self_pairs",)
    assert rows_in(untidy) == before - 2


def test_a_finding_that_is_mended_stays_in_view_with_its_rows(pages: type, untidy: str) -> None:
    app = pages.alone("data", dataset=untidy)
    titles = [text.value for text in app.text if "epeated pairs" in text.value]
    switch_of(app, "Drop repeats").set_value(True).run()
    assert [text.value for text in app.text if "epeated pairs" in text.value] == titles
    assert titles


def test_a_remedy_that_would_leave_nothing_cannot_be_switched_on(pages: type, runs: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "same.csv"
    path.write_text("query,document\n" + "\n".join(f"text {n},text {n}" for n in range(20)), encoding="utf-8")
    key = uploads.describe(uploads.folder_for(path), "Same", DataConfig(train=str(path)))
    app = pages.alone("data", dataset=key)
    assert not app.exception
    assert switch_of(app, "Drop self pairs").disabled
    assert "would drop all" in told(app)


def test_remedies_of_the_sample_data_are_kept_beside_the_runs(pages: type, runs: RunStore) -> None:
    uploads.keep_remedies(store.SAMPLE, ("drop_near_repeats",))
    assert store.data_config(store.SAMPLE).remedies == ("drop_near_repeats",)
    assert store.data_config(store.SAMPLE_NLI).remedies == ()
    app = pages.alone("data")
    assert not app.exception
    assert store.experiment_data(store.SAMPLE).remedied


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """Sixty sentences of three classes told in words, and one row without a class."""
    themes = {"garden": "rose seed soil", "travel": "train ticket tent", "food": "soup bread salt"}
    rows = [
        f"{word} number {n} and {words.split()[n % 3]} {n * 7 % 11}\t{name}"
        for n in range(10)
        for name, words in themes.items()
        for word in words.split()[:2]
    ]
    path = tmp_path / "sentences.tsv"
    path.write_text("text\tlabel\n" + "\n".join([*rows, "no class\t"]) + "\n", encoding="utf-8")
    return path


def made(app: AppTest, key: str, **settings: object) -> AppTest:
    """Fill the form of a generator and press its button."""
    for name, value in settings.items():
        section = next(part for part in ("examples", "negatives", "nli") if _has(app, f"{key}.data.{part}.{name}"))
        _widget(app, f"{key}.data.{section}.{name}").set_value(value)
    return _widget(app, f"{key}.make").click().run()


def _widgets(app: AppTest) -> list[Any]:
    kinds = ("selectbox", "number_input", "text_input", "toggle", "button")
    return [widget for kind in kinds for widget in app.get(kind)]


def _has(app: AppTest, key: str) -> bool:
    return any(widget.key == key for widget in _widgets(app))


def _widget(app: AppTest, key: str) -> Any:
    return next(widget for widget in _widgets(app) if widget.key == key)


def test_a_file_of_sentences_leads_to_the_form_of_examples_and_to_a_dataset(
    pages: type, runs: RunStore, sentences: Path, tiny_encoder: Path
) -> None:
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input(str(sentences)).run()
    assert not app.exception
    assert "Examples from classified sentences" in told(app)
    key = f"data.new.{uploads.folder_for(str(sentences)).name}"
    made(app, key, encoder=str(tiny_encoder), neighbours=4, cap=3)
    assert not app.exception
    assert "after the cap: at most 3 of an anchor" in told(app)
    _widget(app, f"{key}.use").click().run()
    assert not app.exception
    [own] = [choice for name, choice in store.datasets().items() if name not in store.SAMPLES]
    assert own.label == "sentences.tsv · triplets"
    assert own.data.examples is not None
    assert (own.data.examples.neighbours, own.data.examples.cap) == (4, 3)
    assert own.data.columns is None

    data = store.experiment_data(own.key)
    assert data.train.negative is not None
    app = pages.alone("data", dataset=own.key)
    assert not app.exception
    words = told(app)
    assert f"**{len(data.train):,} training triplets**" in words
    assert "no number" not in words
    assert data.funnel[0].name == "sentences"
    heads = {caption.value for caption in app.caption}
    assert {":blue[anchor]", ":green[positive]", ":orange[negative]"} <= heads
    table = next(frame.value for frame in app.dataframe if "reason" in frame.value.columns)
    assert len(table) == 1


def test_every_step_of_the_funnel_shows_three_of_its_rows(
    pages: type, runs: RunStore, sentences: Path, tiny_encoder: Path
) -> None:
    examples = ExamplesConfig(encoder=str(tiny_encoder), neighbours=4, kind="pairs")
    key = uploads.describe(uploads.folder_for(sentences), "Made", DataConfig(train=str(sentences), examples=examples))
    app = pages.alone("data", dataset=key)
    steps = next(group for group in app.get("button_group") if group.key == "data.step")
    for stage in store.experiment_data(key).funnel:
        steps.set_value(stage.name)
        app.run()
        assert not app.exception
        shown = [text.value for text in app.text]
        assert all(text in shown for row in stage.examples for text in row), stage.name
        steps = next(group for group in app.get("button_group") if group.key == "data.step")


def test_sentences_are_audited_as_sentences(pages: type, runs: RunStore, tmp_path: Path, tiny_encoder: Path) -> None:
    rows = [f"sentence {n} of many words\t{n % 2}" for n in range(30)]
    path = tmp_path / "sentences.tsv"
    path.write_text("text\tlabel\n" + "\n".join([*rows, rows[0], rows[1]]) + "\n", encoding="utf-8")
    examples = ExamplesConfig(encoder=str(tiny_encoder), neighbours=2)
    key = uploads.describe(uploads.folder_for(path), "Made", DataConfig(train=str(path), examples=examples))
    app = pages.alone("data", dataset=key)
    assert not app.exception
    assert not any("paired with itself" in text.value for text in app.text)
    assert not any(toggle.label == "Drop self pairs" for toggle in app.toggle)
    before = store.experiment_data(key).funnel[0].count
    switch_of(app, "Drop repeats").set_value(True).run()
    assert not app.exception
    assert store.experiment_data(key).funnel[0].count < before


def test_settings_that_nothing_passes_are_refused_calmly(
    pages: type, runs: RunStore, sentences: Path, tiny_encoder: Path
) -> None:
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input(str(sentences)).run()
    key = f"data.new.{uploads.folder_for(str(sentences)).name}"
    made(app, key, encoder=str(tiny_encoder), target=10_000_000)
    assert not app.exception
    assert "This cannot be used as it is" in told(app)
    assert any("target" in element.value for element in app.text)


def test_changed_settings_ask_to_make_the_rows_again(
    pages: type, runs: RunStore, sentences: Path, tiny_encoder: Path
) -> None:
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input(str(sentences)).run()
    key = f"data.new.{uploads.folder_for(str(sentences)).name}"
    made(app, key, encoder=str(tiny_encoder), neighbours=4)
    assert _has(app, f"{key}.use")
    _widget(app, f"{key}.data.examples.neighbours").set_value(5).run()
    assert not _has(app, f"{key}.use")
    assert "make the rows again" in told(app)


def test_positives_only_pairs_get_negatives(pages: type, runs: RunStore, tmp_path: Path, tiny_encoder: Path) -> None:
    words = "rose seed soil train ticket tent soup bread salt".split()
    rows = [f"how do I {words[n % 9]} {n},you {words[n % 9]} it {n} times" for n in range(40)]
    path = tmp_path / "positives.csv"
    path.write_text("query,document\n" + "\n".join(rows) + "\n", encoding="utf-8")
    source = uploads.describe(uploads.folder_for(path), "Positives", DataConfig(train=str(path)))
    app = pages.alone("data", dataset=source)
    assert "Negatives for pairs that are all positive" in told(app)
    key = f"data.make.{source}"
    made(app, key, encoder=str(tiny_encoder), count=2)
    assert not app.exception
    _widget(app, f"{key}.use").click().run()
    assert not app.exception
    [own] = [choice for name, choice in store.datasets().items() if name not in (*store.SAMPLES, source)]
    assert own.label == "Positives · with negatives"
    train = store.experiment_data(own.key).train
    assert train.has_negatives
    app = pages.alone("data", dataset=own.key)
    assert not app.exception
    assert any(head.value == ":green[document]" for head in app.caption)


def test_nli_rows_get_further_pairs(pages: type, runs: RunStore) -> None:
    app = pages.alone("data", dataset=store.SAMPLE_NLI)
    key = f"data.make.{store.SAMPLE_NLI}"
    made(app, key, augment=True)
    assert not app.exception
    rows = len(store.experiment_data(store.SAMPLE_NLI).train)
    _widget(app, f"{key}.use").click().run()
    [own] = [name for name in store.datasets() if name not in store.SAMPLES]
    assert len(store.experiment_data(own).train) > rows
    assert any(":blue[premise]" in head.value for head in app.caption)


def test_labelled_pairs_say_that_nothing_needs_to_be_made_and_offer_the_sample_sentences(
    pages: type, runs: RunStore
) -> None:
    app = pages.alone("data")
    assert "nothing needs to be made" in told(app)
    switch_of(app, "Try it on the sample sentences").set_value(True).run()
    assert not app.exception
    assert _has(app, "data.make.sample-sentences.make")


def test_several_files_are_one_mix(pages: type, runs: RunStore, tmp_path: Path) -> None:
    paths = [tmp_path / f"part{number}.csv" for number in range(2)]
    for number, path in enumerate(paths):
        rows = [f"ask {number} {n},say {number} {n}" for n in range(20)]
        path.write_text("query,document\n" + "\n".join(rows) + "\n", encoding="utf-8")
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input("\n".join(map(str, paths))).run()
    app.button(key="data.new.use").click().run()
    assert not app.exception
    [own] = [choice for name, choice in store.datasets().items() if name not in store.SAMPLES]
    assert own.data.mix == (str(paths[1]),)
    assert rows_in(own.key) == 40
    app = pages.alone("data", dataset=own.key)
    table = next(frame.value for frame in app.dataframe if "rows read" in frame.value.columns)
    assert table["file"].tolist() == ["part0.csv", "part1.csv"]


def test_a_saved_data_set_is_read_from_its_folder(pages: type, runs: RunStore, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"question": [f"ask {n}" for n in range(20)], "answer": [f"say {n}" for n in range(20)]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"))
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input(str(tmp_path / "saved")).run()
    app.button(key="data.new.use").click().run()
    assert not app.exception
    [own] = [name for name in store.datasets() if name not in store.SAMPLES]
    assert rows_in(own) == 20


@pytest.mark.parametrize("given", ["hf://nobody", "hf://nobody/nothing-of-this-name"])
def test_a_hub_id_that_cannot_be_had_says_why(
    pages: type, runs: RunStore, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    app = pages.alone("data")
    app.text_area(key="data.paths.0").input(given).run()
    assert not app.exception
    assert "This cannot be used as it is" in told(app)


def test_a_file_too_large_for_a_page_is_refused_before_it_is_read(
    pages: type, runs: RunStore, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = pages.alone("data")
    monkeypatch.setattr(uploads, "LARGEST", 0)
    app.text_area(key="data.paths.0").input(str(own)).run()
    assert not app.exception
    assert any("bsc train" in element.value for element in app.text)


def test_the_export_holds_the_rows_after_remedies(pages: type, untidy: str) -> None:
    uploads.keep_remedies(untidy, ("drop_repeats",))
    app = pages.alone("data", dataset=untidy)
    assert not app.exception
    save = next(button for button in app.get("download_button") if button.key == "data.export.save")
    assert save.label == f"Save {rows_in(untidy)} rows as TSV"
