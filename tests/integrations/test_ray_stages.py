"""The stages of a plan over Parquet files without Ray, and what is refused before a cluster is asked."""

import socket
import subprocess
import sys
import time
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
from bsc_core.config import make_config
from bsc_core.data import read_pairs
from bsc_core.errors import ColumnError, ConfigError, DataError, FileFormatError, InputError, PathError
from bsc_core.integrations import ray_data
from bsc_core.integrations.ray_cluster import check_answer
from bsc_core.integrations.ray_data import plan_with_ray
from tests.integrations.ray_pairs import check_groups, config_of, plan_of, write_pairs


class Scattered:
    """What the pipeline uses of Ray Data, in this process, with the blocks in any order."""

    def __init__(self, tables: list[pa.Table], random: np.random.Generator) -> None:
        self.tables, self.random = [tables[place] for place in random.permutation(len(tables))], random

    def from_items(self, items: list[dict[str, Any]], override_num_blocks: int) -> "Scattered":
        return Scattered([pa.Table.from_pylist([item]) for item in items], self.random)

    def map_batches(self, stage: Callable[[pa.Table], Any], batch_size: int | None, batch_format: str) -> "Scattered":
        made = [stage(table) for table in self.tables]
        return Scattered(
            [one for many in made for one in ([many] if isinstance(many, pa.Table) else many)], self.random
        )

    def groupby(self, key: str, num_partitions: int) -> "Scattered":
        whole = pa.concat_tables(self.tables)
        whole = whole.take(self.random.permutation(len(whole)))
        groups = [whole.filter(pc.equal(whole[key], value)) for value in whole[key].unique()]
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
def scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages run in this process, in an order that differs from run to run."""
    random = np.random.default_rng(5)
    local = SimpleNamespace(data=Scattered([], random))
    monkeypatch.setattr(ray_data, "cluster", lambda address: nullcontext(local))


@pytest.mark.parametrize(
    "batching",
    [
        {"strategy": "words", "stop_count": 0, "shingle_size": 3},
        {"strategy": "words", "by": "document"},
        {"strategy": "clusters", "clusters": 2, "metric": "l2"},  # fitted to 512 of the texts
        {"strategy": "clusters", "clusters": 1, "by": "document"},
    ],
)
def test_the_groups_do_not_depend_on_how_the_rows_are_dealt(
    scattered: None, tmp_path: Path, batching: dict[str, Any]
) -> None:
    check_groups(write_pairs(tmp_path / "pairs", vectors_of=batching.get("by", "query")), tmp_path, **batching)


@given(
    texts=st.lists(st.text("ab cdé漢字", max_size=8), min_size=2, max_size=30),
    size=st.integers(1, 3),
    group_size=st.integers(1, 4),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_texts_of_any_script_meet_in_the_same_groups(
    scattered: None, tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int, group_size: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    queries = [f"{text} -" for text in texts]
    documents = [text or "." for text in texts[::-1]]
    pq.write_table(pa.table({"query": queries, "document": documents}), folder / "a.parquet", row_group_size=7)
    config = config_of(folder / "a.parquet", seed=seed, strategy="words", shingle_size=size, group_size=group_size)
    if sum(not document.isspace() for document in documents) < 2:
        with pytest.raises(DataError, match="can be trained on"):
            plan_with_ray(config, folder / "out")
        return
    dataset = read_pairs(folder / "a.parquet")
    expected = build_plan(config.batching, dataset, seed=seed, epoch=0)
    plan = plan_of(plan_with_ray(config, folder / "out", part_rows=5))
    assert plan.order.tolist() == expected.order.tolist()
    assert plan.groups.tolist() == expected.groups.tolist()


def test_only_the_rows_that_training_takes_are_numbered(scattered: None, tmp_path: Path) -> None:
    columns = {
        "query": [f"q{row % 6}" for row in range(40)],
        "document": [f"d{row}" for row in range(40)],
        "label": [row % 5 for row in range(40)],
        "split": ["train" if row % 4 else "test" for row in range(40)],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    given = {"data": {"train": str(tmp_path / "a.parquet"), "label_max": 5}, "batching": {"strategy": "words"}}
    config = make_config({**given, "loss": {"name": "bsc", "labelled_negatives": False}})
    dataset = read_pairs(tmp_path / "a.parquet", label_max=5)
    taken = dataset.take((np.asarray(dataset.split) == "train") & dataset.positive)
    expected = build_plan(config.batching, taken, seed=0, epoch=0)
    assert plan_of(plan_with_ray(config, tmp_path / "out")).order.tolist() == expected.order.tolist()


def test_vectors_come_from_the_encoder_where_the_files_have_none(
    scattered: None, tmp_path: Path, tiny_encoder: Path
) -> None:
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
    ("data", "batching", "kind", "said"),
    [
        ({}, {"strategy": "examples"}, ConfigError, "batching.strategy is examples"),
        ({"remedies": ["drop_repeats"]}, {"strategy": "words"}, ConfigError, "data.remedies"),
        ({"columns": {"query": "query", "document": "text"}}, {"strategy": "words"}, ColumnError, "'text'"),
        ({"train": "missing.parquet"}, {"strategy": "words"}, PathError, "missing.parquet"),
        ({"train": "."}, {"strategy": "words"}, PathError, "without a .parquet file"),
        ({"train": "pairs.tsv"}, {"strategy": "words"}, FileFormatError, "pairs.tsv"),
    ],
)
def test_bad_input_is_refused_before_any_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any], batching: Any, kind: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "pairs", rows=20)
    (tmp_path / "pairs.tsv").write_text("query\tdocument\na\tb\n")
    config = make_config({"data": {"train": "pairs", **data}, "batching": batching})
    with pytest.raises(kind, match=said) as refused:
        plan_with_ray(config, tmp_path / "out", address="127.0.0.1:1")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "pairs", rows=20)
    with pytest.raises(PathError, match="is there already"):
        plan_with_ray(config_of(folder, strategy="words"), folder)
    assert len(list(folder.iterdir())) == 2


def test_an_address_that_does_not_answer_is_refused_in_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        started = time.monotonic()
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: no Ray head answers there within 1 s"):
            check_answer(f"127.0.0.1:{port}", seconds=1.0)
        assert time.monotonic() - started < 10
    with pytest.raises(InputError, match="no Ray head answers"):
        check_answer(f"127.0.0.1:{port}")
    for wrong in ("somewhere", "host:port", ":6379", "host:"):
        with pytest.raises(InputError, match="write it as HOST:PORT"):
            check_answer(wrong)


def test_another_server_is_not_taken_for_a_ray_head() -> None:
    code = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler); "
    code += "print(s.server_port, flush=True); s.handle_request()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        with pytest.raises(InputError, match="no Ray head"):
            check_answer(f"127.0.0.1:{int(server.stdout.readline())}")


def test_ray_that_is_not_installed_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="Ray is not installed; install it with"):
        plan_with_ray(config_of(write_pairs(tmp_path / "pairs", rows=20), strategy="words"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
