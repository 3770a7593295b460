"""Folders of shards: pairs in training order, as Parquet parts that are read one by one.

A folder gets its name only after all parts and `manifest.json` are written, so an incomplete one is never read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsc_core.data.io.limits import Sizes, check_parquet_footer, check_parquet_size, nested_parquet_columns
from bsc_core.errors import FileFormatError, PathError, RunError
from bsc_core.files import (
    MAX_LARGE_DOCUMENT_BYTES,
    atomic_folder,
    atomic_path,
    atomic_write,
    error_reason,
    read_regular,
)
from bsc_core.paths import check_path, expand, plain_name

if TYPE_CHECKING:
    import pyarrow

FORMAT = "bsc-shards-1"
MAX_COUNT = 10**12
MANIFEST = "manifest.json"
READ_ROWS = 16_384

# M rows of the plan


@dataclass(frozen=True)
class Shard:
    """One Parquet file of a folder of shards: its name, rows, groups and size in bytes.

    Raises:
        ValueError: The name is that of a file outside of the folder, or a number is not a count.
    """

    file: str
    rows: int
    groups: int
    bytes: int

    def __post_init__(self) -> None:
        plain_name(self.file)
        for value in (self.rows, self.groups, self.bytes):
            if type(value) is not int or not 0 <= value <= MAX_COUNT:
                raise ValueError(f"{value!r} of {self.file} is not a count")


@dataclass(frozen=True)
class Shards:
    """A complete folder of shards.

    columns: the column of each role, as in `data.columns`; about: facts of the plan, such as strategy, seed and epoch.
    """

    folder: Path
    parts: tuple[Shard, ...]
    columns: dict[str, str]
    about: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def groups(self) -> int:
        """Number of groups in all parts."""
        return sum(part.groups for part in self.parts)

    def batches(
        self, columns: Sequence[str] | None = None, rows: int = READ_ROWS, sizes: Sizes | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows in plan order, at most `rows` at a time.

        Column `row` is the row number in the data, `group` the group number, which increases through all parts. Raises
        FileFormatError when a part cannot be read, or the parts are far larger than their files. `sizes` are those of
        the files that are read together with the shards.
        """
        import pyarrow
        import pyarrow.parquet

        first_group, sizes = 0, sizes or Sizes()
        for part in self.parts:
            path = self.folder / part.file
            try:
                check_parquet_footer(path, str(path))
                with pyarrow.parquet.ParquetFile(path) as file:
                    if nested_parquet_columns(file.schema_arrow):
                        raise FileFormatError(f"{path}: it has columns that are not of shards; write the shards again")
                    if file.metadata.num_rows != part.rows:
                        raise FileFormatError(f"{path}: has other rows than {MANIFEST} says; write the shards again")
                    names = file.schema_arrow.names
                    check_parquet_size(path, names if columns is None else columns, str(path), sizes)
                    for batch in file.iter_batches(rows, columns=columns):
                        batch.validate(full=True)  # a text may not be UTF-8
                        _check_groups(batch, part.groups, path)
                        yield _with_groups_from(batch, first_group)
            except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
                raise FileFormatError(
                    f"{path}: the shard cannot be read ({error_reason(error)}); write it again"
                ) from None
            first_group += part.groups


def _check_groups(batch: pyarrow.RecordBatch, groups: int, path: Path) -> None:
    """Raise FileFormatError if a batch of a part has more groups than its manifest says."""
    import pyarrow.compute

    index = batch.schema.get_field_index("group")
    largest = -1 if index < 0 else pyarrow.compute.max(batch.column(index)).as_py()
    if largest is not None and largest >= groups:
        raise FileFormatError(f"{path}: has other groups than {MANIFEST} says; write the shards again")


def _with_groups_from(batch: pyarrow.RecordBatch, first: int) -> pyarrow.RecordBatch:
    import pyarrow
    import pyarrow.compute

    index = batch.schema.get_field_index("group")
    if index < 0 or not first:
        return batch
    groups = pyarrow.compute.add(batch.column(index), pyarrow.scalar(first, pyarrow.int64()))
    return batch.set_column(index, "group", groups)


def is_shards(path: Path | str) -> bool:
    """Return whether a path is a folder of shards, complete or not."""
    folder = expand(path)
    return folder.is_dir() and ((folder / MANIFEST).is_file() or any(folder.glob("part-*.parquet")))


def open_shards(path: Path | str) -> Shards:
    """Open a folder of shards.

    Raises:
        PathError: There is no such folder, or a part links to a file that may not be read.
        FileFormatError: The manifest is missing or invalid, or a part is missing or has changed in size.
    """
    folder = check_path(path)
    if not folder.is_dir():
        raise PathError(f"{path}: not a folder; give the folder that `bsc shard` wrote")
    if not (folder / MANIFEST).is_file():
        raise FileFormatError(f"{path}: has no {MANIFEST}, so these shards were not finished; write them again")
    try:
        manifest = json.loads(read_regular(folder / MANIFEST, MAX_LARGE_DOCUMENT_BYTES))
        if manifest.pop("format") != FORMAT:
            raise ValueError("it is of another format")
        parts = tuple(Shard(**part) for part in manifest["parts"])
        shards = Shards(folder, parts, dict(manifest["columns"]), dict(manifest["about"]))
    except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError) as error:
        raise FileFormatError(f"{path}: {MANIFEST} is not a manifest of shards ({error}); write them again") from None
    if len({part.file for part in shards.parts}) < len(shards.parts):
        raise FileFormatError(f"{path}: {MANIFEST} names a part twice; write the shards again")
    for part in shards.parts:
        file = folder / part.file
        if not file.is_file() or file.stat().st_size != part.bytes:
            raise FileFormatError(f"{path}: {part.file} is missing or truncated; write the shards again")
        check_path(file)  # a link may lead out of the folder
    return shards


@contextmanager
def new_shards_folder(out: Path | str) -> Iterator[Path]:
    """Yield a folder to write shards into; it becomes `out` when the block succeeds and is removed otherwise.

    Raises:
        PathError: `out` exists or cannot be created.
        RunError: The disk is full or refuses the name.
    """
    check_free(out)
    target = expand(out).resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(f"{out}: cannot be created ({error_reason(error)}); give another folder") from None
    try:
        with atomic_folder(target) as draft:
            yield draft
    except OSError as error:
        raise RunError(f"{out}: the shards could not be written ({error_reason(error)}); nothing was saved") from None


def write_part(folder: Path | str, number: int, table: pyarrow.Table) -> Shard:
    """Write the part at a position atomically; an existing one is replaced.

    Args:
        folder: Folder of the shards.
        number: Position of the part, from 0.
        table: Rows in plan order with the columns row, group (from 0 within the part), query and document.

    Raises:
        RunError: The disk is full.
    """
    import pyarrow
    import pyarrow.parquet

    path = Path(folder) / f"part-{number:05d}.parquet"
    with _disk_errors(path.name), atomic_path(path) as draft:
        pyarrow.parquet.write_table(table, draft, compression="zstd", row_group_size=READ_ROWS)
    groups = table["group"]
    return Shard(path.name, table.num_rows, groups[-1].as_py() + 1 if table.num_rows else 0, path.stat().st_size)


def write_manifest(folder: Path | str, parts: Sequence[Shard], columns: dict[str, str], about: dict[str, Any]) -> None:
    """Write the manifest, the last file of the folder.

    Raises:
        RunError: The disk is full.
    """
    manifest = {"format": FORMAT, "columns": columns, "about": about, "parts": [asdict(part) for part in parts]}
    with _disk_errors(MANIFEST):
        atomic_write(Path(folder) / MANIFEST, json.dumps(manifest, indent=1))


def check_free(out: Path | str) -> None:
    """Raise PathError when `out` exists and is not an empty folder."""
    target = expand(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PathError(f"{out}: exists already; give a new folder for the shards, or remove it first")


@contextmanager
def _disk_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{name} could not be written ({error_reason(error)}); make room, or choose a folder on another disk"
        ) from None
