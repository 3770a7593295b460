"""Datasets on the Hub: which files their card chooses, and what a card cannot do."""

from __future__ import annotations

import gzip
import shutil
from contextlib import suppress
from types import SimpleNamespace

import huggingface_hub
import pyarrow
import pyarrow.parquet
import pytest
import yaml

from bsc_core.config import DataConfig
from bsc_core.data import load_data, read_pairs, read_table
from bsc_core.data.io.hub_dataset import MAX_NESTING, open_hub_dataset
from bsc_core.data.io.hub_repository import MAX_DOWNLOAD_GB
from bsc_core.data.io.read_pairs import ChunkedPairs
from bsc_core.data.io.tables import read_chunks
from bsc_core.errors import ColumnError, DataError, FileFormatError, InputError

NAME = "hf://owner/name"
PAIRS = "query\tdocument\n{0}1\tx\n{0}2\ty\n"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Folder of the only repository of a Hub, and the paths that were downloaded from it."""
    repository, cache, downloaded = tmp_path / "repository", tmp_path / "cache", []

    def repo_info(self, name, *, repo_type, files_metadata):
        assert (name, repo_type, files_metadata) == ("owner/name", "dataset", True)
        files = [path for path in sorted(repository.rglob("*")) if path.is_file()]
        siblings = [
            SimpleNamespace(rfilename=path.relative_to(repository).as_posix(), size=path.stat().st_size)
            for path in files
        ]
        return SimpleNamespace(sha="0123", siblings=siblings)

    def hf_hub_download(name, file, *, repo_type, revision, local_files_only):
        assert (name, repo_type, revision) == ("owner/name", "dataset", None if local_files_only else "0123")
        if not local_files_only:
            (cache / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(repository / file, cache / file)
            downloaded.append(file)
        return str(cache / file)

    def snapshot_download(name, *, repo_type, local_files_only):
        assert local_files_only
        if not cache.exists():
            raise FileNotFoundError("not in the cache")
        return str(cache)

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", repo_info)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    repository.mkdir()
    return SimpleNamespace(folder=repository, downloaded=downloaded)


def write(hub, files, card=None):
    if card is not None:
        files = {**files, "README.md": f"---\n{card}\n---\n# Pairs\n"}
    for name, text in files.items():
        path = hub.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def queries(name=NAME):
    return read_table(name).columns["query"]


def test_one_file_is_read_as_such(hub):
    write(hub, {"pairs.tsv": PAIRS.format("q")})
    table = read_table(NAME)
    assert table.columns == {"query": ["q1", "q2"], "document": ["x", "y"]}
    assert table.line == [2, 3]
    assert read_pairs(NAME).texts.take(read_pairs(NAME).query) == ["q1", "q2"]


def test_splits_are_recognized_by_the_names_of_files_or_folders(hub):
    write(
        hub,
        {
            "data/train-00000-of-00002.tsv": PAIRS.format("a"),
            "data/train-00001-of-00002.tsv": PAIRS.format("b"),
            "data/dev-00000-of-00001.tsv": PAIRS.format("c"),
            "latest/test/part.tsv": PAIRS.format("d"),
            "notes.txt": "contains no pairs",
        },
    )
    table = read_table(NAME)
    assert table.columns["split"] == ["train"] * 4 + ["validation"] * 2 + ["test"] * 2
    assert table.columns["query"] == ["a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2"]
    assert table.line == [2, 3, 5, 6, 8, 9, 11, 12]
    assert queries(f"{NAME}?split=validation") == ["c1", "c2"]
    data = load_data(DataConfig(train=NAME, dev_split="validation"), seed=0)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 4, "dev": 2, "test": 2}


CONFIGS = """configs:
- config_name: pairs
  data_files:
  - split: train
    path: pairs/train-*
  - split: dev
    path: [pairs/held-out.tsv]
- config_name: other
  default: true
  data_dir: more
  data_files: "**/*.tsv"
"""


def test_the_card_chooses_the_files_of_a_config(hub):
    files = {"pairs/train-1.tsv": "a", "pairs/held-out.tsv": "b", "more/deep/er.tsv": "c", "more/x.csv": "d"}
    write(hub, {name: PAIRS.format(letter) for name, letter in files.items()}, CONFIGS)
    assert queries() == ["c1", "c2"]
    assert read_table(f"{NAME}/pairs").columns["split"] == ["train"] * 2 + ["dev"] * 2
    with pytest.raises(DataError, match="has no config third; its configs are pairs, other"):
        read_table(f"{NAME}/third")
    with pytest.raises(DataError, match="has no split test; its splits are train, dev"):
        read_table(f"{NAME}/pairs?split=test")


def test_several_configs_without_a_default_are_refused(hub):
    write(hub, {"a/x.tsv": PAIRS, "b/x.tsv": PAIRS}, "configs:\n- {config_name: a}\n- {config_name: b}")
    with pytest.raises(DataError, match=r"has several configs; choose one.*a, b"):
        read_table(NAME)


def test_without_configs_in_the_card_a_config_is_a_folder(hub):
    write(hub, {"a/x.tsv": PAIRS.format("a"), "b/x.tsv": PAIRS.format("b")})
    assert queries(f"{NAME}/b") == ["b1", "b2"]


def test_files_that_describe_the_dataset_and_those_of_a_rarer_format_are_no_data(hub):
    others = {"dataset_infos.json": "{}", ".cache/x.tsv": PAIRS, "__pycache__/y.tsv": PAIRS, "labels.csv": "label\n1\n"}
    write(hub, {"a.tsv": PAIRS.format("a"), "b.tsv": PAIRS.format("b"), **others})
    assert queries() == ["a1", "a2", "b1", "b2"]


def test_only_the_files_of_the_split_are_downloaded(hub):
    write(hub, {"train.tsv": PAIRS, "test.tsv": PAIRS, "model.bin": "x", "load.py": "raise SystemExit"})
    read_table(f"{NAME}?split=test")
    assert hub.downloaded == ["test.tsv"]


@pytest.mark.parametrize(
    ("part", "expected"), [("[1:3]", ["a2", "b1"]), ("[:1]", ["a1"]), ("[3:]", ["b2"]), ("[2:4]", ["b1", "b2"])]
)
def test_a_part_of_a_split_is_read(hub, part, expected):
    write(hub, {"train-1.tsv": PAIRS.format("a"), "train-2.tsv": PAIRS.format("b")})
    assert queries(f"{NAME}?split=train{part}") == expected
    chunks = list(read_chunks(f"{NAME}?split=train{part}", ["query"], rows=1))
    assert [cell for chunk in chunks for cell in chunk.columns["query"]] == expected


def test_a_part_without_rows_and_a_percentage_are_refused(hub):
    write(hub, {"train.tsv": PAIRS})
    with pytest.raises(FileFormatError, match="has no rows"):
        read_table(f"{NAME}?split=train[5:9]")
    with pytest.raises(DataError, match="is not a split; write NAME, or NAME"):
        read_table(f"{NAME}?split=train[:10%25]")


def test_json_and_compressed_files_are_read(hub):
    line = '{"query": "q", "document": "d", "label": 1}\n'
    write(hub, {"train.json": line, "validation.jsonl.gz": gzip.compress(line.encode())})
    table = read_table(NAME)
    assert table.columns["query"] == ["q"] * 2
    assert table.columns["label"] == ["1", "1"]


CLASSES = (
    "dataset_info:\n  features:\n  - name: label\n    dtype: {class_label: {names: {'0': entailment, '1': neutral}}}"
)


def test_class_numbers_become_names_from_the_card(hub):
    write(hub, {"pairs.tsv": "premise\thypothesis\tlabel\np\th\t1\np\th\t0\np\th\t-1\np\th\t\n"}, CLASSES)
    assert read_table(NAME).columns["label"] == ["neutral", "entailment", "-", ""]


def test_the_only_config_of_a_card_names_the_classes(hub):
    features = "[{name: label, dtype: {class_label: {names: {'0': entailment, '1': neutral}}}}]"
    card = f"configs: [{{config_name: plain}}]\ndataset_info: {{config_name: plain, features: {features}}}"
    write(hub, {"pairs.tsv": "premise\thypothesis\tlabel\np\th\t1\np\th\t0\n"}, card)
    assert (
        read_table(NAME).columns["label"] == read_table(f"{NAME}/plain").columns["label"] == ["neutral", "entailment"]
    )


def test_names_of_classes_that_are_other_numbers_are_refused(hub):
    card = "dataset_info: {features: [{name: stars, dtype: {class_label: {names: {'0': '1', '1': '2'}}}}]}"
    write(hub, {"pairs.tsv": "query\tdocument\tstars\np\th\t1\n"}, card)
    with pytest.raises(FileFormatError, match="1 in column 'stars' is the name of one class and the number of another"):
        read_table(NAME)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("{'1': b, '0': a}", ["b", "a"]),
        ("{" + ", ".join(f"'{n}': c{n}" for n in (0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9)) + "}", ["c1", "c0"]),
    ],
)
def test_classes_are_named_by_their_numbers_in_any_order(hub, names, expected):
    card = f"dataset_info:\n  features:\n  - name: label\n    dtype: {{class_label: {{names: {names}}}}}"
    write(hub, {"pairs.tsv": "premise\thypothesis\tlabel\np\th\t1\np\th\t0\n"}, card)
    assert read_table(NAME).columns["label"] == expected


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ("dataset_info: {features: [{name: label, dtype: {class_label: {names: {'0': a, '2': b}}}}]}", "have gaps"),
        ("configs:\n- {config_name: default, data_files: a.tsv}\ntags: [" + "x, " * 100_000 + "]", "card is too large"),
        ("configs:\n- &a {config_name: default, data_files: a.tsv}\nb: *a", "not plain YAML"),
        ("configs: [{config_name: default, data_files: [" + "a.tsv, " * 1_001 + "]}]", "more than 1,000 entries"),
    ],
)
def test_a_card_that_cannot_be_used_is_refused(hub, card, words):
    write(hub, {"a.tsv": PAIRS.format("a"), "b.tsv": PAIRS.format("b")}, card)
    with pytest.raises(DataError, match=words):
        read_table(NAME)


def test_files_in_several_splits_and_very_many_files_are_refused(hub):
    card = "configs: [{config_name: default, data_files: [{split: a, path: x.tsv}, {split: b, path: x.tsv}]}]"
    write(hub, {"x.tsv": PAIRS.format("q")}, card)
    with pytest.raises(DataError, match=r"x.tsv belongs to several splits; choose one, such as \?split=a"):
        read_table(NAME)
    assert len(read_table(f"{NAME}?split=b")) == 2
    write(hub, {f"files/{number}.tsv": "" for number in range(2_001)})
    with pytest.raises(DataError, match="more than 2,000 files"):
        read_table(NAME)


def test_class_numbers_become_names_from_a_parquet_file_of_datasets(hub):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"query": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = datasets.Dataset.from_dict({"query": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    rows.to_parquet(str(hub.folder / "train.parquet"))
    assert read_table(NAME).columns == {"query": ["a", "b", "c"], "label": ["yes", "no", "-"]}


def test_a_local_parquet_file_of_datasets_is_read_as_on_the_hub(hub, tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"query": datasets.Value("string"), "label": datasets.ClassLabel(names=["1", "0"])})
    rows = datasets.Dataset.from_dict({"query": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    for path in (hub.folder / "train.parquet", tmp_path / "rows.parquet"):
        rows.to_parquet(str(path))
    card = "dataset_info:\n  features:\n  - name: label\n    dtype: {class_label: {names: {'0': x, '1': y}}}"
    write(hub, {}, card)
    columns = read_table(tmp_path / "rows.parquet").columns
    assert columns == read_table(NAME).columns == {"query": ["a", "b", "c"], "label": ["0", "1", "-"]}


def test_several_splits_and_a_split_column_are_refused(hub):
    write(hub, {"train.csv": "query,split\na,x\n", "test.csv": "query,split\na,x\n"})
    with pytest.raises(DataError, match="several splits and also a column 'split'"):
        read_table(NAME)


@pytest.mark.parametrize(
    "files",
    [
        "/etc/passwd",
        "../../other/x.tsv",
        "https://evil.example/x.tsv",
        "reference://x.tsv::hf://datasets/owner/name@main/refs.json",
        "zip://x.tsv::pairs.zip",
        "~/x.tsv",
    ],
)
def test_a_card_names_files_of_its_repository_only(hub, files):
    card = f"configs:\n- config_name: default\n  data_files: '{files}'"
    write(hub, {"pairs.tsv": PAIRS, "pairs.zip": "x"}, card)
    with pytest.raises(DataError, match=r"its card names .*, which is no file that can be read"):
        read_table(NAME)
    assert set(hub.downloaded) == {"README.md"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "card",
    [
        "configs:\n- config_name: default\n  data_files: '*.tsv'\n  sep: '(a+)+b'\n  engine: python",
        "configs:\n- config_name: default\n  data_files: '*.tsv'\n  version: '../../../planted'",
        "configs:\n- config_name: default\n  data_files: '" + "*a" * 50 + "*/" * 30 + "**/" * 30 + "b'",
        "configs: [1, {config_name: }, {config_name: [x]}]",
        "configs: &a [*a]",
        "dataset_info: {features: [1, {dtype: 3}, {dtype: {class_label: 1}}]}",
        "a: &a [x]\nb: &b [*a, *a]\ndataset_info: {features: [{name: l, dtype: {class_label: {names: *b}}}]}",
        "a: &a {x: 1}\nb: &b [{<<: *a}, {<<: *a}]\nconfigs: *b",
        "p: &p ["
        + "a.tsv, " * 9000
        + "]\nconfigs: [{config_name: default, data_files: ["
        + "{path: *p}, " * 9000
        + "]}]",
        "dataset_info: {features: [{name: l, dtype: {class_label: {names: [" + "0xfff" * 2000 + "]}}}]}",
        "configs: [{config_name: default, data_files: [" + "{split: s, path: ['*a', '**/b']}, " * 2000 + "]}]",
        "x: " + "y" * 300_000,
        "[",
        "text",
    ],
)
def test_other_settings_of_a_card_have_no_effect(hub, card, tmp_path):
    write(hub, {"train.tsv": "query\tdocument\n" + "a" * 45 + "\tx\n"}, card)
    with suppress(DataError):
        assert queries() == ["a" * 45]
    assert {path.name for path in tmp_path.iterdir()} == {"repository", "cache"}


def test_the_scan_of_a_card_ends_at_deeply_nested_brackets(hub, monkeypatch):
    scan, tokens = yaml.scan, []
    monkeypatch.setattr(yaml, "scan", lambda text: (tokens.append(token) or token for token in scan(text)))
    write(hub, {"train.tsv": PAIRS}, "[" * 100_000)
    assert len(queries()) == 2
    assert 0 < len(tokens) < 2 * MAX_NESTING


def test_a_card_with_many_patterns_is_refused(hub):
    patterns = ", ".join(f"{{split: s{n}, path: '*{n}.tsv'}}" for n in range(21))
    write(hub, {"train.tsv": PAIRS}, f"configs: [{{config_name: default, data_files: [{patterns}]}}]")
    with pytest.raises(DataError, match="more than 20 patterns of files"):
        read_table(NAME)


def test_a_file_of_the_hub_has_the_limits_of_other_files(hub):
    write(hub, {"train.csv.gz": gzip.compress(b"query\n" + b"a long text\n" * 1_000_000)})
    with pytest.raises(FileFormatError, match="expand to at least"):
        read_table(NAME)


def test_a_download_above_the_limit_is_refused(hub, monkeypatch):
    write(hub, {"train.tsv": PAIRS * 1000, "test.tsv": PAIRS})
    monkeypatch.setenv(MAX_DOWNLOAD_GB, "0.00001")
    with pytest.raises(InputError, match="more than 1e-05; choose a smaller dataset, or set BSC_MAX_DOWNLOAD_GB"):
        read_table(NAME)
    assert hub.downloaded == []
    assert len(queries(f"{NAME}?split=test")) == 2


@pytest.mark.parametrize("files", [{}, {"load.py": "x", "data.zip": "x", "train.parquet.gz": "x"}])
def test_a_repository_without_readable_files_is_refused(hub, files):
    write(hub, files)
    with pytest.raises(DataError, match="has no files that can be read"):
        read_table(NAME)


def test_without_the_network_the_cached_files_are_read(hub, monkeypatch):
    write(hub, {"train.tsv": PAIRS.format("q")})
    read_table(NAME)

    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", unreachable)
    assert queries() == ["q1", "q2"]


@pytest.mark.parametrize(("offline", "words"), [("1", "HF_HUB_OFFLINE"), ("0", "check the name, the config")])
def test_an_unreachable_hub_is_reported_in_one_sentence(hub, monkeypatch, offline, words):
    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach the hub\nwith a long trace")

    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, offline)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", unreachable)
    with pytest.raises(DataError, match=words) as caught:
        read_table(NAME)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("hf://owner/name: ")


def test_the_progress_ends_at_the_size_of_the_files(hub):
    write(hub, {"train.tsv": PAIRS, "test.tsv": PAIRS})
    reports = []
    list(read_chunks(NAME, on_progress=reports.append))
    assert [(one.rows, one.done) for one in reports] == [(2, len(PAIRS)), (4, 2 * len(PAIRS))]
    assert [split.name for split in open_hub_dataset(NAME)] == ["train", "test"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf://squad", "has an owner and a name; write it as hf://owner/name"),
        ("hf://", "has an owner and a name"),
        ("hf://a/b/c/d", "has an owner and a name"),
        ("hf://a//c", "has an owner and a name"),
        ("hf://a/b?subset=train", "split is the only option"),
        ("hf://a/b?split=", "split is the only option"),
        ("hf://a/b?train", "split is the only option"),
    ],
)
def test_a_hub_id_of_another_form_is_refused(name, words):
    with pytest.raises(DataError, match=words.replace("?", r"\?")):
        read_table(name)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_only_some_files_have_is_not_lost_in_chunks(hub, kind):
    first, second = {"query": ["a"], "document": ["b"]}, {"query": ["c"], "document": ["d"], "label": [0]}
    for number, rows in enumerate((first, second)):
        path = hub.folder / f"train-{number}.{kind}"
        if kind == "csv":
            path.write_text(",".join(rows) + "\n" + ",".join(str(cells[0]) for cells in rows.values()) + "\n")
        else:
            pyarrow.parquet.write_table(pyarrow.table(rows), path)
    with pytest.raises(ColumnError, match="column 'label' begins after the first 1 rows"):
        list(ChunkedPairs(NAME))
    (hub.folder / f"train-0.{kind}").rename(hub.folder / f"train-2.{kind}")
    chunks = ChunkedPairs(NAME)
    assert [label for chunk in chunks for label in chunk.labels] == [0.0]
    assert [rejection.field for rejection in chunks.first_rejections] == ["label"]


@pytest.mark.parametrize("files", ["[a.tsv, missing.tsv]", "[{split: train, path: a.zst}, {split: test, path: a.tsv}]"])
def test_a_file_of_a_card_that_cannot_be_read_is_not_left_out(hub, files):
    write(hub, {"a.tsv": PAIRS.format("a")}, f"configs: [{{config_name: default, data_files: {files}}}]")
    with pytest.raises(DataError, match="which is no file that can be read"):
        read_table(NAME)
    if "split: test" in files:
        assert len(read_table(f"{NAME}?split=test")) == 2
