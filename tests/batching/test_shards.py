"""Folders of shards: the batches of the plan in memory; unfinished folders are refused."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bsc_core.batching import BatchPlan
from bsc_core.batching.shards import ShardedPlan
from bsc_core.data import read_pairs
from bsc_core.data.io.shards import Shards, new_shards_folder, open_shards, write_manifest, write_part
from bsc_core.errors import FileFormatError, InputError, PathError, RunError

COLUMNS = {"query": "query", "document": "document"}


def write(out: Path, sizes: list[int], per_part: int = 10) -> tuple[Shards, BatchPlan]:
    """Shards of groups of these sizes in parts of `per_part` groups, and the same plan in memory."""
    order = np.random.default_rng(0).permutation(sum(sizes)).astype(np.int32)
    groups = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    with new_shards_folder(out) as folder:
        parts = []
        for number, first in enumerate(range(0, len(sizes), per_part)):
            inside = (groups >= first) & (groups < first + per_part)
            rows = order[inside].astype(np.int64)
            texts = {"query": [f"q {row}" for row in rows], "document": [f"d {row}" for row in rows]}
            table = pa.table({"row": rows, "group": groups[inside].astype(np.int64) - first, **texts})
            parts.append(write_part(folder, number, table))
        write_manifest(folder, parts, COLUMNS, {"strategy": "words"})
    return open_shards(out), BatchPlan(order, groups)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=60),
    batch_size=st.integers(2, 9),
    window=st.integers(1, 40),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_streamed_batches_are_those_of_the_plan(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], batch_size: int, window: int
) -> None:
    shards, plan = write(tmp_path_factory.mktemp("shards") / "out", sizes)
    assert (len(shards), shards.groups) == (len(plan), len(sizes))
    streamed = list(ShardedPlan(shards, window=window).batches(batch_size))
    assert [batch.tolist() for batch in streamed] == [batch.tolist() for batch in plan.batches(batch_size)]


@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=60), window=st.integers(1, 40))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keep_groups_keeps_groups_whole_in_every_window(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], window: int
) -> None:
    shards, plan = write(tmp_path_factory.mktemp("shards") / "out", sizes)
    streamed = list(ShardedPlan(shards, keep_groups=True, window=window).batches(4))
    assert sorted(np.concatenate(streamed).tolist()) == list(range(len(plan)))
    assert all(2 <= len(batch) <= 5 for batch in streamed)
    group_of = dict(zip(plan.order.tolist(), plan.groups.tolist(), strict=True))
    held = [{group_of[row] for row in batch.tolist()} for batch in streamed]
    assert sum(len(groups) for groups in held) == len(sizes)
    complete = list(ShardedPlan(shards, keep_groups=True).batches(4))
    packed = BatchPlan(plan.order, plan.groups, keep_groups=True).batches(4)
    assert [batch.tolist() for batch in complete] == [batch.tolist() for batch in packed]


def test_few_rows_are_in_memory_at_a_time(tmp_path: Path) -> None:
    shards, _ = write(tmp_path / "out", [3] * 200)
    windows = ShardedPlan(shards, window=50).windows(8)
    assert all(len(table) <= 90 for table, _ in windows)


def test_a_folder_of_shards_reads_as_pairs_in_the_order_of_the_plan(tmp_path: Path) -> None:
    _, plan = write(tmp_path / "out", [4, 1, 3, 2], per_part=2)
    read = read_pairs(tmp_path / "out", {"query": "other", "document": "names"})  # shards name their own
    assert read.texts.take(read.query) == [f"q {row}" for row in plan.order]
    assert read.texts.take(read.document) == [f"d {row}" for row in plan.order]


def test_a_batch_of_one_row_is_refused(tmp_path: Path) -> None:
    shards, _ = write(tmp_path / "out", [2, 2])
    with pytest.raises(InputError, match="batch_size is 1"):
        ShardedPlan(shards).batches(1).__next__()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "were not finished"),
        (lambda folder: (folder / "manifest.json").write_text('{"format"'), "not a manifest of shards"),
        (lambda folder: (folder / "manifest.json").write_text('{"format": "x"}'), "another format"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "not a manifest of shards"),
        (lambda folder: (folder / "part-00001.parquet").unlink(), "part-00001.parquet is missing"),
        (lambda folder: (folder / "part-00000.parquet").write_bytes(b"PAR1"), "missing or truncated"),
    ],
)
def test_incomplete_folders_are_refused(tmp_path: Path, damage: object, message: str) -> None:
    write(tmp_path / "out", [1] * 20)
    assert callable(damage)
    damage(tmp_path / "out")
    for read in open_shards, read_pairs:
        with pytest.raises(FileFormatError, match=message):
            read(tmp_path / "out")


def test_a_shard_with_changed_bytes_is_refused_where_it_is_read(tmp_path: Path) -> None:
    shards, _ = write(tmp_path / "out", [1] * 20)
    part = tmp_path / "out" / "part-00001.parquet"
    part.write_bytes(b"x" * part.stat().st_size)
    with pytest.raises(FileFormatError, match=r"part-00001\.parquet: the shard cannot be read"):
        list(ShardedPlan(shards).batches(4))


def test_unfinished_shards_leave_no_folder(tmp_path: Path) -> None:
    def stop(folder: Path) -> None:
        write_part(folder, 0, pa.table({"row": [0], "group": [0], "query": ["a"], "document": ["b"]}))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), new_shards_folder(tmp_path / "out") as folder:
        stop(folder)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("kept")
    for taken in (tmp_path / "file", tmp_path):
        with pytest.raises(PathError, match="exists already"), new_shards_folder(taken):
            pass
    with pytest.raises(PathError, match="cannot be created"), new_shards_folder(tmp_path / "file" / "out"):
        pass
    with pytest.raises(PathError, match="no such file"):
        open_shards(tmp_path / "out")
    with pytest.raises(PathError, match="not a folder"):
        open_shards(tmp_path / "file")


FULL_DISK = """
import resource, sys
import pyarrow as pa
from bsc_core.data.io.shards import new_shards_folder, write_manifest, write_part
from bsc_core.errors import RunError
text = ["".join(chr(97 + (row * 7919 + place * place) % 26) for place in range(50)) for row in range(5000)]
table = pa.table({"row": range(5000), "group": range(5000), "query": text, "document": text})
limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
try:
    with new_shards_folder(sys.argv[1]) as folder:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), limit))
        part = write_part(folder, 0, table)
        write_manifest(folder, [part] * 10_000, {}, {})
except RunError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the size of files cannot be limited")
@pytest.mark.parametrize(("most", "file"), [(5000, "part-00000.parquet"), (None, "manifest.json")])
def test_a_disk_that_fills_leaves_nothing(tmp_path: Path, most: int | None, file: str) -> None:
    def run(limit: int) -> str:
        command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "out"), str(limit)]
        root = str(Path(__file__).resolve().parents[2])
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    if most is None:
        assert run(10**9) == ""
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        size, reported = manifest["parts"][0]["bytes"], (tmp_path / "out" / "manifest.json").stat().st_size
        assert size < reported
        most = (size + reported) // 2
        for path in (tmp_path / "out").iterdir():
            path.unlink()
        (tmp_path / "out").rmdir()
    assert run(most) == f"{file} could not be written (File too large); make room, or choose a folder on another disk"
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_the_disk_refuses_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(RunError, match="the shards could not be written"),
        new_shards_folder(tmp_path / "out") as folder,
    ):
        raise OSError(28, "No space left on device", str(folder))
    assert list(tmp_path.iterdir()) == []
