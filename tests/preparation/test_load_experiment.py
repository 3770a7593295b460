"""Generated data: examples, negatives and NLI pairs are built, counted, or refused in one sentence."""

import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bsc_core.cli import main
from bsc_core.config import DataConfig, EncoderConfig, ExamplesConfig, NegativesConfig, make_config, to_toml
from bsc_core.data import read_table
from bsc_core.data.io.read_pairs import to_sentences
from bsc_core.data.load import load_data
from bsc_core.data.text_normalization import normalize_text
from bsc_core.encoders import cached_vectors, embed
from bsc_core.errors import ConfigError, DataError
from bsc_core.preparation import experiment as prepare
from bsc_core.preparation import generate
from bsc_core.preparation.experiment import load_experiment

NOUNS = ("soup", "bread", "garden", "rose", "train", "bank", "cat", "dog", "bike", "guitar", "rain", "phone")
MOODS = {"pos": ("good", "warm", "fast", "new", "clean"), "neg": ("bad", "cold", "slow", "old", "wet")}


def write_sentences(path, moods=("pos", "neg")):
    lines = ["text,label,split"]
    for number, noun in enumerate(NOUNS):
        for mood in moods:
            for adjective in MOODS.get(mood, MOODS["pos"]):
                split = ("train", "train", "dev", "test")[number % 4]
                lines.append(f"the {noun} is {adjective},{mood},{split}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def sentences_file(tmp_path):
    return write_sentences(tmp_path / "sentences.csv")


def test_each_split_gets_examples_from_its_own_sentences(sentences_file, tiny_encoder):
    config = DataConfig(train=sentences_file, examples=ExamplesConfig(encoder=str(tiny_encoder), neighbors=3))
    before, data = load_data(config, seed=0), load_experiment(config, seed=0)
    for name, split in data.splits.items():
        given = {(text, before.splits[name].class_names[cls]) for text, cls in _texts_and_classes(before.splits[name])}
        mood = dict(given)
        generated = list(zip(*(split.texts.take(column) for column in split.text_columns), strict=True))
        assert generated
        assert all(mood[anchor] == mood[positive] != mood[negative] for anchor, positive, negative in generated)
    assert data.funnel[0].name == "sentences"
    assert data.funnel[0].count == len(before.train)
    assert data.funnel[-1].count == len(data.train)
    assert len(data.texts) == len(set(data.texts.texts))


def _texts_and_classes(rows):
    return zip(rows.texts.take(rows.query), rows.classes.tolist(), strict=True)


def test_texts_without_an_example_are_dropped_and_the_others_are_not_encoded_again(sentences_file, tiny_encoder):
    examples = ExamplesConfig(encoder=str(tiny_encoder), kind="pairs", target=2, cap=1)
    data = load_experiment(DataConfig(train=sentences_file, examples=examples), seed=0)
    used = np.unique(np.concatenate([column for split in data.splits.values() for column in split.text_columns]))
    assert used.tolist() == list(range(len(data.texts)))
    known = cached_vectors(EncoderConfig(name=str(tiny_encoder)), data.texts)
    before = load_data(DataConfig(train=sentences_file, examples=examples), seed=0)
    vectors = dict(zip(before.texts, embed(str(tiny_encoder), before.texts), strict=True))
    assert (known == np.stack([vectors[text] for text in data.texts])).all()


def test_the_seed_of_the_config_decides_the_sampled_examples(sentences_file, tiny_encoder):
    def generated(seed):
        examples = ExamplesConfig(encoder=str(tiny_encoder), target=20, cap=4, seed=seed)
        return load_experiment(DataConfig(train=sentences_file, examples=examples), seed=0).train

    assert [generated(1).texts.take(generated(1).query)] == [generated(1).texts.take(generated(1).query)]
    assert generated(1).digest == generated(1).digest != generated(2).digest


@pytest.mark.parametrize(
    ("extra", "error", "message"),
    [
        ({"negatives": {}}, ConfigError, "data.examples and data.negatives are both given"),
        ({"columns": {"query": "text", "document": "label"}}, ConfigError, "data.columns names the texts of pairs"),
        ({"filters": ["drop_self_pairs"]}, ConfigError, "drop_self_pairs, and sentences have no pairs yet"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(sentences_file, extra, error, message):
    with pytest.raises(error, match=message):
        load_experiment(DataConfig.model_validate({"train": sentences_file, "examples": {}, **extra}), seed=0)


def test_a_single_class_is_refused(tmp_path, tiny_encoder):
    path = write_sentences(tmp_path / "one.csv", ("pos",))
    with pytest.raises(DataError, match=r"one.csv, train: all sentences are of class 'pos', and triplets need two"):
        load_experiment(DataConfig(train=path, examples=ExamplesConfig(encoder=str(tiny_encoder))), seed=0)


def test_more_neighbors_than_sentences_use_all_sentences_and_report_it(sentences_file, tiny_encoder):
    config = DataConfig(train=sentences_file, examples=ExamplesConfig(encoder=str(tiny_encoder), neighbors=500))
    data = load_experiment(config, seed=0)
    assert data.funnel[1].count == 60 * 59
    assert data.funnel[1].note == "60 sentences have fewer neighbors than data.examples.neighbors"


def pairs_file(path, number=30):
    lines = ["query,document"]
    for row in range(number):
        lines.append(f"is the {NOUNS[row % 12]} {MOODS['pos'][row % 5]} {row},the {NOUNS[row % 12]} {row}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def vector_of(text):
    return np.random.default_rng(list(text.encode())).normal(size=6)


@pytest.fixture
def spread_vectors(monkeypatch):
    """A stand-in for the encoder: each text has a vector far from those of the others."""

    def embedded(encoder, texts, *, progress=None):
        return np.array([vector_of(text) for text in texts], dtype=np.float32)

    monkeypatch.setattr(prepare, "embed", embedded)
    return lambda texts: embedded("", texts)


def slow_ranks(data, vectors, config):
    """For each query the documents at the ranks, excluded ones left out, from all cosines."""
    train = data.train
    documents = sorted(set((train.document if data.corpus is None else data.corpus.document).tolist()))
    unit = vectors.astype(np.float64) / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = {}
    for query in sorted(set(train.query.tolist())):
        excluded = {normalize_text(train.texts[one]) for one in train.document[train.query == query].tolist()}
        excluded.add(normalize_text(train.texts[query]))
        others = [one for one in documents if normalize_text(train.texts[one]) not in excluded]
        others.sort(key=lambda one: -unit[query] @ unit[one])
        ranks = [min(config.first_rank + 2**k, len(others)) for k in range(config.count)]
        expected[query] = {others[rank - 1] for rank in ranks}
    return expected


@pytest.mark.parametrize("corpus", [False, True])
@pytest.mark.parametrize("settings", [{"first_rank": 3, "count": 4}, {"first_rank": 100, "count": 3}])
def test_negatives_have_the_ranks_of_the_paper(tmp_path, monkeypatch, spread_vectors, corpus, settings):
    monkeypatch.setattr(generate, "BLOCK", 100)
    config = NegativesConfig(oversample=False, **settings)
    given = {"train": pairs_file(tmp_path / "pairs.csv"), "negatives": config}
    if corpus:
        texts = [f"the {noun} is {adjective}" for noun in NOUNS for adjective in MOODS["neg"]]
        (tmp_path / "corpus.csv").write_text("\n".join(["document", *texts, "the soup 0!"]) + "\n", encoding="utf-8")
        given["corpus"] = str(tmp_path / "corpus.csv")
    data = load_experiment(DataConfig(**given), seed=0)
    before = load_data(DataConfig(**given), seed=0)
    expected = slow_ranks(before, spread_vectors(before.texts), config)
    result = {query: set() for query in expected}
    negative = ~data.train.positive
    for query, document in zip(data.train.query[negative], data.train.document[negative], strict=True):
        result[int(query)].add(int(document))
    assert result == expected
    funnel_note = data.funnel[3].note
    assert ("get the least similar document" in funnel_note) == (settings["first_rank"] == 100)
    assert len(data.dev) == len(before.dev)
    assert data.dev.label is None


@pytest.mark.parametrize("depth", [1, 64])
@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_the_hardest_negatives_are_the_nearest_below_the_positive(tmp_path, monkeypatch, spread_vectors, depth, margin):
    monkeypatch.setattr(generate, "FIRST_DEPTH", depth)
    config = NegativesConfig(method="hardest", margin=margin, count=3, as_triplets=True)
    given = DataConfig(train=pairs_file(tmp_path / "pairs.csv"), negatives=config)
    data, before = load_experiment(given, seed=0), load_data(given, seed=0)
    vectors = spread_vectors(before.texts)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = sorted(set(before.train.document.tolist()))
    expected = Counter()
    for query, positive in zip(before.train.query.tolist(), before.train.document.tolist(), strict=True):
        limit = unit[query] @ unit[positive] - margin
        below = [one for one in documents if one != positive and unit[query] @ unit[one] <= limit]
        below.sort(key=lambda one: -unit[query] @ unit[one])
        expected.update((query, positive, one) for one in below[:3])
    train = data.train
    result = Counter(zip(train.query.tolist(), train.document.tolist(), train.negative.tolist(), strict=True))
    assert result == expected
    assert train.label is None


def test_a_margin_without_a_document_is_refused(tmp_path, tiny_encoder):
    config = NegativesConfig(encoder=str(tiny_encoder), method="hardest", margin=2)
    given = DataConfig(train=pairs_file(tmp_path / "pairs.csv"), negatives=config)
    with pytest.raises(DataError, match=r"no query has a negative among .* documents; give a corpus, or lower"):
        load_experiment(given, seed=0)


def experiment(tiny_encoder, data, **sections):
    values = {
        "data": data,
        "encoder": {"name": str(tiny_encoder), "max_seq_length": 32},
        "batching": {"strategy": "random"},
        "training": {"max_steps": 2, "batch_size": 8, "threads": 1, "precision": "fp32"},
    }
    return make_config(values | sections)


@pytest.mark.parametrize(("kind", "loss"), [("triplets", "triplet"), ("pairs", "contrastive"), ("same_class", "mnrl")])
def test_the_command_line_plans_and_trains_on_examples(tmp_path, capsys, sentences_file, tiny_encoder, kind, loss):
    data = {"train": sentences_file, "examples": {"encoder": str(tiny_encoder), "kind": kind, "neighbors": 4, "cap": 3}}
    path = tmp_path / "config.toml"
    path.write_text(to_toml(experiment(tiny_encoder, data, loss={"name": loss})), encoding="utf-8")
    assert main(["plan", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert next(iter(report["funnel"])) == "sentences"
    assert report["funnel"]["sampled"] == report["rows"] > 0
    assert main(["train", str(path), "--runs", str(tmp_path / "runs"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["state"] == "done"
    assert result["funnel"] == report["funnel"]


def test_a_refused_generator_is_one_sentence_on_the_command_line(tmp_path, capsys, sentences_file, tiny_encoder):
    data = {"train": sentences_file, "examples": {"encoder": str(tiny_encoder), "target": 10**9}}
    path = tmp_path / "config.toml"
    path.write_text(to_toml(experiment(tiny_encoder, data)), encoding="utf-8")
    assert main(["plan", str(path), "--json"]) == 2
    assert "data.examples.target is 1,000,000,000" in capsys.readouterr().err


def test_real_questions_of_six_classes_give_triplets(shared_data, tiny_encoder):
    path = str(shared_data / "senteval_trec" / "sentences.tsv.gz")
    examples = ExamplesConfig(encoder=str(tiny_encoder), neighbors=4, min_percentile=20, cap=5, target=5000)
    data = load_experiment(DataConfig(train=path, examples=examples), seed=0)
    assert len(data.train) == 5000
    every = to_sentences(read_table(path), examples)
    classes = {}
    for row in range(len(every)):
        classes.setdefault(every.texts[every.query[row]], set()).add(every.class_name(row))
    generated = zip(*(data.train.texts.take(column) for column in data.train.text_columns), strict=True)
    assert all(classes[a] & classes[p] and (len(classes[n]) > 1 or classes[a] != classes[n]) for a, p, n in generated)
    assert data.funnel[0].note.endswith("6 classes")


def test_the_configs_of_the_data_page_are_accepted():
    page = Path(__file__).resolve().parents[2] / "docs" / "data.md"
    blocks = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    sections = [tomllib.loads(block).get("data", {}) for block in blocks]
    given = {name for section in sections for name in section}
    assert {"examples", "negatives", "nli"} <= given
    for section in sections:
        assert make_config({"data": {"train": "pairs.tsv", **section}}).data.train
