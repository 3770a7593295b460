"""Mining of hard negatives against sentence-transformers, and its report and files."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_transformers.util import mine_hard_negatives

from bsc_core.background_task import read_progress
from bsc_core.cli import main
from bsc_core.config import Columns, DataConfig, EncoderConfig, NegativesConfig
from bsc_core.data import read_pairs
from bsc_core.data.dataset import Corpus, DatasetSplits, PairDataset, TextTable, merge_text_tables
from bsc_core.data.decisions import Decision, write_decisions
from bsc_core.data.generation.negatives import find_candidates, row_negatives, with_negatives
from bsc_core.data.read_report import ReadReport
from bsc_core.errors import DataError, ModelError
from bsc_core.neighbors import unit_rows
from bsc_core.preparation import generate, mining_task
from bsc_core.preparation.experiment import load_experiment
from bsc_core.preparation.generate import add_negatives, mine, mine_pairs, search_depth
from bsc_core.preparation.mining import MiningSearch, mine_file
from bsc_core.preparation.repeated_mining import RepeatedMining
from bsc_core.preparation.second_opinion import second_scorer

SETTINGS: list[dict[str, Any]] = [
    {"count": 3},
    {"count": 2, "absolute_margin": 0.1},
    {"count": 2, "relative_margin": 0.05},
    {"count": 3, "max_score": 0.6, "min_score": 0.0},
    {"count": 2, "range_min": 2, "range_max": 20, "absolute_margin": 0.0, "relative_margin": 0.1},
]


class Vectors:
    """Encoder of sentence-transformers with given vectors."""

    device = torch.device("cpu")

    def __init__(self, vectors: dict[str, np.ndarray]) -> None:
        self.vectors = vectors

    def encode_query(self, texts: list[str], **options: Any) -> np.ndarray:
        return np.stack([self.vectors[text] for text in texts])

    encode_document = encode_query

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        return torch.as_tensor(left) @ torch.as_tensor(right).T

    def similarity_pairwise(self, left: Any, right: Any) -> torch.Tensor:
        return (torch.as_tensor(left) * torch.as_tensor(right)).sum(dim=1)


def world(seed: int, queries: int = 12, documents: int = 80) -> tuple[PairDataset, Corpus, np.ndarray]:
    """Return pairs with one or two positives per query, close to it, a corpus, and unit vectors of all texts."""
    random = np.random.default_rng(seed)
    pairs = [(f"query {number}", f"document {number}") for number in range(queries)]
    pairs += [(f"query {number}", f"document {queries + number}") for number in range(0, queries, 3)]
    rows = PairDataset.from_pairs(*map(list, zip(*pairs, strict=True)))
    table, ids = TextTable.from_texts([f"document {number}" for number in range(documents)])
    corpus = Corpus(table, ids, None, ReadReport("corpus", len(ids), len(ids), (), rows.report.columns, False))
    texts, (of_rows, of_corpus) = merge_text_tables([rows.texts, table])
    rows, corpus = rows.reindex_texts(texts, of_rows), corpus.reindex_texts(texts, of_corpus)
    vectors = random.normal(size=(len(texts), 8)).astype(np.float32)
    vectors[rows.document] = vectors[rows.query] + 0.7 * vectors[rows.document]
    return rows, corpus, unit_rows(vectors)


def mined_triplets(
    rows: PairDataset, corpus: Corpus, unit: np.ndarray, config: NegativesConfig
) -> set[tuple[str, ...]]:
    triplets, _ = add_negatives(rows, corpus, unit, config)
    texts = rows.texts.texts
    columns = (triplets.query, triplets.document, triplets.negative)
    return {tuple(texts[text] for text in row) for row in zip(*columns, strict=True)}


@pytest.mark.parametrize("settings_", SETTINGS, ids=lambda values: " ".join(values))
@pytest.mark.parametrize("seed", range(3))
def test_the_window_selects_what_sentence_transformers_selects(settings_: dict[str, Any], seed: int) -> None:
    rows, corpus, unit = world(seed)
    texts = rows.texts.texts
    config = NegativesConfig(method="window", as_triplets=True, **settings_)
    names = {"count": "num_negatives"}
    peer = mine_hard_negatives(
        datasets.Dataset.from_dict({"query": rows.texts.take(rows.query), "document": rows.texts.take(rows.document)}),
        Vectors(dict(zip(texts, unit, strict=True))),
        corpus=rows.texts.take(corpus.document),
        output_format="triplet",
        verbose=False,
        **{names.get(name, name): value for name, value in settings_.items()},
    )
    expected = {(row["query"], row["document"], row["negative"]) for row in peer}
    assert expected
    assert mined_triplets(rows, corpus, unit, config) == expected


@given(
    st.integers(0, 1000),
    st.builds(
        NegativesConfig,
        method=st.just("window"),
        count=st.integers(1, 4),
        range_min=st.integers(0, 5),
        absolute_margin=st.none() | st.floats(0, 0.5),
        relative_margin=st.none() | st.floats(0, 0.5),
        max_score=st.none() | st.floats(0.2, 1),
        sampling=st.sampled_from(["top", "random"]),
    ),
)
@settings(max_examples=60, derandomize=True)
def test_every_negative_respects_all_limits(seed: int, config: NegativesConfig) -> None:
    rows, corpus, unit = world(seed, queries=6, documents=30)
    candidates = find_candidates(rows, corpus)
    mined = mine(rows, candidates, unit, config)
    assert (mine(rows, candidates, unit, config).negatives == mined.negatives).all()
    for query, negatives in enumerate(mined.negatives):
        found = negatives[negatives >= 0]
        assert len(set(found.tolist())) == len(found)
        cosines = mined.cosines[query, : len(found)]
        assert (np.diff(cosines) <= 0).all()
        assert not candidates.is_excluded(np.full(len(found), query), found).any()
        limits = [1.0 if config.max_score is None else config.max_score]
        positive = mined.positive[query]
        limits += [] if config.absolute_margin is None else [positive - config.absolute_margin]
        limits += [] if config.relative_margin is None else [positive - abs(positive) * config.relative_margin]
        assert (cosines <= min(limits) + 1e-6).all()
        if not len(found):
            assert mined.reason(query) in mined.dropped


@pytest.fixture
def data_files(tmp_path: Path) -> DataConfig:
    lines = [
        f"how do I {verb} a {thing}\tto {verb} a {thing}, use a tool" for verb in ("cut", "paint") for thing in THINGS
    ]
    (tmp_path / "train.tsv").write_text("query\tdocument\n" + "\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("query\tdocument\nhow do I fix it\tfix it\n", encoding="utf-8")
    negatives = NegativesConfig(method="window", encoder="static", count=2)
    return DataConfig(train=str(tmp_path / "train.tsv"), dev=str(tmp_path / "dev.tsv"), negatives=negatives)


THINGS = ("table", "chair", "door", "window", "roof")


@pytest.mark.parametrize("as_triplets", [True, False])
def test_mining_again_replaces_the_negatives_and_keeps_the_rows(as_triplets: bool) -> None:
    rows, corpus, unit = world(0)
    config = NegativesConfig(method="window", count=2, max_score=0.5, as_triplets=as_triplets, refresh_epochs=1)
    train, _ = add_negatives(rows, corpus, unit, config)
    again = RepeatedMining(train, corpus, config)
    assert np.array_equal(again.negatives(unit), row_negatives(train)), "equal vectors mine the same negatives"
    other = unit_rows(unit + 0.3 * np.random.default_rng(1).normal(size=unit.shape))
    expected, _ = add_negatives(rows, corpus, other, config)
    mined = with_negatives(train, again.negatives(other))
    assert len(mined) == len(train)
    assert np.array_equal(mined.positive, train.positive)
    if len(expected) == len(train):  # as many negatives of each pair
        assert np.array_equal(row_negatives(mined), row_negatives(expected))
    left_out = ~np.isin(np.arange(len(rows.texts)), again.texts)
    changed = np.where(left_out[:, None], np.float32(9), other)
    assert np.array_equal(again.negatives(changed), again.negatives(other))


def test_a_task_saves_the_search(data_files: DataConfig, tmp_path: Path, tiny_encoder: Path) -> None:
    settings_ = data_files.negatives.model_copy(update={"encoder": str(tiny_encoder)})
    config = data_files.model_copy(update={"negatives": settings_})
    request = {"data": config.model_dump(mode="json"), "encoder": EncoderConfig(name=str(tiny_encoder)).model_dump()}
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    assert mining_task.main([str(folder)]) == 0
    data = load_experiment(config.model_copy(update={"negatives": None}), seed=0)
    search = MiningSearch.load(mining_task.search_file(folder), data)
    assert search.covers(settings_)
    assert search.preview(settings_).report | {"output": None} == mine_file(config)
    assert read_progress(folder).doing == "done"


@pytest.mark.parametrize("layout", ["triplet", "n-tuple", "labeled-pair"])
@pytest.mark.parametrize("ending", [".tsv", ".parquet"])
def test_a_mined_file_can_be_read_again(data_files: DataConfig, tmp_path: Path, layout: str, ending: str) -> None:
    output = tmp_path / f"mined{ending}"
    report = mine_file(data_files, output, layout=layout)
    assert report["negatives"] == 20
    assert report["per_query"] == {"2": 10}
    gaps = [one["cosine"] - one["positive_cosine"] for one in report["likely_false_negatives"]]
    assert len(gaps) == 20
    assert all(first >= second - 2e-4 for first, second in pairwise(gaps))
    tuples = Columns(query="query", document="document", negative="negative_2")
    read = read_pairs(output, tuples if layout == "n-tuple" else None)
    assert len(read) == {"triplet": 20, "n-tuple": 10, "labeled-pair": 30}[layout]
    with pytest.raises(DataError, match="exists; give a new file"):
        mine_file(data_files, output)


@pytest.mark.parametrize("layout", ["triplet", "labeled-pair"])
def test_a_pair_that_was_decided_true_negative_is_not_mined_as_positive(
    data_files: DataConfig, tmp_path: Path, layout: str
) -> None:
    decided = [
        ("how do I cut a table", "to cut a table, use a tool"),
        ("how do I cut a chair", "to cut a chair, use a tool"),
    ]
    write_decisions(tmp_path / "decisions.tsv", [Decision(*pair, "true_negative") for pair in decided])
    config = data_files.model_copy(update={"false_negatives": str(tmp_path / "decisions.tsv")})
    assert mine_file(config, tmp_path / "mined.tsv", layout=layout)["queries"] == 8
    mined = read_pairs(tmp_path / "mined.tsv")
    positive = mined.take(np.flatnonzero(mined.positive))
    texts = zip(mined.texts.take(positive.query), mined.texts.take(positive.document), strict=True)
    assert not set(texts).intersection(decided)


def test_labeled_pairs_keep_the_grades_of_the_positives(data_files: DataConfig, tmp_path: Path) -> None:
    header, *rows = Path(data_files.train).read_text().splitlines()
    graded = [f"{row}\t{(0.6, 1.0)[number % 2]}" for number, row in enumerate(rows)]
    (tmp_path / "graded.tsv").write_text("\n".join([f"{header}\tlabel", *graded]) + "\n")
    config = data_files.model_copy(update={"train": str(tmp_path / "graded.tsv")})
    mine_file(config, tmp_path / "mined.tsv", layout="labeled-pair")
    mined = read_pairs(tmp_path / "mined.tsv")
    assert mined.label[:10].tolist() == pytest.approx([0.6, 1.0] * 5)
    assert not mined.label[10:].any()


def test_limits_that_leave_nothing_are_reported_and_no_file_is_written(data_files: DataConfig, tmp_path: Path) -> None:
    negatives = data_files.negatives.model_copy(update={"max_score": -0.99})
    data = data_files.model_copy(update={"negatives": negatives})
    report = mine_file(data)
    assert report["negatives"] == 0
    assert report["per_query"] == {"0": 10}
    assert {one["reason"] for one in report["without"]} == {"max_score"}
    with pytest.raises(DataError, match="no query has a negative; widen the limits"):
        mine_file(data, tmp_path / "none.tsv")
    assert not (tmp_path / "none.tsv").exists()
    with pytest.raises(DataError, match=r"must end in \.tsv or \.parquet"):
        mine_file(data, tmp_path / "none.xlsx")


def test_the_command_prints_the_report(data_files: DataConfig, tmp_path: Path, capsys) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f'[data]\ntrain = "{data_files.train}"\ndev = "{data_files.dev}"\n\n'
        '[data.negatives]\nmethod = "window"\nencoder = "static"\n',
        encoding="utf-8",
    )
    output = tmp_path / "mined.tsv"
    arguments = ["mine", str(config), "--set", "data.negatives.count=3", "--output", str(output), "--json"]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["queries"], report["negatives"], report["output"]) == (10, 30, str(output))
    assert main(["mine", str(config), "--set", "data.negatives.method=hardest", "--json"]) == 2
    assert "needs method" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"range_min": 5, "range_max": 6, "count": 3}, "too few for count = 3"),
        ({"min_score": 0.5, "max_score": 0.2}, "give a range"),
        ({"absolute_margin": 3}, "absolute_margin"),
    ],
)
def test_windows_that_select_nothing_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NegativesConfig(method="window", **values)


@pytest.mark.parametrize("settings_", [*SETTINGS, {"count": 4, "sampling": "random", "seed": 3}], ids=str)
def test_a_preview_selects_what_mining_selects(settings_: dict[str, Any]) -> None:
    rows, corpus, unit = world(1)
    config = NegativesConfig(method="window", **settings_)
    data = DatasetSplits(rows, rows, None, corpus)
    search = MiningSearch(data, unit, NegativesConfig(method="window"))
    assert search.covers(config)
    preview, expected = search.preview(config), mine(rows, find_candidates(rows, corpus), unit, config)
    np.testing.assert_array_equal(preview.mined.negatives, expected.negatives)
    np.testing.assert_array_equal(preview.mined.cosines, expected.cosines)
    assert len(preview.scores["positive"]) == len(rows)
    assert len(preview.scores["negative"]) == len(preview.gaps["negative"]) == preview.report["negatives"]
    assert set(preview.scores["negative"]) <= set(preview.scores["candidate"])
    suspicious = preview.report["likely_false_negatives"]
    gaps = [one["cosine"] - one["positive_cosine"] for one in suspicious]
    assert all(first >= second - 2e-4 for first, second in pairwise(gaps))
    of_pair = {}
    for row, cosine in enumerate(search.positives):
        key = (rows.texts[rows.query[row]], rows.texts[rows.document[row]])
        of_pair[key] = round(float(cosine), 4)
    assert all(of_pair[one["query"], one["positive"]] == one["positive_cosine"] for one in suspicious)


def test_a_search_says_when_settings_need_a_deeper_one() -> None:
    rows, corpus, unit = world(2, documents=400)
    search = MiningSearch(DatasetSplits(rows, rows, None, corpus), unit, NegativesConfig(method="window", count=2))
    assert search.covers(NegativesConfig(method="window", range_max=150))
    assert not search.covers(NegativesConfig(method="window", range_max=390))


def test_a_query_with_many_positives_does_not_change_the_ranks_of_others() -> None:
    generator = np.random.default_rng(5)
    pairs = [("hub", f"d{n}") for n in range(90)] + [(f"q{n}", f"e{n}") for n in range(40)]
    dataset = PairDataset.from_pairs(*map(list, zip(*pairs, strict=True)))
    unit = unit_rows(generator.normal(size=(len(dataset.texts), 8)).astype(np.float32))
    candidates = find_candidates(dataset, None)
    config = NegativesConfig(method="ranks", count=3, first_rank=1)
    found, _ = mine_pairs(dataset, candidates, unit, config)
    for row, (query, _) in enumerate(pairs):
        positives = {document for one, document in pairs if one == query}
        documents = sorted({document for _, document in pairs} - positives)
        texts = {text: number for number, text in enumerate(dataset.texts)}
        cosines = {document: float(unit[texts[query]] @ unit[texts[document]]) for document in documents}
        ranked = sorted(documents, key=lambda document: -cosines[document])
        assert [dataset.texts[text] for text in candidates.document[found[row]].tolist()] == [
            ranked[rank - 1] for rank in (2, 3, 5)
        ]


def test_a_query_with_many_positives_does_not_deepen_the_search_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("hub", f"d{n}") for n in range(900)] + [(f"q{n}", f"e{n}") for n in range(99)]
    candidates = find_candidates(PairDataset.from_pairs(*map(list, zip(*pairs, strict=True))), None)
    config = NegativesConfig(method="window", count=3)
    assert search_depth(candidates, config) == 999
    monkeypatch.setattr(generate, "MAX_RANKED", 100 * 503)  # of 100 queries
    assert search_depth(candidates, config) == 503
    monkeypatch.setattr(generate, "MAX_RANKED", 1)
    assert search_depth(candidates, config) == 3 + 2 * generate.USUALLY_EXCLUDED


def test_no_copy_of_a_positive_is_a_negative() -> None:
    rows = PairDataset.from_pairs(["a claim", "another"], ["It is “true”, he said.", "no"])
    table, ids = TextTable.from_texts(["it is 'true', he said", "It is true he said", "false", "maybe"])
    corpus = Corpus(table, ids, None, ReadReport("corpus", 4, 4, (), rows.report.columns, False))
    texts, (of_rows, of_corpus) = merge_text_tables([rows.texts, table])
    rows, corpus = rows.reindex_texts(texts, of_rows), corpus.reindex_texts(texts, of_corpus)
    unit = unit_rows(np.random.default_rng(0).normal(size=(len(texts), 4)).astype(np.float32))
    search = MiningSearch(DatasetSplits(rows, rows, None, corpus), unit, NegativesConfig(method="window", count=4))
    mined = search.preview(NegativesConfig(method="window", count=4)).mined
    of_claim = mined.negatives[np.flatnonzero(search.candidates.query == rows.query[0])[0]]
    names = {texts[search.candidates.document[one]] for one in of_claim if one >= 0}
    assert names == {"false", "maybe"}


def test_a_second_opinion_leaves_out_what_it_scores_like_a_positive() -> None:
    rows, corpus, unit = world(4)
    other = unit_rows(np.random.default_rng(9).normal(size=unit.shape).astype(np.float32))
    config = NegativesConfig(method="window", count=4, second_opinion="given", second_margin=0.1)

    def second(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        return (other[queries] * other[documents]).sum(axis=1)

    candidates = find_candidates(rows, corpus)
    mined = mine(rows, candidates, unit, config, second)
    lowest = np.full(len(candidates.query), np.inf)
    np.minimum.at(lowest, candidates.query_of_row, second(rows.query, rows.document))
    for query, text in enumerate(candidates.query):
        chosen = mined.negatives[query][mined.negatives[query] >= 0]
        scores = other[candidates.document[chosen]] @ other[text]
        assert (scores <= lowest[query] - 0.1).all()
    assert mined.dropped["second_opinion"].sum() > 0


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder with random weights."""
    from sentence_transformers import CrossEncoder
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder = tmp_path_factory.mktemp("cross-encoder")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] query document".split() + [str(number) for number in range(100)]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForSequenceClassification(BertConfig(vocab_size=len(words), num_labels=1, **size)).save_pretrained(folder)
    CrossEncoder(str(folder), local_files_only=True).save_pretrained(str(folder / "saved"))
    return folder / "saved"


def test_a_cross_encoder_scores_pairs_as_its_own_predict_does(cross_encoder: Path) -> None:
    from sentence_transformers import CrossEncoder

    rows, _, _ = world(0)
    scores = second_scorer(str(cross_encoder), rows.texts)(rows.query, rows.document)
    pairs = list(zip(rows.texts.take(rows.query), rows.texts.take(rows.document), strict=True))
    expected = CrossEncoder(str(cross_encoder), local_files_only=True).predict(pairs)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["encoder", "cross-encoder"])
def test_a_second_opinion_that_is_not_finite_is_refused(
    tmp_path: Path, tiny_encoder: Path, cross_encoder: Path, kind: str
) -> None:
    shutil.copytree(tiny_encoder if kind == "encoder" else cross_encoder, tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    save_file({name: values * 3e38 for name, values in load_file(weights).items()}, weights, {"format": "pt"})
    rows, _, _ = world(0)
    with pytest.raises(ModelError, match="score that is not finite"):
        second_scorer(str(tmp_path / "model"), rows.texts)(rows.query, rows.document)


@pytest.mark.parametrize("method", ["window", "hardest"])
def test_a_positive_whose_vector_is_not_finite_is_refused(method: str) -> None:
    rows, corpus, unit = world(0)
    others = replace(corpus, document=np.setdiff1d(corpus.document, rows.document).astype(np.int32))
    config = NegativesConfig(method=method, absolute_margin=0.1)
    add_negatives(rows, others, unit, config)
    unit[rows.document[0]] = np.nan
    with pytest.raises(ModelError, match="vector that is not finite"):
        add_negatives(rows, others, unit, config)


def test_an_experiment_is_mined_with_a_second_opinion(tmp_path: Path, tiny_encoder: Path, cross_encoder: Path) -> None:
    path = tmp_path / "pairs.csv"
    lines = [f"query {number},document {number}" for number in range(30)]
    path.write_text("query,document\n" + "\n".join(lines) + "\n", encoding="utf-8")
    base = {"method": "window", "count": 2, "encoder": str(tiny_encoder), "as_triplets": True}
    for second in (str(cross_encoder), "static"):
        notes = {}
        for margin in (10.0, -10.0):
            settings_ = base | {"second_opinion": second, "second_margin": margin}
            config = DataConfig(train=str(path), negatives=NegativesConfig(**settings_))
            if margin > 0:
                with pytest.raises(DataError, match="no query has a negative"):
                    load_experiment(config)
                continue
            notes = {stage.name: stage.note for stage in load_experiment(config).funnel}
            assert "second_opinion" not in notes["negatives"]
