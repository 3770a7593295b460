"""Prompts of queries and documents: the same vectors as `encode_query` and `encode_document`."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from bsc_core.config import DataConfig, EncoderConfig
from bsc_core.data import load_data
from bsc_core.data.dataset import TextTable
from bsc_core.encoders import embed, encode, load_encoder, tokenize
from bsc_core.errors import ConfigError
from bsc_core.evaluate_model import evaluate_model
from bsc_core.pipeline import run_experiment
from bsc_core.preparation.experiment import load_experiment
from bsc_core.runs import RunStore
from tests.helpers.configs import with_changes

PROMPTS = {"query_prompt": "how do i: ", "document_prompt": "soup with "}


@pytest.fixture
def config(tiny_encoder):
    return EncoderConfig(name=str(tiny_encoder), max_seq_length=16, **PROMPTS)


@pytest.fixture
def both_sides(tmp_path):
    """Pairs in which the text `soup` is a query and a document."""
    path = tmp_path / "pairs.csv"
    path.write_text("query,document,split\nsoup,bread\xa0tea,train\nbike,soup,train\ncat,rain,dev\n", encoding="utf-8")
    return DataConfig(train=str(path))


def library_model(folder):
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = 16
    return model


def test_each_side_equals_the_encoding_of_the_library(config, texts):
    model = load_encoder(config)
    for side, library in (("query", model.encode_query), ("document", model.encode_document)):
        np.testing.assert_allclose(encode(model, tokenize(model, texts, 16, side=side)), library(texts), atol=1e-6)
    table = TextTable((*texts, *texts), queries=len(texts))
    expected = np.concatenate([model.encode_query(texts), model.encode_document(texts)])
    np.testing.assert_allclose(encode(model, tokenize(model, table, 16)), expected, atol=1e-6)
    np.testing.assert_allclose(embed(config, table), expected, atol=1e-6)
    assert np.abs(expected[1] - expected[len(texts) + 1]).max() > 1e-3


def test_a_static_encoder_takes_prompts_too(texts):
    model = load_encoder(EncoderConfig(name="static", **PROMPTS))
    queries = encode(model, tokenize(model, texts, 90, side="query"))
    np.testing.assert_allclose(queries, model.encode_query(texts), atol=1e-5)


def test_a_bare_word_names_a_prompt_of_the_model(tmp_path, tiny_encoder, texts):
    model = library_model(tiny_encoder)
    model.prompts |= {"query": "why can ", "passage": "the cat "}
    model.save_pretrained(str(tmp_path / "named"))
    names = {"query_prompt": "query", "document_prompt": "passage"}
    loaded = load_encoder(EncoderConfig(name=str(tmp_path / "named"), max_seq_length=16, **names))
    expected = model.encode(texts, prompt_name="passage")
    np.testing.assert_allclose(encode(loaded, tokenize(loaded, texts, 16, side="document")), expected, atol=1e-6)
    message = r"encoder.query_prompt is 'question', which is not a prompt of .*named \(its prompts are query, passage\)"
    with pytest.raises(ConfigError, match=message):
        load_encoder(EncoderConfig(name=str(tmp_path / "named"), max_seq_length=16, query_prompt="question"))
    with pytest.raises(ConfigError, match=r"it has no prompts\).*such as \"question: \""):
        load_encoder(EncoderConfig(name=str(tiny_encoder), max_seq_length=16, query_prompt="question"))


def test_a_side_without_a_prompt_keeps_the_default_prompt(tmp_path, tiny_encoder, texts):
    model = library_model(tiny_encoder)
    model.prompts["ask"], model.default_prompt_name = "why can ", "ask"
    model.save_pretrained(str(tmp_path / "default"))
    loaded = load_encoder(EncoderConfig(name=str(tmp_path / "default"), max_seq_length=16, query_prompt="how: "))
    documents = encode(loaded, tokenize(loaded, texts, 16, side="document"))
    np.testing.assert_allclose(documents, model.encode(texts), atol=1e-6)


def test_a_model_that_leaves_prompts_out_of_its_pooling_is_refused(tmp_path, tiny_encoder):
    model = library_model(tiny_encoder)
    model.set_pooling_include_prompt(False)
    model.save_pretrained(str(tmp_path / "instructor"))
    with pytest.raises(ConfigError, match=r"leaves prompts out of its pooling.*remove encoder"):
        load_encoder(EncoderConfig(name=str(tmp_path / "instructor"), max_seq_length=16, **PROMPTS))
    load_encoder(EncoderConfig(name=str(tmp_path / "instructor"), max_seq_length=16))
    model.prompts["ask"], model.default_prompt_name = "why can ", "ask"
    model.save_pretrained(str(tmp_path / "default"))
    with pytest.raises(ConfigError, match=r"leaves prompts out of its pooling.*choose another model"):
        load_encoder(EncoderConfig(name=str(tmp_path / "default"), max_seq_length=16))


def test_a_text_on_both_sides_has_two_ids(both_sides, tmp_path):
    plain = load_data(both_sides)
    data = load_data(both_sides.model_copy(update={"separate_sides": True}))
    assert data.texts.queries == 3
    assert data.texts.texts[:3] == ("soup", "bike", "cat")
    assert sorted(data.texts.texts[3:]) == ["bread\xa0tea", "rain", "soup"]
    assert data.texts.digest != plain.texts.digest
    for name, split in data.splits.items():
        assert data.texts.take(split.query) == plain.texts.take(plain.splits[name].query)
        assert data.texts.take(split.document) == plain.texts.take(plain.splits[name].document)
    joined = data.train.join_sides()
    assert joined.document[1] == joined.query[0]
    marked = tmp_path / "marked.tsv"
    marked.write_text("query\tdocument\nbike\tsoup\nsoup\tcat\n", encoding="utf-8")
    update = {"separate_sides": True, "false_negatives": str(marked)}
    marks = load_data(both_sides.model_copy(update=update)).train.marked_pairs
    assert [data.texts.take(pair) for pair in marks] == [["bike", "soup"]]  # cat is a query only


def test_generated_rows_have_separate_sides(both_sides):
    mined = {"encoder": "static", "count": 1, "method": "window"}
    config = DataConfig(**both_sides.model_dump(exclude={"negatives"}), negatives=mined)
    data = load_experiment(config.model_copy(update={"separate_sides": True}))
    assert data.texts.queries is not None
    assert (data.train.query < data.texts.queries).all()
    assert (data.train.document >= data.texts.queries).all()


def test_a_run_trains_evaluates_and_saves_with_its_prompts(small_config, tmp_path):
    config = with_changes(small_config, encoder=PROMPTS, training={"epochs": 1})
    assert config.data.separate_sides
    run = RunStore(tmp_path).create(config)
    result = run_experiment(config, run)
    data = load_data(config.data)
    model = SentenceTransformer(result["model"], device="cpu")
    assert {name: model.prompts[name] for name in ("query", "document")} == {
        "query": PROMPTS["query_prompt"],
        "document": PROMPTS["document_prompt"],
    }
    after, queries = np.array(run.array("embeddings_after")), data.texts.queries
    np.testing.assert_allclose(after[:queries], model.encode_query(list(data.texts.texts[:queries])), atol=1e-5)
    np.testing.assert_allclose(after[queries:], model.encode_document(list(data.texts.texts[queries:])), atol=1e-5)
    np.testing.assert_allclose(np.array(run.array("embeddings_before")), embed(config.encoder, data.texts), atol=1e-5)
    assert run.read_json("first_batch.json")["pairs"][0]["query"].startswith("how do i")


def test_an_evaluation_uses_the_prompts(config, both_sides):
    plain = config.model_copy(update={"query_prompt": None, "document_prompt": None})
    metrics = [evaluate_model(encoder, both_sides)["metrics"] for encoder in (config, plain)]
    assert metrics[0].keys() == metrics[1].keys()
    assert metrics[0] != metrics[1]
