"""Transfer of runs through storage, for clusters without a shared disk.

`pack` stores the files of a run before its job is submitted, and `unpack` restores them on the node. Afterwards the
node's `Uploader` stores changes of the run's folder and the launcher's `Downloader` fetches them. Files are written
under a temporary name and renamed, and then listed in a manifest. The status is returned instead of written, for the
caller to merge.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from bsc_core.errors import JobError
from bsc_core.files import as_json, atomic_path, atomic_write
from bsc_core.paths import expand
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import parent_run_id

STATUS = "status.json"
STOP = "stop"
LAUNCHER_FILES = frozenset({"config.json", "launch.json", "group.json", "worker.json", "ray.json", STOP})
"""Files that are never copied from the node to the launcher."""
MANIFEST = "manifest.json"
INPUTS = "inputs"
PARENTS = "beside"
PACKAGE = "parcel.json"
_NOT_PACKED = frozenset({"launch.json", "ray.json", "stop"})
_DATA_KEYS = ("train", "dev", "test", "corpus", "mix", "false_negatives")
_PARENT_FILES = ("config.json", "status.json")
_COMPLETION_FILES = ("progress.json", "ended.json", STATUS)  # the first completes a checkpoint, the others a run

Stamp = list[int]  # size in bytes, time of the last change in ns
Files = dict[str, Stamp]


class StorageError(JobError):
    """The storage cannot be reached or refuses; the operation may be repeated."""


@dataclass(frozen=True)
class Storage:
    """A folder at a URL that fsspec supports, such as s3://bucket/runs or file:///shared/runs.

    Every method that reads or writes raises StorageError if the storage does not answer.
    """

    url: str

    def at(self, *names: str) -> Storage:
        """Return a folder inside this one."""
        return Storage("/".join([self.url.rstrip("/"), *names]))

    def put(self, source: Path, name: str) -> None:
        """Store a file atomically.

        Raises:
            FileNotFoundError: The file no longer exists.
        """
        if not source.is_file():
            raise FileNotFoundError(source)
        self._write_atomically(name, lambda system, target: system.put_file(str(source), target))

    def put_bytes(self, content: bytes, name: str) -> None:
        """Store bytes atomically."""
        self._write_atomically(name, lambda system, target: system.pipe_file(target, content))

    def get(self, name: str, target: Path) -> None:
        """Download a file to a path, atomically.

        Raises:
            FileNotFoundError: The storage has no such file.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(target) as draft:
            self._call(lambda system, folder: system.get_file(f"{folder}/{name}", str(draft)))

    def get_bytes(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            content: bytes = self._call(lambda system, folder: system.cat_file(f"{folder}/{name}"))
        except FileNotFoundError:
            return None
        return content

    def has(self, name: str) -> bool:
        """Return whether a file or folder exists."""
        return bool(self._call(lambda system, folder: system.exists(f"{folder}/{name}")))

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(FileNotFoundError):
            self._call(lambda system, folder: system.rm_file(f"{folder}/{name}"))

    def _write_atomically(self, name: str, write: Callable[[Any, str], Any]) -> None:
        def write_and_rename(system: Any, folder: str) -> None:
            target, draft = f"{folder}/{name}", f"{folder}/{name}.{secrets.token_hex(4)}.part"
            system.makedirs(target.rpartition("/")[0], exist_ok=True)
            write(system, draft)
            system.mv(draft, target)

        try:
            self._call(write_and_rename)
        except FileNotFoundError as error:  # such as a missing bucket
            raise StorageError(f"storage {self.url}: {name} cannot be stored ({error}); check the address") from None

    def _call(self, use: Callable[[Any, str], Any]) -> Any:
        import fsspec

        try:
            system, folder = fsspec.core.url_to_fs(self.url)
            system.invalidate_cache()  # another machine writes too
            return use(system, folder)
        except FileNotFoundError:
            raise
        except ImportError as error:
            raise StorageError(
                f"storage {self.url}: {error}; install that package, or use another kind of URL"
            ) from None
        except Exception as error:  # each file system has its own errors
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise StorageError(f"storage {self.url} does not answer or refuses ({reason}); check it") from error


@dataclass
class Uploader:
    """Uploads the changes of a local folder, except excluded files; `uploaded` has the stamps of what is stored."""

    folder: Path
    storage: Storage
    exclude: frozenset[str] = LAUNCHER_FILES
    uploaded: Files = field(default_factory=dict)

    def push(self) -> None:
        """Store the changes since the last push, update the manifest, and remove deleted files."""
        status = self._status()  # first: the files of a run that it calls ended are then in the list
        current = folder_stamps(self.folder, self.exclude | {STATUS})
        if status is not None:
            current[STATUS], content = status
        for name in transfer_order(current):
            if self.uploaded.get(name) != current[name]:
                try:
                    if name == STATUS:
                        self.storage.put_bytes(content, f"run/{name}")
                    else:
                        self.storage.put(self.folder / name, f"run/{name}")
                except (FileNotFoundError, StorageError):
                    if (self.folder / name).exists():
                        raise
                    continue  # a checkpoint that has been removed since
                self.uploaded[name] = current[name]
        deleted = [name for name in reversed(transfer_order(self.uploaded)) if name not in current]
        for name in deleted:
            del self.uploaded[name]
        self.storage.put_bytes(as_json({"files": self.uploaded, "folder": str(self.folder)}), MANIFEST)
        for name in deleted:
            self.storage.remove(f"run/{name}")

    def _status(self) -> tuple[Stamp, bytes] | None:
        """Return the stamp and the content of the status; None without one, or if it is excluded."""
        if STATUS in self.exclude or not (self.folder / STATUS).is_file():
            return None
        with (self.folder / STATUS).open("rb") as file:
            facts = os.fstat(file.fileno())
            return [facts.st_size, facts.st_mtime_ns], file.read()


@dataclass
class Downloader:
    """Downloads what an `Uploader` stored; `downloaded` has the stamps of the files that are up to date here."""

    folder: Path
    storage: Storage
    downloaded: Files = field(default_factory=dict)

    def pull(self) -> dict[str, Any] | None:
        """Download the changes since the last pull and remove deleted files; files that exist only here stay.

        Returns:
            The stored status, or None if it did not change.

        Raises:
            StorageError: The storage does not answer, or the manifest is damaged.
        """
        manifest = self._manifest()
        files = _without_launcher_files(manifest["files"])
        for name in reversed(transfer_order(self.downloaded)):
            if name not in files:
                (self.folder / name).unlink(missing_ok=True)
                _remove_empty(self.folder, (self.folder / name).parent)
                del self.downloaded[name]
        status = None
        for name in transfer_order(files):
            if self.downloaded.get(name) == files[name]:
                continue
            if name == STATUS:
                content = self.storage.get_bytes(f"run/{STATUS}")
                status = None if content is None else _parse(content, STATUS)
            else:
                self._download(name, manifest["folder"])
            self.downloaded[name] = files[name]
        return status

    def _manifest(self) -> dict[str, Any]:
        content = self.storage.get_bytes(MANIFEST)
        if content is None:
            return {"files": self.downloaded, "folder": ""}
        manifest = _parse(content, MANIFEST)
        if not isinstance(manifest.get("files"), dict) or not isinstance(manifest.get("folder"), str):
            raise StorageError(f"{MANIFEST} in the storage is damaged (it has no files); launch the run again")
        return manifest

    def _download(self, name: str, remote_folder: str) -> None:
        target = _path_inside(self.folder, name)
        try:
            self.storage.get(f"run/{name}", target)
        except FileNotFoundError:  # removed since the manifest was written
            return
        if name == "result.json":  # contains paths of the node
            result = json.loads(target.read_bytes())
            result = _replace_folder(result, str(Path(remote_folder).parent), str(self.folder.parent))
            atomic_write(target, as_json(result, indent=1))


def folder_stamps(folder: Path, exclude: frozenset[str] = frozenset()) -> Files:
    """Return size and time of all files of a folder by relative name, without hidden and excluded files."""
    stamps: Files = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name in exclude or any(part.startswith(".") for part in PurePosixPath(name).parts):
            continue
        with suppress(FileNotFoundError):
            if path.is_file():
                facts = path.stat()
                stamps[name] = [facts.st_size, facts.st_mtime_ns]
    return stamps


def transfer_order(files: Mapping[str, Any]) -> list[str]:
    """Sort names so that the files which complete a checkpoint or a run come last."""
    return sorted(files, key=lambda name: (PurePosixPath(name).name in _COMPLETION_FILES, name == STATUS, name))


def _parse(content: bytes, name: str) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except ValueError as error:
        raise StorageError(f"{name} in the storage is damaged ({error}); launch the run again") from None
    return values if isinstance(values, dict) else {}


def _path_inside(folder: Path, name: str) -> Path:
    target = folder / name
    is_inside = target.is_relative_to(folder) and target.parent.resolve().is_relative_to(folder.resolve())
    if ".." in PurePosixPath(name).parts or not is_inside:
        raise StorageError(f"{name!r} is outside {folder}; the manifest in the storage is not this run's")
    return target


def _remove_empty(root: Path, folder: Path) -> None:
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _replace_folder(value: Any, source: str, target: str) -> Any:
    """Replace one folder by another in all paths of a JSON value."""
    if isinstance(value, dict):
        return {name: _replace_folder(item, source, target) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_folder(item, source, target) for item in value]
    if isinstance(value, str) and value.startswith(f"{source}/"):
        return target + value[len(source) :]
    return value


def pack(run: Run, storage: Storage, shared: Storage, roots: tuple[Path, ...]) -> Files:
    """Store a run's folder, the files that its config names, and the model of the run that it starts from.

    Args:
        run: The run.
        storage: Storage of this run.
        shared: Storage of all runs, with each input file once, under its digest.
        roots: Folders from which files may be sent; empty for any.

    Returns:
        The stamps of the run's files, as stored.

    Raises:
        JobError: A file cannot be read, or the storage does not answer.
    """
    targets, names_of = {}, {}
    for key, path in _input_files(run.config().model_dump(mode="json"), roots):
        target, names = _send(path, shared)
        targets[key], names_of[target] = target, names
    parent = parent_run_id(run.config().encoder.name)
    parent_files = [] if parent is None else _send_parent(RunStore(run.folder.parent).get(parent), storage)
    uploader = Uploader(run.folder, storage, exclude=_NOT_PACKED)
    uploader.push()
    package = {"run": run.id, "places": targets, "files": names_of, "beside": parent_files}
    storage.put_bytes(as_json(package), PACKAGE)
    return _without_launcher_files(uploader.uploaded)


def unpack(storage: Storage, shared: Storage, scratch: Path) -> tuple[Run, Files]:
    """Restore what `pack` stored under a local folder, and set the config's paths to the restored files.

    Returns:
        The run and the stamps of its files, as stored.

    Raises:
        JobError: The storage contains no complete run.
    """
    content, manifest = storage.get_bytes(PACKAGE), storage.get_bytes(MANIFEST)
    if content is None or manifest is None:
        raise JobError(f"storage {storage.url}: contains no run; launch the run again")
    package, files = json.loads(content), json.loads(manifest)["files"]
    run = Run(scratch / "runs" / package["run"])
    for name, (_, changed) in files.items():
        storage.get(f"run/{name}", run.folder / name)
        os.utime(run.folder / name, ns=(changed, changed))
    for name in package["beside"]:
        storage.get(f"{PARENTS}/{name}", run.folder.parent / name)
    for target, names in package["files"].items():
        for name in names:
            shared.get(f"{INPUTS}/{target}{name}", scratch / INPUTS / f"{target}{name}")
    config = json.loads((run.folder / "config.json").read_bytes())
    for key, target in package["places"].items():
        _set_value(config, key, str(scratch / INPUTS / target))
    atomic_write(run.folder / "config.json", as_json(config, indent=1))
    return run, _without_launcher_files(files)


def _without_launcher_files(files: Files) -> Files:
    return {name: stamp for name, stamp in files.items() if name not in LAUNCHER_FILES}


def _input_files(config: dict[str, Any], roots: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    """Yield the config keys whose values are local files or folders, with their paths."""
    for section_key in _DATA_KEYS:
        value = config["data"][section_key]
        for key, name in enumerate(value) if isinstance(value, list) else [("", value)]:
            path = _local_path(name, roots)
            if path is not None:
                yield f"data.{section_key}.{key}".rstrip("."), path
    if (path := _local_path(config["encoder"]["name"], roots)) is not None and path.is_dir():
        yield "encoder.name", path


def _local_path(name: str | None, roots: tuple[Path, ...]) -> Path | None:
    """Return a path that exists here and may be sent, else None; the job reports an invalid path."""
    if not name or "://" in name:
        return None
    path = expand(name).resolve()
    is_allowed = not roots or any(path.is_relative_to(root) for root in roots)
    return path if is_allowed and path.exists() else None


def _send(path: Path, shared: Storage) -> tuple[str, list[str]]:
    """Store a file or folder under its digest unless it is there. Returns its target and the names below it."""
    names = [f"/{name}" for name in sorted(folder_stamps(path))] if path.is_dir() else [""]
    try:
        target = f"{_digest(path, names)}/{path.name}"
        if not shared.has(f"{INPUTS}/{target}.whole"):
            for name in names:
                shared.put(Path(f"{path}{name}"), f"{INPUTS}/{target}{name}")
            shared.put_bytes(b"", f"{INPUTS}/{target}.whole")
    except OSError as error:
        raise JobError(f"{path}: it cannot be sent to the cluster's storage ({error}); check the file") from error
    return target, names


def _send_parent(parent: Run, storage: Storage) -> list[str]:
    """Store the files of the parent run that a run reads. Returns the names."""
    names = [name for name in folder_stamps(parent.folder) if name.startswith("model/") or name in _PARENT_FILES]
    for name in names:
        storage.put(parent.folder / name, f"{PARENTS}/{parent.id}/{name}")
    return [f"{parent.id}/{name}" for name in names]


def _digest(path: Path, names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\0".encode())
        with Path(f"{path}{name}").open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:32]


def _set_value(config: dict[str, Any], key: str, value: str) -> None:
    *path, last = key.split(".")
    section: Any = config
    for name in path:
        section = section[name]
    section[int(last) if isinstance(section, list) else last] = value
