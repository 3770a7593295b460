"""Data page: generating rows from sentences, positive pairs and NLI data."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import background_task
from bsc_core.config import DataConfig, ExamplesConfig, NegativesConfig
from bsc_core.data.sample_data import sample_config
from bsc_core.encoders import embed
from bsc_core.errors import ConfigError, InputError
from bsc_core.files import atomic_write
from bsc_core.preparation import mining_task
from bsc_core.preparation.mining import MiningSearch
from bsc_core.runs import RunStore
from pages.ui.components import config_form, data_cache
from pages.ui.data import audit, mining, uploads
from pages.ui.data import generate as generation
from tests.helpers.pages import added_dataset, click, import_paths, open_page, page_text, table_with, toggle_with_label


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """Sixty sentences of three classes, and one row without a class."""
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


def generate(app: AppTest, key: str, section: str, **settings: object) -> AppTest:
    """Set the fields of a generator and click its button."""
    for name, value in settings.items():
        app.session_state[f"{key}.data.{section}.{name}"] = value
    return click(app.run(), f"{key}.make")


def has_button(app: AppTest, key: str) -> bool:
    return any(button.key == key for button in app.button)


def test_a_file_of_sentences_becomes_a_dataset_of_triplets(runs: RunStore, sentences: Path, tiny_encoder: Path) -> None:
    app = import_paths(sentences)
    assert "Pairs or triplets from classified sentences" in page_text(app)
    key = f"data.new.{uploads.folder_for(str(sentences)).name}"
    generate(app, key, "examples", encoder=str(tiny_encoder), neighbors=4, cap=3)
    assert "limited per anchor: at most 3 of an anchor" in page_text(app)
    click(app, f"{key}.use")
    added = added_dataset()
    assert added.label == "sentences · triplets"
    assert added.data.examples is not None
    assert (added.data.examples.neighbors, added.data.examples.cap) == (4, 3)
    assert added.data.columns is None

    data = data_cache.dataset_splits(added.key)
    assert data.train.negative is not None
    app = open_page("data", dataset=added.key)
    text = page_text(app)
    assert f"**{len(data.train):,} training triplets**" in text
    assert "no number" not in text
    assert data.funnel[0].name == "sentences"
    heads = {caption.value for caption in app.caption}
    assert {":blue[anchor]", ":green[positive]", ":orange[negative]"} <= heads
    table = table_with(app, "reason")
    assert len(table) == 1


def test_every_generation_step_shows_examples(runs: RunStore, sentences: Path, tiny_encoder: Path) -> None:
    examples = ExamplesConfig(encoder=str(tiny_encoder), neighbors=4, kind="pairs")
    key = uploads.register(
        uploads.folder_for(sentences), "Generated", DataConfig(train=str(sentences), examples=examples)
    )
    app = open_page("data", dataset=key)
    steps = next(group for group in app.get("button_group") if group.key == "data.step")
    for stage in data_cache.dataset_splits(key).funnel:
        steps.set_value(stage.name)
        app.run()
        shown = [text.value for text in app.text]
        assert all(text in shown for row in stage.examples for text in row), stage.name
        steps = next(group for group in app.get("button_group") if group.key == "data.step")


def test_settings_that_leave_too_few_rows_are_an_error(runs: RunStore, sentences: Path, tiny_encoder: Path) -> None:
    app = import_paths(sentences)
    key = f"data.new.{uploads.folder_for(str(sentences)).name}"
    generate(app, key, "examples", encoder=str(tiny_encoder), target=10_000_000)
    assert "**Error**" in page_text(app)
    assert any("target" in element.value for element in app.text)


def test_more_neighbors_than_a_page_computes_are_refused(
    runs: RunStore, sentences: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = import_paths(sentences)
    key = f"data.new.{uploads.folder_for(str(sentences)).name}"
    monkeypatch.setattr(generation, "MAX_NEIGHBORS_INLINE", 4 * 61 - 1)
    generate(app, key, "examples", encoder=str(tiny_encoder), neighbors=4, neighbors_of="all")
    assert "neighbors of 61 sentences are more than the 243 that a page computes" in page_text(app)
    monkeypatch.setattr(generation, "MAX_NEIGHBORS_INLINE", 4 * 61)
    monkeypatch.setattr(generation, "MAX_CHARACTERS_INLINE", 1000)
    assert "too long for a page to exclude duplicates" in page_text(app.run())
    assert not has_button(app, f"{key}.use")


def test_changed_settings_need_the_rows_generated_again(runs: RunStore, sentences: Path, tiny_encoder: Path) -> None:
    app = import_paths(sentences)
    key = f"data.new.{uploads.folder_for(str(sentences)).name}"
    generate(app, key, "examples", encoder=str(tiny_encoder), neighbors=4)
    assert has_button(app, f"{key}.use")
    app.number_input(key=f"{key}.data.examples.neighbors").set_value(5).run()
    assert not has_button(app, f"{key}.use")
    assert "generate the rows again" in page_text(app)


@pytest.fixture
def positives(runs: RunStore, tmp_path: Path) -> str:
    """Key of a dataset of forty positive pairs."""
    words = "rose seed soil train ticket tent soup bread salt".split()
    rows = [f"how do I {words[n % 9]} {n},you {words[n % 9]} it {n} times" for n in range(40)]
    path = tmp_path / "positives.csv"
    path.write_text("query,document\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return uploads.register(uploads.folder_for(path), "Positives", DataConfig(train=str(path)))


def test_positive_pairs_get_hard_negatives(positives: str, tiny_encoder: Path) -> None:
    source = positives
    app = open_page("data", dataset=source)
    assert "Hard negatives for positive pairs" in page_text(app)
    key = f"data.make.{source}"
    assert app.number_input(key=f"{key}.data.negatives.first_rank").value == 5  # 100 is beyond the 40 documents
    assert "no_labeled_negatives" in {one.code for one in audit.audit_dataset(source, "bundled")}
    generate(app, key, "negatives", encoder=str(tiny_encoder), count=2)
    click(app, f"{key}.use")
    added = added_dataset(source)
    assert added.label == "Positives · with negatives"
    train = data_cache.dataset_splits(added.key).train
    assert train.has_negatives
    assert "no_labeled_negatives" not in {one.code for one in audit.audit_dataset(added.key, "bundled")}
    app = open_page("data", dataset=added.key)
    assert any(head.value == ":green[document]" for head in app.caption)


def test_nli_rows_get_additional_pairs(runs: RunStore) -> None:
    app = open_page("data", dataset=data_cache.SAMPLE_NLI)
    key = f"data.make.{data_cache.SAMPLE_NLI}"
    generate(app, key, "nli", augment=True)
    rows = len(data_cache.dataset_splits(data_cache.SAMPLE_NLI).train)
    click(app, f"{key}.use")
    added = added_dataset().key
    assert len(data_cache.dataset_splits(added).train) > rows
    assert any(":blue[premise]" in head.value for head in app.caption)


def test_labeled_pairs_have_no_generator_and_offer_the_sample_sentences(runs: RunStore) -> None:
    app = open_page("data", **{"data.tab": "Generate rows"})
    assert app.button(key="data.next").proto.type == "primary"
    assert "so no rows are generated" in page_text(app)
    toggle_with_label(app, "Try the sample sentences").set_value(True).run()
    assert app.button(key="data.next").proto.type == "secondary"
    assert has_button(app, "data.make.sample-sentences.make")


def test_mining_is_previewed_before_rows_are_made(
    positives: str, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"data.make.{positives}"
    app = open_page("data", dataset=positives)
    form = f"{key}.data.negatives"
    for name, value in {"method": "window", "encoder": str(tiny_encoder), "count": 3}.items():
        app.session_state[f"{form}.{name}"] = value
    app.session_state[f"{key}.preview"] = True
    app.run()
    assert not app.exception
    data = data_cache.dataset_splits(positives)
    search = MiningSearch(data, embed(str(tiny_encoder), data.texts), NegativesConfig(method="window", count=3))
    report = search.preview(NegativesConfig(method="window", count=3)).report
    text = page_text(app)
    assert f"**{report['negatives']:,} negatives** for {report['queries']:,} queries" in text
    suspicious = table_with(app, "of the positive")
    assert len(suspicious) == 50
    assert suspicious["negative"].tolist() == [one["negative"] for one in report["likely_false_negatives"]]

    low, high = app.slider(key=f"{key}.scores").value
    limit = round((low + high) / 2, 2)
    app.slider(key=f"{key}.scores").set_range(low, limit).run()
    assert app.session_state[f"{form}.max_score"] == limit
    assert app.session_state[f"{form}.min_score"] is None
    limited = search.preview(NegativesConfig(method="window", count=3, max_score=limit)).report
    assert limited["dropped"]["max_score"] > 0
    assert f"{limited['dropped']['max_score']:,} above the maximum score" in page_text(app)
    assert f"**{limited['negatives']:,} negatives**" in page_text(app)

    app.number_input(key=f"{form}.max_score").set_value(-0.99).run()
    assert "select no negative; widen them" in page_text(app)
    assert table_with(app, "reason")["reason"].tolist()[0] == "documents above the maximum score"
    shown = page_text(app)

    started = []

    def start(folder: Path, module: str, request: object, **options: object) -> None:
        atomic_write(folder / background_task.REQUEST, "{}")
        started.append((folder, module, request))

    monkeypatch.setattr(mining, "MAX_TEXTS_INLINE", 0)
    monkeypatch.setattr(background_task, "start", start)
    app.number_input(key=f"{form}.count").set_value(2).run()
    app.number_input(key=f"{form}.count").set_value(3).run()
    assert not app.exception
    assert "negatives** for" not in page_text(app)
    folder, module, request = started[-1]
    assert module == mining_task.__name__
    mining_task.search(folder, request)
    assert page_text(app.run()) == shown


def test_limits_that_contradict_each_other_are_one_sentence(positives: str) -> None:
    app = open_page("data", dataset=positives)
    for name, value in {"method": "window", "min_score": 0.8, "max_score": 0.2}.items():
        app.session_state[f"data.make.{positives}.data.negatives.{name}"] = value
    assert '"Min score" is 0.8 and "Max score" is 0.2; give a range' in page_text(app.run())


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("data.negatives.count is 0; it must be >= 1", '"Negatives" is 0; it must be >= 1'),
        ("range_max is 3, too few for count = 5", '"Range max" is 3, too few for "Negatives" = 5'),
        ("the count of rows is 3", "the count of rows is 3"),
        ("a." * 500_000, "a." * 500_000),
    ],
    ids=["key", "field", "plain", "long"],
)
def test_an_error_of_a_form_names_its_fields_by_their_titles(message: str, shown: str) -> None:
    with pytest.raises(ConfigError) as raised, config_form.titles_in_errors("data.negatives", ("count", "range_max")):
        raise ConfigError(message)
    assert str(raised.value) == shown


@pytest.mark.parametrize("section", ["encoder", "second_opinion", "examples"])
def test_rows_are_generated_again_after_a_model_folder_is_saved_again(
    positives: str, tmp_path: Path, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    data = data_cache.data_config(positives)
    config = (
        data.model_copy(update={"examples": ExamplesConfig(encoder=str(model))})
        if section == "examples"
        else data.model_copy(update={"negatives": NegativesConfig(method="window", **{section: str(model)})})
    )
    read: list[object] = []
    monkeypatch.setattr(data_cache, "_read", lambda config, seed: read.append(config) or len(read))
    for number in (1, 1, 2):
        if number == 2:
            (model / "model.safetensors").write_bytes(b"other weights")
        assert data_cache.load_splits(config) == number


def test_the_preview_searches_again_after_a_decision(
    positives: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = tmp_path / "decisions.tsv"
    atomic_write(decisions, "query\tdocument\tdecision\nwhat is river\tboat\tdrop\n")
    config = data_cache.data_config(positives).model_copy(update={"false_negatives": str(decisions)})
    monkeypatch.setattr(mining, "_new_search", lambda source, settings: SimpleNamespace(covers=lambda settings: True))
    settings = NegativesConfig(method="window")
    before = mining._search(config, settings)
    assert mining._search(config, settings) is before
    atomic_write(decisions, "query\tdocument\tdecision\nwhat is river\tboat\tpositive\n")
    assert mining._search(config, settings) is not before


@pytest.mark.parametrize("model", ["encoder", "second_opinion"])
def test_the_preview_of_mined_negatives_asks_before_it_downloads_a_model(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    def ask(name: str) -> None:
        if name == "somebody/model":
            raise InputError("asked")

    monkeypatch.setattr(mining.data_cache, "confirm_download", ask)
    settings = NegativesConfig.model_validate({"method": "window", "encoder": "static", model: "somebody/model"})
    with pytest.raises(InputError, match="asked"):
        mining._load_or_start((model,), sample_config(), settings)
