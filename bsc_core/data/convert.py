"""Pairs of any accepted file as a Parquet file with plain column names, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsc_core.config import Columns
from bsc_core.data.checked import PLAIN_ROLES, PairPieces, Piece
from bsc_core.data.stream import Say
from bsc_core.errors import PathError, RunError

if TYPE_CHECKING:
    import pyarrow

SIDES = ("query", "document", "negative")


def convert_file(
    path: Path | str,
    out: Path | str,
    columns: Columns | None = None,
    *,
    limits: tuple[float, float] = (0.0, 1.0),
    say: Say = lambda progress: None,
) -> PairPieces:
    """Write the good rows of a file of pairs to the Parquet file `out`, piece by piece. Returns the counts.

    Its columns are named by their roles: query, document, label (scaled to [0, 1]), query_id, document_id, split,
    negative, class_label, those that are mapped. Raises what `read_pairs` raises, PathError when `out` is there already
    or is no place for a Parquet file, and RunError when the disk refuses it, as a full one does; then nothing is kept.
    """
    target = _new_file(out)
    pieces = PairPieces(path, columns, limits=limits, say=say)
    with _draft(target) as draft:
        _write(draft, pieces)
    return pieces


def _write(draft: Path, pieces: PairPieces) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = _schema(pieces.roles)
    with (
        draft.open("wb") as file,
        pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for piece in pieces:
            if len(piece):
                writer.write_table(_table(piece, schema))
        writer.close()
        file.flush()
        os.fsync(file.fileno())


def _schema(roles: Columns) -> pyarrow.Schema:
    import pyarrow

    order = ("query", "document", "label", "query_id", "document_id", "split", "negative", "class_label")
    there = [role for role in order if getattr(roles, role) is not None]
    return pyarrow.schema([(role, pyarrow.float32() if role == "label" else pyarrow.string()) for role in there])


def _table(piece: Piece, schema: pyarrow.Schema) -> pyarrow.Table:
    import pyarrow

    values: dict[str, Any] = dict(zip(SIDES, piece.sides, strict=False))
    values |= {role: piece.cells[role] for role in PLAIN_ROLES if role in piece.cells}
    values |= {} if piece.labels is None else {"label": piece.labels}
    return pyarrow.table({name: values[name] for name in schema.names}, schema=schema)


def _new_file(out: Path | str) -> Path:
    target = Path(out).expanduser()
    if target.suffix.lower() != ".parquet":
        raise PathError(f"{out}: the outcome is a Parquet file; give a name that ends in .parquet")
    if target.exists():
        raise PathError(f"{out}: is there already; give a new name, or remove it first")
    if not target.parent.is_dir():
        raise PathError(f"{out}: there is no folder {target.parent}; make it first")
    return target


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A hidden file beside the target, which takes its name when the block ends well and else is removed."""
    draft = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.unfinished")
    try:
        yield draft
        draft.replace(target)
    except OSError as error:
        raise RunError(
            f"{target}: could not be written ({error.strerror or error}), and nothing of it is kept; make room, or "
            "choose another disk"
        ) from None
    finally:
        with suppress(OSError):
            draft.unlink()
