"""From a path to its decoded text: which format the name says, whether the bytes agree, whether they are UTF-8."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from bsc_core.data.places import check_path
from bsc_core.errors import FileFormatError, PathError

KINDS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
ACCEPTED = ".csv, .tsv or .jsonl (each also .gz), or .parquet"
SIGNATURES = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x1f\x8b": "gzip data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"(\xb5/\xfd": "zstandard data",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF",
    b"\x93NUMPY": "a NumPy array",
    b"\x89PNG": "a picture",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


def file_kind(path: Path) -> str:
    """csv, tsv, jsonl or parquet, by the file's name. Raises FileFormatError for any other name."""
    name = path.name.lower()
    bare = Path(name.removesuffix(".gz"))
    kind = KINDS.get(bare.suffix)
    if kind is None or (kind == "parquet" and name.endswith(".gz")):
        raise FileFormatError(
            f"{path}: a name ending in {path.suffix or 'nothing'} does not tell the format; save it as {ACCEPTED}"
        )
    return kind


def read_bytes(path: Path | str) -> bytes:
    """The bytes of an allowed file, unpacked when its name ends in .gz.

    Raises PathError when it may not or cannot be read, FileFormatError when it is empty or no whole gzip file.
    """
    resolved = check_path(path)
    if not resolved.is_file():
        raise PathError(f"{path}: this is no file but a folder or device; give the path of a file ({ACCEPTED})")
    try:
        raw = resolved.read_bytes()
        if Path(path).name.lower().endswith(".gz") and raw:
            raw = gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise FileFormatError(
            f"{path}: not a whole gzip file, though its name ends in .gz; compress it again or rename it"
        ) from None
    except OSError as error:
        raise PathError(
            f"{path}: cannot be read ({error.strerror or error}); give a file that this user may read"
        ) from None
    if not raw.strip():
        raise FileFormatError(f"{path}: the file is empty; it needs a header and at least one row")
    return raw


def refuse_other_format(raw: bytes, path: Path | str, kind: str) -> None:
    """Raise FileFormatError when the first bytes belong to another format than the name says."""
    for signature, what in SIGNATURES.items():
        if raw.startswith(signature) and what != "a Parquet file":
            raise FileFormatError(f"{path}: holds {what}, not {kind.upper()}; export the table as {ACCEPTED}")
    if raw.startswith(b"PAR1") and kind != "parquet":
        raise FileFormatError(f"{path}: holds a Parquet file, not {kind.upper()}; give it a name that ends in .parquet")
    if kind == "parquet" and not (raw.startswith(b"PAR1") and raw.endswith(b"PAR1")):
        raise FileFormatError(
            f"{path}: not a whole Parquet file; write it again, or give it the ending of its format ({ACCEPTED})"
        )


def decode(raw: bytes, path: Path | str, kind: str) -> str:
    """The text of a CSV, TSV or JSONL file.

    Raises FileFormatError for another format, and for the first line that is not UTF-8.
    """
    refuse_other_format(raw, path, kind)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{path}: line {line} (byte {error.start:,}) is not UTF-8; save the file as UTF-8"
        ) from None
    refuse_other_start(text[:200], path, kind)
    return text


def refuse_other_start(start: str, path: Path | str, kind: str) -> None:
    """Raise FileFormatError when the first characters are those of a page, or of JSON in another form."""
    start = start.lstrip().lower()
    if start.startswith(("<!doctype", "<html", "<?xml")):
        raise FileFormatError(
            f"{path}: holds an HTML or XML page, not {kind.upper()}; download or export the table itself"
        )
    if kind != "jsonl" and start.startswith(("{", "[")):
        raise FileFormatError(
            f"{path}: holds JSON, not {kind.upper()}; write one object a line and name the file .jsonl"
        )
    if kind == "jsonl" and start.startswith("["):
        raise FileFormatError(
            f"{path}: holds one JSON array; write one object a line, without brackets and commas around them"
        )
