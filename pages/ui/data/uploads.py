"""Uploaded datasets: their files in the uploads folder, and a `dataset.json` with how they are read."""

import hashlib
import hmac
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bsc_core.config import DataConfig, RunConfig, validation_message
from bsc_core.data.io.sources import is_hub_id
from bsc_core.data.io.tables import read_chunks
from bsc_core.errors import BscError, ConfigError, FileFormatError, InputError, PathError
from bsc_core.files import MAX_BYTES, as_json, atomic_write, read_regular
from bsc_core.paths import check_path
from pages.ui.components import data_cache, users

SUFFIXES = ("csv", "tsv", "jsonl", "parquet", "gz")
MAX_MEBIBYTES = 512  # of an uncompressed file that a page reads
CELL_CHECK_ROWS = 4096  # rows with 1,000 columns need 100 MB
DIGITS = 16  # of the digest in the name of a folder; with 6, a user found other content with the same name in 40 s
COMPRESSION = {".gz": 4, ".parquet": 4}  # bytes in memory per byte of the file


def save_file(name: str, content: bytes) -> Path:
    """Save an uploaded file in its folder, named after the file and its content, and return its path.

    The same file uploaded twice has one path.

    Raises:
        FileFormatError: The file is empty.
        InputError: The user may not upload it, or the folder belongs to another user.
    """
    if not content:
        raise FileFormatError(f"{name}: the file is empty; upload one with a header and at least one row")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(name.replace("\0", "")).name).strip("._")[-80:] or "pairs.csv"
    folder = data_cache.run_store().uploads_folder / f"{_stem(safe)}-{_digest(content)}"
    path = folder / safe
    if not path.exists():
        check_content(safe, content)
    with users.quota_lock():
        is_new = not path.exists()
        if is_new:
            users.check_upload(len(content))
        users.set_dataset_owner(folder)  # also of an existing file: other content can have the same name of the folder
        if is_new:
            atomic_write(path, content)
            users.record("upload", folder.name, file=safe, bytes=len(content))
    return path


def check_content(name: str, content: bytes) -> None:
    """Check the size of an uploaded file, its rows and its columns, against the quota of the user.

    Raises:
        InputError: The user may not upload it.
    """
    users.check_upload(len(content))
    user, rows, width = users.current_user(), 0, 1
    if user.is_owner:
        return
    limit = user.quota.upload_cells
    with tempfile.TemporaryDirectory(dir=data_cache.run_store().root) as folder, suppress(BscError):
        path = Path(folder) / f"file{''.join(Path(name).suffixes[-2:]).lower()}"
        path.write_bytes(content)
        for table in read_chunks(path, rows=CELL_CHECK_ROWS):  # an error is reported where the file is read
            rows += len(table) + len(table.rejected)
            width = max(width, len(table.names) + len(table.not_read))  # later JSON lines can have further columns
            if rows * width > limit:
                break
    if rows * width > limit:
        raise InputError(
            f"{name}: the file has more than {limit:,} cells (rows times columns); remove columns, divide the file, or "
            "ask the owner of this app"
        )


def _digest(content: bytes) -> str:
    """Return what distinguishes the folder of a content from those of other contents and of other users."""
    user = users.current_user()
    hashed = hashlib.sha256(content) if user.is_owner else hmac.new(user.name.encode(), content, hashlib.sha256)
    return hashed.hexdigest()[:DIGITS]


def check_source(source: str) -> str:
    """Return a Hub id, or the path of a file or folder after checking that it is readable and not too large.

    Raises:
        PathError: The path is missing or may not be read.
        InputError: The user may not read it, or it has too many rows for a page.
    """
    source = source.strip()
    users.check_source(source)
    if is_hub_id(source):
        return source
    path = _existing_path(source)
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    mebibytes = sum(file.stat().st_size * COMPRESSION.get(file.suffix, 1) for file in files) / 2**20
    if mebibytes > MAX_MEBIBYTES:
        raise InputError(
            f"{path.name} has about {mebibytes:,.0f} MiB of rows and a page reads up to {MAX_MEBIBYTES} MiB; "
            "audit the file with `bsc audit`, import a part of it here, or train with `bsc train` from a config file"
        )
    return str(path)


def _existing_path(source: str) -> Path:
    """Return the path as `check_path` does; in an app with one user, the error says if a path elsewhere is missing."""
    try:
        return check_path(source)
    except PathError:
        try:
            is_missing = not users.is_shared() and not Path(source).expanduser().exists()
        except (OSError, RuntimeError, ValueError):  # no valid path
            is_missing = False
        if not is_missing:
            raise
        raise PathError(f"{source}: there is no such file or folder; check its spelling and its folder") from None


def folder_for(path: Path | str, *others: str) -> Path:
    """Return the folder of a dataset whose files are elsewhere.

    Args:
        path: File, folder or Hub id of the training pairs.
        *others: What else identifies the dataset, such as its settings.
    """
    name = _stem(str(path).rstrip("/").rpartition("/")[2])
    digest = _digest("\n".join([str(path), *others]).encode())
    return data_cache.run_store().uploads_folder / f"{name}-{digest}"


def _stem(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.split(".")[0].lower()).strip("-")[:32] or "dataset"


def validate(values: dict[str, Any]) -> DataConfig:
    """Return the settings as a config.

    Raises:
        ConfigError: The settings are invalid.
    """
    try:
        config = DataConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(validation_message(error)) from None
    users.check_encoders(config)
    return config


def register(folder: Path, label: str, data: DataConfig) -> str:
    """Write how a dataset is read, so that the context bar offers it, and return its key.

    Decisions about false negatives that belong to another user are copied, or left out if the user may not read them.
    Raises InputError if the dataset belongs to another user, or the user may not read its files.
    """
    check_files(data)
    with users.quota_lock():
        users.set_dataset_owner(folder)
    if data.false_negatives and not data_cache.may_change_decisions(data.false_negatives):
        copy, source = data_cache.run_store().false_negatives_file(folder.name), Path(data.false_negatives)
        if source.is_file() and not copy.exists() and _may_read_decisions(source):
            atomic_write(copy, read_regular(source, MAX_BYTES))
        data = data.model_copy(update={"false_negatives": str(copy)})
    atomic_write(folder / "dataset.json", as_json({"label": label, "data": data.model_dump(mode="json")}, indent=1))
    return folder.name


def _may_read_decisions(path: Path) -> bool:
    """Whether a file of decisions is that of a dataset, or the copy of a run, that the user sees."""
    store, folder = data_cache.run_store(), path.parent.parent
    with suppress(InputError):
        check_decisions(str(path))
        return True
    with suppress(InputError):
        return store.get(folder.name).folder.resolve() == folder.resolve() and ".." not in path.parts
    return False


def check_config(config: RunConfig) -> None:
    """Check that the user may read the files and decisions of a run and load its encoders.

    Raises:
        InputError: The user may not read or load one of them.
        RunNotFoundError: The user may not see the run of an encoder.
    """
    check_files(config.data)
    check_decisions(config.data.false_negatives)
    users.check_encoders(config)


def check_files(data: DataConfig) -> None:
    """Check that each file is in a dataset that the user sees, the sample data or the Hub, or was uploaded by them.

    Raises:
        InputError: The user may not read a file.
    """
    if users.current_user().is_owner:
        return
    seen = {path for choice in data_cache.datasets().values() for path in choice.data.files}
    for path in data.files:
        if is_hub_id(path):
            users.check_source(path)
        elif path not in seen and not data_cache.may_read_file(path):
            raise InputError(f"{Path(path).name} is not shared with you; ask the owner of its dataset to share that")


def check_decisions(path: str | None) -> None:
    """Check that a file of decisions belongs to the user or to a dataset that they see.

    Raises:
        InputError: The user may not read it.
    """
    if path is None or users.current_user().is_owner or data_cache.may_change_decisions(path):
        return
    if path not in {choice.data.false_negatives for choice in data_cache.datasets().values()}:
        raise InputError(f"{Path(path).name} is not shared with you; ask the owner of its dataset to share that")


def save_filters(key: str, filters: tuple[str, ...]) -> None:
    """Store the filters of a dataset, for all pages and later runs."""
    if key in data_cache.SAMPLES:
        atomic_write(data_cache.settings_file(key), as_json({"filters": list(filters)}, indent=1))
        return
    choice = data_cache.datasets()[key]
    if not choice.may_change:
        raise InputError("only the owner of this dataset may change its filters; import it again to change your copy")
    folder = data_cache.run_store().uploads_folder / key
    register(folder, choice.label, validate({**choice.data.model_dump(), "filters": filters}))
