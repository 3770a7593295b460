"""A folder of shards: pairs in the order in which training meets them, as Parquet parts that are read one by one.

The folder gets its name only when all parts and, last, `manifest.json` are written, so that what a full disk or a
stopped job leaves behind is never taken for whole.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsc_core.data.places import check_path
from bsc_core.errors import FileFormatError, PathError, RunError

if TYPE_CHECKING:
    import pyarrow

FORMAT = "bsc-shards-1"
MANIFEST = "manifest.json"
READ_ROWS = 16_384

# M rows of the plan


@dataclass(frozen=True)
class Part:
    """One Parquet file of a folder of shards: its name, its rows, the groups it holds, and its size in bytes."""

    file: str
    rows: int
    groups: int
    bytes: int


@dataclass(frozen=True)
class Shards:
    """A folder of shards that is whole.

    columns: the column of each role, as in `data.columns`. about: what made the plan, such as strategy, seed and epoch.
    """

    folder: Path
    parts: tuple[Part, ...]
    columns: dict[str, str]
    about: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def groups(self) -> int:
        """Groups in all parts."""
        return sum(part.groups for part in self.parts)

    def batches(self, columns: Sequence[str] | None = None, rows: int = READ_ROWS) -> Iterator[pyarrow.RecordBatch]:
        """The rows in plan order, at most `rows` at a time: `columns`, or all of them.

        Column `row` is the number of the row in the data, `group` the number of its group, which counts through all
        parts. One piece of one part is held at a time. Raises FileFormatError for a part that cannot be read.
        """
        import pyarrow
        import pyarrow.parquet

        first_group = 0
        for part in self.parts:
            path = self.folder / part.file
            try:
                with pyarrow.parquet.ParquetFile(path) as file:
                    for batch in file.iter_batches(rows, columns=columns):
                        yield _with_groups_from(batch, first_group)
            except (pyarrow.ArrowException, OSError) as error:
                raise FileFormatError(f"{path}: the shard cannot be read ({_reason(error)}); write it again") from None
            first_group += part.groups


def _with_groups_from(batch: pyarrow.RecordBatch, first: int) -> pyarrow.RecordBatch:
    import pyarrow
    import pyarrow.compute

    place = batch.schema.get_field_index("group")
    if place < 0 or not first:
        return batch
    groups = pyarrow.compute.add(batch.column(place), pyarrow.scalar(first, pyarrow.int64()))
    return batch.set_column(place, "group", groups)


def is_shards(path: Path | str) -> bool:
    """Whether a path is a folder whose parts are named as those of shards, whole or not."""
    folder = Path(path).expanduser()
    return folder.is_dir() and ((folder / MANIFEST).is_file() or any(folder.glob("part-*.parquet")))


def open_shards(path: Path | str) -> Shards:
    """The folder of shards, checked to be whole.

    Raises PathError when there is no such folder, FileFormatError when it has no manifest, or a part is missing or has
    another size than when it was written.
    """
    folder = check_path(path)
    if not folder.is_dir():
        raise PathError(f"{path}: this is no folder; give the folder that `bsc shard` wrote")
    if not (folder / MANIFEST).is_file():
        raise FileFormatError(f"{path}: has no {MANIFEST}, so these shards were not finished; write them again")
    try:
        told = json.loads((folder / MANIFEST).read_bytes())
        if told.pop("format") != FORMAT:
            raise ValueError("it is of another format")
        parts = tuple(Part(**part) for part in told["parts"])
        shards = Shards(folder, parts, dict(told["columns"]), dict(told["about"]))
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise FileFormatError(f"{path}: {MANIFEST} is no manifest of shards ({error}); write them again") from None
    for part in shards.parts:
        file = folder / part.file
        if not file.is_file() or file.stat().st_size != part.bytes:
            raise FileFormatError(f"{path}: {part.file} is missing or was cut short; write the shards again")
    return shards


@contextmanager
def new_folder(out: Path | str) -> Iterator[Path]:
    """A folder beside `out` to write shards into, which becomes `out` when the block ends well and else is removed.

    Raises PathError when `out` is there already or cannot be made, RunError when the disk refuses its name.
    """
    check_new(out)
    target = Path(out).expanduser().resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.unfinished")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise PathError(f"{out}: cannot be made ({error.strerror or error}); give a folder that can") from None
    try:
        yield draft
        if target.is_dir():
            target.rmdir()
        draft.rename(target)
    except OSError as error:
        raise RunError(f"{out}: the shards could not be written ({error.strerror or error}); nothing is kept") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_part(folder: Path | str, number: int, table: pyarrow.Table) -> Part:
    """Write one part, whole or not at all; writing it again replaces it.

    table: rows in plan order with the columns row, group (from 0 within the part), query and document. Raises RunError
    when the disk refuses it, as a full one does.
    """
    import pyarrow
    import pyarrow.parquet

    path = Path(folder) / f"part-{number:05d}.parquet"
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        pyarrow.parquet.write_table(table, draft, compression="zstd", row_group_size=READ_ROWS)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        size = draft.stat().st_size
        draft.replace(path)
    except OSError as error:
        raise RunError(
            f"{path.name} could not be written ({_reason(error)}); make room, or choose a folder on another disk"
        ) from None
    finally:
        with suppress(OSError):
            draft.unlink()
    groups = table["group"]
    return Part(path.name, table.num_rows, groups[-1].as_py() + 1 if table.num_rows else 0, size)


def write_manifest(folder: Path | str, parts: Sequence[Part], columns: dict[str, str], about: dict[str, Any]) -> None:
    """Say what the folder holds: the last file that is written. Raises RunError when the disk refuses it."""
    path = Path(folder) / MANIFEST
    told = {"format": FORMAT, "columns": columns, "about": about, "parts": [asdict(part) for part in parts]}
    try:
        with path.open("w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise RunError(
            f"{MANIFEST} could not be written ({_reason(error)}); make room, or choose a folder on another disk"
        ) from None


def check_new(out: Path | str) -> None:
    """Raise PathError when shards cannot be written to `out` because something is there."""
    target = Path(out).expanduser()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PathError(f"{out}: is there already; give a new folder for the shards, or remove it first")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:  # Arrow puts its own words around those of the system
        return os.strerror(error.errno)
    return str(error).splitlines()[0] if str(error) else type(error).__name__
