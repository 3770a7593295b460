"""Conversion of any file of pairs to a Parquet file with standard column names, written atomically."""

from pathlib import Path

from bsc_core.config import Columns
from bsc_core.data.io.read_pairs import ChunkedPairs
from bsc_core.data.io.tables import OnProgress
from bsc_core.errors import PathError, RunError
from bsc_core.files import atomic_path, error_reason
from bsc_core.paths import expand

SIDES = ("query", "document", "negative")
ROLES = ("query", "document", "label", "query_id", "document_id", "split", "negative", "class_label")


def convert_file(
    path: Path | str,
    out: Path | str,
    columns: Columns | None = None,
    *,
    limits: tuple[float, float] = (0.0, 1.0),
    on_progress: OnProgress = lambda progress: None,
) -> ChunkedPairs:
    """Write the valid rows of a file of pairs to a Parquet file, chunk by chunk, and return the counts.

    The mapped columns are named by their roles: query, document, label (scaled to [0, 1]), query_id, document_id,
    split, negative, class_label. `columns`, `limits` and `on_progress` are those of `ChunkedPairs`. Raises the
    errors of `read_pairs` and those below; nothing is written then.

    Raises:
        PathError: `out` exists, does not end in .parquet, or its folder is missing.
        RunError: The disk is full.
    """
    target = _new_file(out)
    pairs = ChunkedPairs(path, columns, limits=limits, on_progress=on_progress)
    try:
        with atomic_path(target) as draft:
            _write(draft, pairs)
    except OSError as error:
        raise RunError(
            f"{target}: could not be written ({error_reason(error)}), and nothing was saved; make room, or "
            "choose another disk"
        ) from None
    return pairs


def _write(draft: Path, pairs: ChunkedPairs) -> None:
    import pyarrow
    import pyarrow.parquet

    mapped = [role for role in ROLES if getattr(pairs.roles, role) is not None]
    schema = pyarrow.schema([(role, pyarrow.float32() if role == "label" else pyarrow.string()) for role in mapped])
    with pyarrow.parquet.ParquetWriter(draft, schema, compression="zstd") as writer:
        for chunk in pairs:
            if len(chunk):
                values = {**dict(zip(SIDES, chunk.sides, strict=False)), **chunk.cells, "label": chunk.labels}
                writer.write_table(pyarrow.table({role: values[role] for role in mapped}, schema=schema))


def _new_file(out: Path | str) -> Path:
    target = expand(out)
    if target.suffix.lower() != ".parquet":
        raise PathError(f"{out}: not a Parquet file; give a name that ends in .parquet")
    if target.exists():
        raise PathError(f"{out}: exists already; give a new name, or remove it first")
    if not target.parent.is_dir():
        raise PathError(f"{out}: the folder {target.parent} is missing; create it first")
    return target
