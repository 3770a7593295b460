"""Atomic writes of files and folders, locks, and values as JSON."""

import csv
import errno
import io
import json
import math
import os
import secrets
import shutil
import stat
import struct
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout

_PRIVATE = 0o600  # mode of the file of a lock
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
FileStamp = tuple[int, int, int]
MAX_BYTES = 512 * 2**20  # of the metrics of a run
MAX_DOCUMENT_BYTES = 2**20  # of a JSON document, whose errors need up to 500 times its size of memory
MAX_SAFETENSORS_HEADER_BYTES = 8 * 2**20  # of a safetensors file, which needs up to 15 times its size
MAX_LARGE_DOCUMENT_BYTES = 16 * 2**20  # of one that is read without a schema, which needs up to 35 times its size
MAX_ENTRIES_BYTES = 2**20  # of the list of an archive's entries, of which 20,000 use 350 times as much memory
_END, _END_64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q")  # records at the end of a ZIP archive
_END_64_PLACE = struct.Struct("<4sLQL")  # the record between them, in an archive of more than 4 GiB
MAX_RATIO, RATIO_ABOVE = 50, 4 * 2**20  # of the arrays in an .npz file to its size, where they have more bytes


def as_json(value: Any, indent: int | None = None) -> bytes:
    """Return the value as UTF-8 JSON; see `to_jsonable`."""
    return json.dumps(to_jsonable(value), indent=indent, allow_nan=False, ensure_ascii=False).encode()


def to_jsonable(value: Any) -> Any:
    """Convert a value to JSON types: NumPy values to numbers and lists, non-finite numbers to None, paths to text."""
    if isinstance(value, (np.generic, np.ndarray)):
        return to_jsonable(value.tolist())
    if isinstance(value, dict):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def rows_as_tsv(rows: Iterable[Iterable[object]]) -> str:
    """Return the rows as tab-separated values, in which all cells of a row with a line end are quoted."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n")
    quoting = csv.writer(buffer, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        cells = list(row)
        (quoting if any("\r" in str(cell) or "\n" in str(cell) for cell in cells) else writer).writerow(cells)
    return buffer.getvalue()


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries where the system supports it, to the disk."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_write(path: Path, content: str | bytes | Callable[[Any], object]) -> None:
    """Write a file so that readers never see it incomplete; an existing one is replaced, parent folders are created.

    Args:
        path: The file to write.
        content: Text (written as UTF-8), bytes, or a function that writes to the binary file it is given.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as draft, draft.open("xb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)


def no_link(path: str, flags: int) -> int:
    """Open a file as `open` does, but not one that a link leads to; the argument `opener` of `open`."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def file_lock(path: Path | str, timeout: float = -1, **options: Any) -> FileLock:
    """Return a lock on a file that no other system user can open, since reading is enough to hold such a lock.

    Args:
        path: The file; it is created with mode 0600, and gets this mode if it exists.
        timeout: Seconds to wait for the lock; -1: without limit. Locks with a limit are held for short times only, so
            whether they are free is checked more often.
        **options: Other options of `FileLock`.
    """
    interval = 0.005 if timeout >= 0 else 0.05  # seconds
    return FileLock(path, timeout, mode=_PRIVATE, poll_interval=interval, on_acquired=_make_private, **options)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file; False without the file."""
    if not path.is_file():
        return False
    try:
        with file_lock(path, timeout=0):
            return False
    except Timeout:
        return True


def _make_private(descriptor: int) -> None:
    if sys.platform != "win32":
        with suppress(OSError):  # such as the file of another user, or a file system without modes
            os.fchmod(descriptor, _PRIVATE)


def has_locks(path: Path) -> bool:
    """Return whether the file system of a file has file locks, which Lustre and NFS may lack; the file is created.

    Another error, such as that of a full disk, is left to the caller's next access.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        with open(path, "ab", opener=no_link) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    return True


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write named arrays to an .npz file, atomically."""
    atomic_write(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]  # the stub's allow_pickle


def read_regular(path: Path, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: It does not exist or may not be read.
        ValueError: It is a folder, a pipe, or a device, which may block or never end; or it is too large.
    """
    check_regular(path, limit=limit)
    return path.read_bytes()


def file_stamp(path: Path) -> FileStamp:
    """Return what changes when a file is replaced: its number, time of change in nanoseconds, and size in bytes."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def check_regular(path: Path, start_byte: int = 0, limit: int = MAX_BYTES) -> None:
    """Check that a path is a regular file of a size that can be read from a byte on. Raises as `read_regular`."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError("not a regular file")
    if facts.st_size - start_byte > limit:
        raise ValueError(f"it has more than {limit // 2**20} MiB")


def check_safetensors(path: Path) -> None:
    """Check that a safetensors file is a regular file whose header is not far larger than those of models.

    Raises:
        OSError: It does not exist or may not be read.
        ValueError: It is not a regular file, or its header has more than MAX_SAFETENSORS_HEADER_BYTES.
    """
    if not path.is_file():
        raise ValueError("not a regular file")
    with path.open("rb") as file:
        if int.from_bytes(file.read(8), "little") > MAX_SAFETENSORS_HEADER_BYTES:
            raise ValueError(f"its header has more than {MAX_SAFETENSORS_HEADER_BYTES // 2**20} MiB")


def map_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy file, memory-mapped and read-only.

    `np.load` also opens archives, and reads the list of their entries into memory.

    Raises:
        ValueError: The file is damaged, or has another format.
    """
    array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    return array


class _EntriesReader(io.BufferedReader):
    """A file for `zipfile`, which reads the list of an archive's entries at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_ENTRIES_BYTES:
            raise ValueError("it has too many entries")
        return super().read(size)


def archive_entries(path: Path) -> list[zipfile.ZipInfo]:
    """Return the entries of a ZIP archive.

    Raises:
        ValueError: The list of entries has more than MAX_ENTRIES_BYTES, or the file may have a second list.
        zipfile.BadZipFile: The file is not a ZIP archive.
    """
    with _EntriesReader(io.FileIO(path)) as file, zipfile.ZipFile(file) as archive:
        _check_place_of_entries(file)
        return archive.infolist()


def _check_place_of_entries(file: io.BufferedReader) -> None:
    """Raise ValueError unless the list of an archive's entries ends where the records at the end of the file begin.

    `zipfile` reads the list directly before these records, and torch the one at the place that they state.
    """
    end = file.seek(-_END.size, io.SEEK_END)
    signature, *_, size, place, _ = _END.unpack(file.read(_END.size))
    is_one = signature == b"PK\x05\x06"  # without a comment behind the records
    file.seek(place_of_last := max(0, end - _END_64_PLACE.size))
    signature, _, end_64, _ = _END_64_PLACE.unpack(file.read(_END_64_PLACE.size))
    if signature == b"PK\x06\x07":
        end = file.seek(max(0, place_of_last - _END_64.size))
        *_, size, place = _END_64.unpack(file.read(_END_64.size))
        is_one &= end_64 == end
    if not is_one or place + size != end:
        raise ValueError("it may have a second list of entries")


def check_arrays(path: Path, limit: int | None = None) -> None:
    """Check that an .npz file does not hold far more data than its size, and at most `limit` bytes.

    Raises:
        ValueError: The arrays are far larger than the file, or it has too many entries.
        zipfile.BadZipFile: The file is not a ZIP archive.
    """
    size = sum(entry.file_size for entry in archive_entries(path))
    if limit is not None and size > limit:
        raise ValueError(f"its arrays have more than {limit // 2**20} MiB")
    if size > max(RATIO_ABOVE, MAX_RATIO * path.stat().st_size):
        raise ValueError(f"its arrays have more than {MAX_RATIO} times its size")


def error_reason(error: Exception) -> str:
    """Return the system's message for an OSError, else the first line of the error's message or its name."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a hidden path next to `path`; the file written there replaces `path`, or is removed if the block raises."""
    draft = _draft(path)
    try:
        yield draft
        sync(draft)
        draft.replace(path)
        sync(path.parent)  # so that the new name survives a power cut
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a new hidden folder next to `folder`; it replaces `folder`, or is removed if the block raises."""
    draft, previous = _draft(folder), _draft(folder)
    draft.mkdir(parents=True)
    try:
        yield draft
        for path in (*draft.rglob("*"), draft):
            sync(path)
        if folder.exists():
            folder.rename(previous)
        try:
            draft.rename(folder)
        finally:
            if previous.exists() and not folder.exists():
                previous.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(previous, ignore_errors=True)


def folder_bytes(folder: Path) -> int:
    """Return the size of all files of a folder; a file that another process removes meanwhile has none."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(parent, name).lstat().st_size
    return total


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.unfinished")
