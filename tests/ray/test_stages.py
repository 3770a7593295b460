"""Stages of a plan over Parquet files without Ray, and errors before a cluster is used."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bsc_core.batching import build_plan
from bsc_core.config import DataConfig, make_config
from bsc_core.data import read_pairs
from bsc_core.data.io.validation import EXAMPLE_CELLS
from bsc_core.errors import ColumnError, ConfigError, DataError, FileFormatError, InputError, PathError
from bsc_core.ray.data import plan as ray_data
from bsc_core.ray.data.cluster import check_answer
from bsc_core.ray.data.plan import plan_with_ray
from bsc_core.ray.data.rows import RowSource, parquet_pieces, row_source
from tests.ray.pairs_files import check_groups, config_of, plan_of, write_pairs


class Scattered:
    """Stand-in for the part of Ray Data that the pipeline uses, with blocks in random order."""

    def __init__(self, tables: list[pa.Table], random: np.random.Generator) -> None:
        self.tables, self.random = [tables[number] for number in random.permutation(len(tables))], random

    def from_items(self, items: list[dict[str, Any]], override_num_blocks: int) -> "Scattered":
        return Scattered([pa.Table.from_pylist([item]) for item in items], self.random)

    def map_batches(self, stage: Callable[[pa.Table], Any], batch_size: int | None, batch_format: str) -> "Scattered":
        results = [stage(table) for table in self.tables]
        return Scattered(
            [one for many in results for one in ([many] if isinstance(many, pa.Table) else many)], self.random
        )

    def groupby(self, key: str, num_partitions: int) -> "Scattered":
        table = pa.concat_tables(self.tables)
        table = table.take(self.random.permutation(len(table)))
        groups = [table.filter(pc.equal(table[key], value)) for value in table[key].unique()]
        return Scattered(groups, self.random)

    def map_groups(self, stage: Callable[[pa.Table], Any], batch_format: str) -> "Scattered":
        return self.map_batches(stage, None, batch_format)

    def materialize(self) -> "Scattered":
        return self

    def take_all(self) -> list[dict[str, Any]]:
        return [row for table in self.tables for row in table.to_pylist()]

    def iter_batches(self, batch_size: int | None, batch_format: str) -> Iterator[dict[str, Any]]:
        for table in self.tables:
            yield {name: np.asarray(table[name].to_pylist()) for name in table.column_names}


@pytest.fixture
def scattered(monkeypatch):
    """Run the stages in this process, with blocks in random order."""
    random = np.random.default_rng(5)
    local = SimpleNamespace(data=Scattered([], random))
    monkeypatch.setattr(ray_data, "cluster", lambda address: nullcontext(local))


@pytest.mark.parametrize(
    "batching",
    [
        {"strategy": "words", "stop_count": 0, "shingle_size": 3},
        {"strategy": "words", "group_by": "document"},
        {"strategy": "clusters", "clusters": 2, "metric": "l2"},  # fitted to 512 of the texts
        {"strategy": "clusters", "clusters": 1, "group_by": "document"},
    ],
)
def test_groups_do_not_depend_on_the_distribution_of_rows(scattered, tmp_path, batching):
    check_groups(write_pairs(tmp_path / "pairs", vectors_of=batching.get("group_by", "query")), tmp_path, **batching)


@given(
    texts=st.lists(st.text("ab cdé漢字", max_size=8), min_size=2, max_size=30),
    size=st.integers(1, 3),
    group_size=st.integers(1, 4),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_texts_of_any_script_get_the_same_groups_as_in_memory(
    scattered, tmp_path_factory, texts, size, group_size, seed
):
    folder = tmp_path_factory.mktemp("any")
    queries = [f"{text} -" for text in texts]
    documents = [text or "." for text in texts[::-1]]
    pq.write_table(pa.table({"query": queries, "document": documents}), folder / "a.parquet", row_group_size=7)
    config = config_of(folder / "a.parquet", seed=seed, strategy="words", shingle_size=size, group_size=group_size)
    if sum(not document.isspace() for document in documents) < 2:
        with pytest.raises(DataError, match="rows can be used"):
            plan_with_ray(config, folder / "out")
        return
    dataset = read_pairs(folder / "a.parquet")
    expected = build_plan(config.batching, dataset, seed=seed, epoch=0)
    plan = plan_of(plan_with_ray(config, folder / "out", part_rows=5))
    assert plan.order.tolist() == expected.order.tolist()
    assert plan.groups.tolist() == expected.groups.tolist()


def test_only_training_rows_are_numbered(scattered, tmp_path):
    columns = {
        "query": [f"q{row % 6}" for row in range(40)],
        "document": [f"d{row}" for row in range(40)],
        "label": [row % 5 for row in range(40)],
        "split": ["train" if row % 4 else "test" for row in range(40)],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    given = {"data": {"train": str(tmp_path / "a.parquet"), "label_max": 5}, "batching": {"strategy": "words"}}
    config = make_config({**given, "loss": {"name": "bsc", "labeled_negatives": False}})
    dataset = read_pairs(tmp_path / "a.parquet", label_max=5)
    taken = dataset.take((np.asarray(dataset.split) == "train") & dataset.positive)
    expected = build_plan(config.batching, taken, seed=0, epoch=0)
    assert plan_of(plan_with_ray(config, tmp_path / "out")).order.tolist() == expected.order.tolist()


def test_vectors_come_from_the_encoder_if_the_files_have_none(scattered, tmp_path, tiny_encoder):
    texts = [f"how do i {word} my {word}" for word in ("plant", "fix", "paint", "save", "boil", "ride") for _ in "ab"]
    pq.write_table(pa.table({"query": texts, "document": texts}), tmp_path / "a.parquet")
    config = config_of(tmp_path / "a.parquet", strategy="clusters", clusters=3)
    encoder = config.encoder.model_copy(update={"name": str(tiny_encoder)})
    shards = plan_with_ray(config.model_copy(update={"encoder": encoder}), tmp_path / "out")
    plan = plan_of(shards)
    assert sorted(plan.order.tolist()) == list(range(12))
    groups = dict(zip(plan.order.tolist(), plan.groups.tolist(), strict=True))
    assert 3 <= shards.groups <= 5
    assert sum(groups[row] == groups[row + 1] for row in range(0, 12, 2)) >= 4  # equal texts share a cluster


@pytest.mark.parametrize(
    ("data", "batching", "kind", "message"),
    [
        ({}, {"strategy": "nearest"}, ConfigError, "batching.strategy is nearest"),
        ({"filters": ["drop_duplicates"]}, {"strategy": "words"}, ConfigError, "data.filters"),
        ({"columns": {"query": "query", "document": "text"}}, {"strategy": "words"}, ColumnError, "'text'"),
        ({"train": "missing.parquet"}, {"strategy": "words"}, PathError, "missing.parquet"),
        ({"train": "."}, {"strategy": "words"}, PathError, "without a .parquet file"),
        ({"train": "pairs.tsv"}, {"strategy": "words"}, FileFormatError, "pairs.tsv"),
        ({"train": "repeated"}, {"strategy": "words"}, FileFormatError, "b.parquet: .* expand to at least"),
        ({"train": "repeated/b.parquet"}, {"strategy": "words"}, FileFormatError, "b.parquet: .* expand to at least"),
    ],
)
def test_bad_input_is_refused_before_a_cluster_is_used(tmp_path, monkeypatch, data, batching, kind, message):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "pairs", rows=20)
    (tmp_path / "pairs.tsv").write_text("query\tdocument\na\tb\n")
    (tmp_path / "repeated").mkdir()
    pq.write_table(pa.table({"query": ["a"], "document": ["b"]}), tmp_path / "repeated/a.parquet")
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), pa.array(["ab" * 50_000]))
    pq.write_table(pa.table({"query": texts, "document": texts}), tmp_path / "repeated/b.parquet")
    config = make_config({"data": {"train": "pairs", **data}, "batching": batching})
    with pytest.raises(kind, match=message) as refused:
        plan_with_ray(config, tmp_path / "out", address="127.0.0.1:1")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_an_existing_folder_is_not_overwritten(tmp_path):
    folder = write_pairs(tmp_path / "pairs", rows=20)
    with pytest.raises(PathError, match="exists already"):
        plan_with_ray(config_of(folder, strategy="words"), folder)
    assert len(list(folder.iterdir())) == 2


def test_an_address_that_does_not_answer_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: no Ray head answers there within 1 s"):
            check_answer(f"127.0.0.1:{port}", seconds=1.0)
    with pytest.raises(InputError, match="no Ray head answers"):
        check_answer(f"127.0.0.1:{port}")
    for wrong in ("somewhere", "host:port", ":6379", "host:"):
        with pytest.raises(InputError, match="give HOST:PORT"):
            check_answer(wrong)


def test_another_server_is_not_accepted_as_a_ray_head():
    code = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler); "
    code += "print(s.server_port, flush=True); s.handle_request()"
    command = [sys.executable, "-c", code]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server,
        pytest.raises(InputError, match="not a Ray head"),
    ):
        check_answer(f"127.0.0.1:{int(server.stdout.readline())}")


def test_a_missing_ray_is_reported_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="Ray is not installed; install it with"):
        plan_with_ray(config_of(write_pairs(tmp_path / "pairs", rows=20), strategy="words"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


TEXTS = {"query": ["a", "b"], "document": ["c", "d"]}


def test_a_folder_of_parquet_files_has_no_links_out_of_the_allowed_folders_and_no_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, secret = tmp_path / "allowed", tmp_path / "secret.parquet"
    folder.mkdir()
    for path in (folder / "a.parquet", secret):
        pq.write_table(pa.table(TEXTS), path)
    monkeypatch.setenv("BSC_ROOTS", str(folder))
    assert len(parquet_pieces(str(folder))) == 1
    (folder / "b.parquet").symlink_to(secret)
    with pytest.raises(PathError, match="outside the folders"):
        parquet_pieces(str(folder))
    (folder / "b.parquet").unlink()
    os.mkfifo(folder / "b.parquet")
    with pytest.raises(FileFormatError, match="not a complete Parquet file"):
        parquet_pieces(str(folder))


def test_a_column_of_texts_has_no_lists_in_any_file(tmp_path: Path) -> None:
    pq.write_table(pa.table(TEXTS), tmp_path / "a.parquet")
    pq.write_table(pa.table(TEXTS | {"query": [["a"], ["b"]]}), tmp_path / "b.parquet")
    with pytest.raises(ColumnError, match=r"b\.parquet: column 'query' for query has lists"):
        row_source(DataConfig(train=str(tmp_path)), parquet_pieces(str(tmp_path)), positives_only=False)


@pytest.mark.parametrize(("rows", "numbers"), [(2, 8_193), (2_000, 8_192)])
def test_vectors_far_larger_than_the_file_are_refused(tmp_path: Path, rows: int, numbers: int) -> None:
    def source(vectors: pa.Array) -> RowSource:
        texts = {name: [f"{name} {row}" for row in range(rows)] for name in TEXTS}
        pq.write_table(pa.table(texts | {"vector": vectors}), tmp_path / "a.parquet")
        return row_source(DataConfig(train=str(tmp_path)), parquet_pieces(str(tmp_path)), positives_only=False)

    zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * numbers, np.float32)), numbers)
    with pytest.raises(FileFormatError, match=r"other sizes than the footer|expand to at least"):
        source(zeros)
    assert source(pa.array([[0.5, 1.0]] * rows)).with_vectors
    assert not source(pa.array(["a text"] * rows)).with_vectors


@pytest.mark.parametrize("row", [0, 2 * EXAMPLE_CELLS])
def test_a_text_that_is_not_utf_8_is_reported_with_its_file(tmp_path: Path, row: int) -> None:
    texts = [b"a text"] * (2 * EXAMPLE_CELLS + 1)
    texts[row] = b"caf\xe9"
    column = pa.array(texts, pa.binary())
    damaged = pa.StringArray.from_buffers(len(column), *column.buffers()[1:])
    file = tmp_path / "part.parquet"
    pq.write_table(pa.table({"query": damaged, "document": ["b"] * len(texts)}), file)
    pieces = parquet_pieces(str(tmp_path))
    with pytest.raises(FileFormatError, match=r"part\.parquet: its data are damaged .*UTF.?8"):
        row_source(DataConfig(train=str(tmp_path)), pieces, positives_only=False).count(pieces[0])
