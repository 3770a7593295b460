"""Hostile folders of shards and of saved datasets: each is refused in one sentence, and no file outside is read."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from bsc_core.data import read_table
from bsc_core.data.io.shards import write_manifest, write_part
from bsc_core.errors import FileFormatError, PathError
from tests.hostile.outcomes import read_outcomes
from tests.hostile.test_files import GIBIBYTE, LARGE, MAX_BYTES, MAX_SECONDS, READER, SIZES, forged, page
from tests.hostile.test_files import shared_names as message_of_shared_names

datasets = pytest.importorskip("datasets")

COLUMNS = {"query": "query", "document": "document"}
ROWS = {"query": ["A" * 16, "B" * 16], "document": ["C" * 16, "D" * 16]}
STATE = "state.json"

Make = Callable[[Path], object]


def shards(**changes: object) -> Make:
    """A folder of one shard, whose entry in the manifest has other values."""
    return lambda folder: write_shards(folder, ROWS, **changes)


def write_shards(folder: Path, columns: dict[str, Any], **changes: object) -> None:
    folder.mkdir()
    rows = len(columns["query"])
    part = write_part(folder, 0, pyarrow.table({"row": range(rows), "group": range(rows), **columns}))
    write_manifest(folder, [part], COLUMNS, {})
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["parts"][0] |= changes
    path.write_text(json.dumps(manifest))


def repeated_text(folder: Path) -> None:
    """20,000 rows that repeat a text of 60 kB."""
    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 20_000, pyarrow.int32()), ["x" * 60_000])
    write_shards(folder, {"query": text, "document": ["b"] * 20_000})


def many_cells(folder: Path) -> None:
    """Forty shards of 80,000 rows that repeat two short texts."""
    folder.mkdir()
    numbers = pyarrow.array([0] * 80_000)
    texts = {"query": ["a"] * 80_000, "document": ["b"] * 80_000}
    table = pyarrow.table({"row": numbers, "group": numbers, **texts})
    write_manifest(folder, [write_part(folder, number, table) for number in range(40)], COLUMNS, {})


def shard_twice(folder: Path) -> None:
    write_shards(folder, ROWS)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"parts": manifest["parts"] * 2}))


def many_shards(folder: Path) -> None:
    """Three shards of 400,000 constant rows, each of which is within the limits."""
    write_shards(folder, ROWS)
    rows, parts = 400_000, [folder / f"part-{number:05d}.parquet" for number in range(3)]
    for part in parts:
        pyarrow.parquet.write_table(pyarrow.table({"query": ["a"] * rows, "document": ["b"] * rows}), part)
    entries = [{"file": part.name, "rows": rows, "groups": 1, "bytes": part.stat().st_size} for part in parts]
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"parts": entries}))


def forged_shard(make: Make) -> Make:
    """A folder of one shard, which is another Parquet file."""

    def change(folder: Path) -> None:
        write_shards(folder, ROWS)
        make(folder / "part-00000.parquet")
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["parts"][0]["bytes"] = (folder / "part-00000.parquet").stat().st_size
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return change


def large_manifest(folder: Path) -> None:
    write_shards(folder, ROWS)
    os.truncate(folder / "manifest.json", 50 * 10**9)


def bytes_in_shards(folder: Path) -> None:
    write_shards(folder, {"query": [b"a"], "document": ["b"]})


def saved(change: Make) -> Make:
    """A saved dataset with a change."""

    def make(folder: Path) -> None:
        datasets.Dataset.from_dict(ROWS).save_to_disk(str(folder))
        change(folder)

    return make


def data_file(folder: Path) -> Path:
    return next(folder.glob("*.arrow"))


def offsets(*numbers: int) -> Make:
    """Other offsets of the texts of the first column."""

    def change(folder: Path) -> None:
        content = data_file(folder).read_bytes()
        place = content.index(struct.pack("<iii", 0, 16, 32))
        data_file(folder).write_bytes(content[:place] + struct.pack("<iii", *numbers) + content[place + 12 :])

    return change


def saved_lists(folder: Path) -> None:
    """A column that is not read, of lists whose offsets are far outside of their values."""
    datasets.Dataset.from_dict(ROWS | {"lists": [["p"], ["q"]]}).save_to_disk(str(folder))
    content = data_file(folder).read_bytes()
    place = content.rindex(struct.pack("<iii", 0, 1, 2), 0, content.rindex(struct.pack("<iii", 0, 1, 2)))
    far = struct.pack("<iii", *range(0x60000000, 0x60000003))
    data_file(folder).write_bytes(content[:place] + far + content[place + 12 :])


def bytes_of_text(folder: Path) -> None:
    path = data_file(folder)
    path.write_bytes(path.read_bytes().replace(b"A" * 16, b"\xff" * 16))


def state(**changes: object) -> Make:
    def change(folder: Path) -> None:
        path = folder / STATE
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def feature(name: str, **changes: object) -> Make:
    """Another type of a column in the description of a dataset."""

    def change(folder: Path) -> None:
        path = folder / "dataset_info.json"
        content = json.loads(path.read_text())
        content["features"][name] |= changes
        path.write_text(json.dumps(content))

    return change


def other_columns(folder: Path) -> None:
    """Two files of different columns."""
    first, second = data_file(folder), folder / "second.arrow"
    with pyarrow.ipc.new_stream(second, pyarrow.schema([("query", pyarrow.string())])) as writer:
        writer.write_table(pyarrow.table({"query": ["a"]}))
    file_names(first.name, second.name)(folder)


def file_names(*names: object) -> Make:
    return state(_data_files=[{"filename": name} for name in names])


def pipe(folder: Path) -> None:
    path = data_file(folder)
    path.unlink()
    os.mkfifo(path)


def splits(*names: object) -> Make:
    """A saved dataset of one split, whose list of splits is another one."""

    def make(folder: Path) -> None:
        datasets.DatasetDict({"train": datasets.Dataset.from_dict(ROWS)}).save_to_disk(str(folder))
        (folder / "dataset_dict.json").write_text(json.dumps({"splits": names}))

    return make


def nulls(count: int) -> Make:
    """A saved dataset of many cells in a file of less than 1 kB."""

    def make(folder: Path) -> None:
        rows = pyarrow.table({"query": pyarrow.nulls(count)})
        datasets.Dataset(rows.slice(0, 1)).save_to_disk(str(folder))
        with pyarrow.ipc.new_stream(data_file(folder), rows.schema) as writer:
            writer.write_table(rows)

    return make


def many_splits(folder: Path) -> None:
    """Two splits of 1.2 million rows, each of which is within the limits."""
    for name in ("one", "two"):
        nulls(1_200_000)(folder / name)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["one", "two"]}))


def arrow_file(table: pyarrow.Table, **options: Any) -> Make:
    """A saved dataset whose data are a table in another encoding."""

    def make(folder: Path) -> None:
        first = {name: [str(name)] for name in ROWS} | {
            name: [[None]] for name in table.column_names if name not in ROWS
        }
        datasets.Dataset.from_dict(first).save_to_disk(str(folder))
        with pyarrow.ipc.new_stream(
            data_file(folder), table.schema, options=pyarrow.ipc.IpcWriteOptions(**options)
        ) as writer:
            writer.write_table(table)

    return make


def shared_names(folder: Path) -> None:
    """A schema of 2,000 names of 500 kB, which are one text."""
    datasets.Dataset.from_dict(ROWS).save_to_disk(str(folder))
    data_file(folder).write_bytes(message_of_shared_names(2_000, 500_000))


def short_batches(folder: Path) -> None:
    """200 batches of one row of 600 columns."""
    datasets.Dataset.from_dict(ROWS).save_to_disk(str(folder))
    batch = pyarrow.record_batch({str(number): pyarrow.array([1], pyarrow.int8()) for number in range(600)})
    with pyarrow.ipc.new_stream(data_file(folder), batch.schema) as writer:
        for _ in range(200):
            writer.write_batch(batch)


def many_files(folder: Path) -> None:
    """A dataset whose list has 10,001 files."""
    datasets.Dataset.from_dict(ROWS).save_to_disk(str(folder))
    content, names = data_file(folder).read_bytes(), [f"{number}.arrow" for number in range(10_001)]
    for name in names:
        (folder / name).write_bytes(content)
    file_names(*names)(folder)


def linked_splits(folder: Path) -> None:
    """A hundred splits, which are links to one folder."""
    datasets.Dataset.from_dict(ROWS).save_to_disk(str(folder / "0"))
    names = [str(number) for number in range(100)]
    for name in names[1:]:
        (folder / name).symlink_to("0")
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": names}))


def repeated_views() -> pyarrow.Table:
    """20,000 views of one text of 60 kB, inside an extension."""
    text = pyarrow.array(["x" * 60_000], pyarrow.string_view())
    views, *data = text.buffers()[1:]
    many = pyarrow.Array.from_buffers(
        pyarrow.string_view(), 20_000, [None, pyarrow.py_buffer(views.to_pybytes()[:16] * 20_000), *data]
    )
    column = pyarrow.ExtensionArray.from_storage(pyarrow.json_(pyarrow.string_view()), many)
    return pyarrow.table({"query": column, "document": column})


def rows_without_columns(folder: Path) -> None:
    """10^12 rows in a file of some bytes."""
    datasets.Dataset.from_dict(ROWS).save_to_disk(str(folder))
    rows = pyarrow.RecordBatch.from_struct_array(pyarrow.array([{}] * 3, pyarrow.struct([])))
    path = data_file(folder)
    with pyarrow.ipc.new_stream(path, rows.schema) as writer:
        writer.write_batch(rows)
    path.write_bytes(path.read_bytes().replace((3).to_bytes(8, "little"), (10**12).to_bytes(8, "little")))


def lists_of_nulls(folder: Path) -> None:
    """Two rows, one of which is a list of two billion nulls without data."""
    tags = pyarrow.ListArray.from_arrays(pyarrow.array([0, 0, 2_000_000_000]), pyarrow.nulls(2_000_000_000))
    arrow_file(pyarrow.table({**ROWS, "tags": tags}))(folder)


REPEATED = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 20_000, pyarrow.int32()), ["x" * 60_000])
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
NO_FILE = "is not the name of a file in this folder"
CASES: dict[str, tuple[Make, str]] = {
    "shard_above": (shards(file="../outside.parquet"), NO_FILE),
    "shard_elsewhere": (shards(file="/etc/hostname"), NO_FILE),
    "shard_of_no_name": (shards(file=""), "missing or truncated"),
    "shard_of_a_number": (shards(file=3), NO_FILE),
    "shard_of_a_list": (shards(file=["part-00000.parquet"]), NO_FILE),
    "shard_rows_text": (shards(rows="2"), "is not a count"),
    "shard_groups_negative": (shards(groups=-1), "is not a count"),
    "shard_other_rows": (shards(rows=1), "has other rows than"),
    "shard_other_groups": (shards(groups=1), "has other groups than"),
    "shard_twice": (shard_twice, "names a part twice"),
    "saved_twice": (saved(lambda folder: file_names(*[data_file(folder).name] * 2)(folder)), "is named twice"),
    "saved_split_twice": (splits("train", "train"), "names a split twice"),
    "shard_many_cells": (many_cells, "with the files before it"),
    "shard_repeated_text": (repeated_text, "of the file expand to at least"),
    "shard_many": (many_shards, "with the files before it"),
    "shard_large_page": (forged_shard(forged(page(LARGE, GIBIBYTE + 4, values=2), rows=2)), SIZES),
    "shard_rows_of_a_group": (
        forged_shard(forged(page(), rows=2, group_rows=3)),
        "the row groups have other sizes than the footer",
    ),
    "shard_negative_page": (forged_shard(forged(page(unpacked=-1, values=2), rows=2)), SIZES),
    "shard_bytes": (bytes_in_shards, "it has columns that are not of shards"),
    "saved_above": (saved(file_names("../outside/data-00000-of-00001.arrow")), NO_FILE),
    "saved_elsewhere": (saved(file_names("/etc/hostname")), NO_FILE),
    "saved_number": (saved(file_names(3)), NO_FILE),
    "saved_missing": (saved(file_names("missing.arrow")), "missing.arrow is missing"),
    "saved_state_list": (saved(lambda folder: (folder / STATE).write_text("[]")), "cannot be read"),
    "saved_files_number": (saved(state(_data_files=3)), "cannot be read"),
    "saved_deep_state": (saved(lambda folder: (folder / STATE).write_text("[" * 100_000)), "cannot be read"),
    "saved_pipe": (saved(pipe), "is missing"),
    "saved_split_above": (splits("../outside"), NO_FILE),
    "saved_split_number": (splits(3), NO_FILE),
    "saved_nulls": (nulls(50_000_000), "keep the columns of texts, labels and ids"),
    "saved_shared_names": (shared_names, "its schema has too many fields, or too long names or metadata"),
    "saved_short_batches": (short_batches, "very short batches"),
    "saved_many_files": (many_files, "more than 10,000 files"),
    "saved_linked_splits": (linked_splits, "the same file is read under several names"),
    "saved_many_splits": (many_splits, "with the files before it"),
    "saved_offset_after_the_data": (saved(offsets(0, 16, 4_000)), "its data are damaged"),
    "saved_offset_far_away": (saved(offsets(0, 16, 2_000_000_000)), "its data are damaged"),
    "saved_lists_far_away": (saved_lists, "its data are damaged"),
    "saved_offset_negative": (saved(offsets(0, -16, 32)), "its data are damaged"),
    "saved_falling_offsets": (saved(offsets(0, 32, 16)), "its data are damaged"),
    "saved_bytes_of_text": (saved(bytes_of_text), "its data are damaged"),
    "saved_lists_of_nulls": (lists_of_nulls, "2 rows, 0 rejected"),
    "saved_dictionary": (arrow_file(pyarrow.table({"query": REPEATED, "document": REPEATED})), "compressed or encoded"),
    "saved_views": (arrow_file(repeated_views()), "compressed or encoded"),
    "saved_no_schema": (saved(lambda folder: data_file(folder).write_bytes(END_OF_STREAM)), "has no schema"),
    "saved_no_columns": (rows_without_columns, "a file of"),
    "saved_column_twice": (arrow_file(pyarrow.table([["a"], ["b"], ["c"]], ["query", "document", "query"])), "twice"),
    "saved_compressed": (arrow_file(pyarrow.table(ROWS), compression="zstd"), "compressed or encoded"),
    "saved_other_columns": (saved(other_columns), "has other columns than"),
    "saved_function": (saved(feature("query", dtype="create_library_symlinks")), "2 rows, 0 rejected"),
    "saved_classes": (saved(feature("query", _type="ClassLabel", names={"0": [1]})), "2 rows, 0 rejected"),
    "saved_many_classes": (
        saved(feature("query", _type="ClassLabel", names=["x"] * 10_001)),
        "has more than 10,000 classes",
    ),
    "saved_info_list": (saved(lambda folder: (folder / "dataset_info.json").write_text("[]")), "is not an object"),
    "saved_large_state": (saved(lambda folder: os.truncate(folder / STATE, 50 * 10**9)), "more than 16 MiB"),
    "saved_large_info": (saved(lambda folder: os.truncate(folder / "dataset_info.json", 50 * 10**9)), "16 MiB"),
    "shard_large_manifest": (large_manifest, "more than 16 MiB"),
    "shards": (shards(), "2 rows, 0 rejected"),
    "saved": (saved(lambda folder: None), "2 rows, 0 rejected"),
    "saved_splits": (splits("train"), "2 rows, 0 rejected"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of every folder, read in one separate process, which wrong offsets could kill."""
    folder = tmp_path_factory.mktemp("folders")
    for name, (make, _) in CASES.items():
        make(folder / name)
    return read_outcomes(READER, folder)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("reader", [0, 1], ids=["whole", "chunks"])
def test_a_hostile_folder_has_its_stated_outcome(report: dict[str, Any], name: str, reader: int) -> None:
    outcome, expected = report["outcomes"][name][reader], CASES[name][1]
    assert outcome == expected if expected.endswith("rejected") else expected in outcome
    assert "Traceback" not in outcome
    assert "\n" not in outcome


def test_no_folder_needs_a_gibibyte_or_ten_seconds(report: dict[str, Any]) -> None:
    assert report["bytes"] < MAX_BYTES, report["log"]
    assert max(report["seconds"].values()) < MAX_SECONDS, report["seconds"]


def test_a_part_that_links_out_of_the_allowed_folders_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, private = tmp_path / "allowed", tmp_path / "private"
    for name, make, pattern in (("shards", shards(), "*.parquet"), ("saved", saved(lambda folder: None), "*.arrow")):
        for root in (allowed, private):
            root.mkdir(exist_ok=True)
            make(root / name)
        part = next((allowed / name).glob(pattern))
        part.unlink()
        part.symlink_to(private / name / part.name)
    for name in ("shards", "saved"):
        assert len(read_table(allowed / name)) == 2
    monkeypatch.setenv("BSC_ROOTS", str(allowed))
    for name in ("shards", "saved"):
        with pytest.raises(PathError, match="outside the folders that may be read"):
            read_table(allowed / name)


def test_names_of_files_of_other_datasets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(lambda folder: None)(tmp_path / "private")
    saved(file_names(f"../private/{data_file(tmp_path / 'private').name}"))(tmp_path / "allowed")
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "allowed"))
    with pytest.raises(FileFormatError, match=NO_FILE):
        read_table(tmp_path / "allowed")
