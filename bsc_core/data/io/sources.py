"""Data sources: files, folders and datasets on the hub, with their format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bsc_core.config.reading import HUB
from bsc_core.data.io.saved_dataset import is_saved_dataset
from bsc_core.data.io.shards import is_shards
from bsc_core.errors import FileFormatError, PathError
from bsc_core.paths import check_path

Format = Literal["csv", "tsv", "jsonl", "parquet", "shards", "saved", "hub"]
FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
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


@dataclass(frozen=True)
class Source:
    """A file, a folder or a dataset on the hub that can be read.

    Attributes:
        name: The path as given, for messages.
        format: "saved" is a folder that `datasets` saved, "hub" a dataset on the hub.
        path: The resolved file or folder; meaningless for "hub".
        gzipped: Whether a text file is compressed.
    """

    name: str
    format: Format
    path: Path
    gzipped: bool = False


def is_hub_id(path: Path | str) -> bool:
    """Return whether a path names a dataset on the hub."""
    return str(path).startswith(HUB)


def open_source(path: Path | str | Source) -> Source:
    """Inspect a path: whether it may be read, and its format.

    Raises:
        PathError: It is missing, outside the folders that may be read, or neither a file nor a known kind of folder.
        FileFormatError: The name has no known ending.
    """
    if isinstance(path, Source):
        return path
    name = str(path)
    if is_hub_id(name):
        return Source(name, "hub", Path(name))
    resolved = check_path(path)
    if is_saved_dataset(resolved):
        return Source(name, "saved", resolved)
    if is_shards(resolved):
        return Source(name, "shards", resolved)
    if not resolved.is_file():
        raise PathError(f"{path}: not a regular file; give the path of a file ({ACCEPTED})")
    return Source(name, _format_of(name), resolved, name.lower().endswith(".gz"))


def check_signature(raw: bytes, name: str, kind: str) -> None:
    """Raise FileFormatError when the bytes (for Parquet with the file's end) are of another format than `kind`."""
    for signature, what in SIGNATURES.items():
        is_parquet = what == "a Parquet file"
        if raw.startswith(signature) and not (is_parquet and kind == "parquet"):
            fix = "give it a name that ends in .parquet" if is_parquet else f"export the table as {ACCEPTED}"
            raise FileFormatError(f"{name}: contains {what}, not {kind.upper()}; {fix}")
    if kind == "parquet" and not (raw.startswith(b"PAR1") and raw.endswith(b"PAR1")):
        raise FileFormatError(
            f"{name}: not a complete Parquet file; write it again, or give it the ending of its format ({ACCEPTED})"
        )


def check_text_start(text: str, name: str, kind: str) -> None:
    """Raise FileFormatError when the first characters are HTML, XML, or JSON of another form than `kind`."""
    text = text.lstrip().lower()
    fault = ""
    if text.startswith(("<!doctype", "<html", "<?xml")):
        fault = f"an HTML or XML page, not {kind.upper()}; download or export the table itself"
    elif kind != "jsonl" and text.startswith(("{", "[")):
        fault = f"JSON, not {kind.upper()}; write one object per line and name the file .jsonl"
    elif kind == "jsonl" and text.startswith("["):
        fault = "one JSON array; write one object per line, without brackets and commas around them"
    if fault:
        raise FileFormatError(f"{name}: contains {fault}")


def _format_of(name: str) -> Format:
    path = Path(name)
    bare = Path(path.name.lower().removesuffix(".gz"))
    known = FORMATS.get(bare.suffix)
    if known is None or (known == "parquet" and name.lower().endswith(".gz")):
        ending = f"the ending {path.suffix} is not that of a known format" if path.suffix else "the name has no ending"
        raise FileFormatError(f"{name}: {ending}; save the table as {ACCEPTED}")
    return known
