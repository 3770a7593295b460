"""Parquet files of pairs, and a comparison of their shards with the plan in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bsc_core.batching import BatchPlan, build_plan
from bsc_core.config import RunConfig, make_config
from bsc_core.data import PairDataset, read_pairs
from bsc_core.data.io.shards import Shards
from bsc_core.ray.data.plan import plan_with_ray

WORDS = [f"word{number}" for number in range(80)]


def write_pairs(folder: Path, rows: int = 700, vectors_of: str = "query") -> Path:
    """Write two Parquet files of several row groups, with blank texts, unusable labels, and a vector for each query."""
    random = np.random.default_rng(0)
    share = 1 / np.arange(1, len(WORDS) + 1)

    def texts(longest: int) -> list[str]:
        sizes = random.integers(0, longest, rows)
        return [" ".join(random.choice(WORDS, size, p=share / share.sum())) or "..." for size in sizes]

    queries, documents = texts(7), [f"{text} end" for text in texts(5)]
    documents[3] = queries[5] = " "
    documents[8] = queries[11]  # a text on both sides
    labels = [str(label) for label in random.random(rows).round(3)]
    labels[7] = "good"
    columns = {"query": queries, "document": documents, "label": labels}
    columns["vector"] = [vector_of(text).tolist() for text in columns[vectors_of]]
    table = pa.table(columns)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.slice(0, rows // 2), folder / "a.parquet", row_group_size=150)
    pq.write_table(table.slice(rows // 2), folder / "b.parquet", row_group_size=90)
    return folder


def vector_of(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(list(text.encode())).normal(size=6).astype(np.float32)


def in_memory(folder: Path, tmp_path: Path) -> PairDataset:
    whole = tmp_path / "whole.parquet"
    pq.write_table(pq.read_table(folder).drop_columns(["vector"]), whole)
    return read_pairs(whole)


def config_of(train: Path, seed: int = 0, **batching: Any) -> RunConfig:
    return make_config({"data": {"train": str(train)}, "batching": batching, "training": {"seed": seed}})


def plan_of(shards: Shards) -> BatchPlan:
    tables = list(shards.batches(["row", "group"]))
    rows, groups = (np.concatenate([table[name].to_numpy() for table in tables]) for name in ("row", "group"))
    return BatchPlan(rows, groups)


def check_groups(folder: Path, tmp_path: Path, **batching: Any) -> None:
    """Check that shards of the files hold the plan, texts and labels of the same rows in memory."""
    config = config_of(folder, seed=3, **batching, group_size=4)
    shards = plan_with_ray(config, tmp_path / "shards", epoch=2, part_rows=350)
    dataset = in_memory(folder, tmp_path)
    vectors = np.stack([vector_of(text) for text in dataset.texts])
    expected = build_plan(config.batching, dataset, vectors, seed=3, epoch=2)
    plan = plan_of(shards)
    assert (np.bincount(expected.groups) == 4).any()
    assert plan.order.tolist() == expected.order.tolist()
    assert plan.groups.tolist() == expected.groups.tolist()
    assert len(shards.parts) == 2
    assert shards.about["rejected"] == 3
    read = read_pairs(tmp_path / "shards")
    assert read.texts.take(read.query) == dataset.texts.take(dataset.query[plan.order])
    assert read.texts.take(read.document) == dataset.texts.take(dataset.document[plan.order])
    assert np.array_equal(read.label, dataset.label[plan.order])
