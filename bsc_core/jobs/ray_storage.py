"""A run's folder on storage that two machines reach by URL: what was written on one is brought to the other.

One side writes, the other reads. The writer puts files aside and renames them, then says in a manifest what there is;
the reader takes what changed, the status apart, whose merging is its caller's.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from bsc_core.errors import JobError
from bsc_core.files import as_json, write_whole

STATUS = "status.json"
STOP = "stop"
OWN = frozenset(
    {"config.json", "launch.json", "group.json", "worker.json", "ray.json", STOP}
)  # of the side that holds the run
MANIFEST = "manifest.json"
_LAST = ("progress.json", "ended.json", STATUS)  # a checkpoint counts once the first is there; the others end a run

Stamp = list[int]  # size in bytes, time of the last change in ns
Files = dict[str, Stamp]


class StorageError(JobError):
    """The storage cannot be reached, or refuses; what was asked of it may be asked again."""


@dataclass(frozen=True)
class Storage:
    """A folder at a URL that fsspec understands, such as s3://bucket/runs or file:///shared/runs."""

    url: str

    def at(self, *names: str) -> Storage:
        """The folder of that name within this one."""
        return Storage("/".join([self.url.rstrip("/"), *names]))

    def put(self, source: Path, name: str) -> None:
        """Store a file under a name; no one ever reads half of it. Raises FileNotFoundError when it has gone."""
        if not source.is_file():
            raise FileNotFoundError(source)
        self._whole(name, lambda system, target: system.put_file(str(source), target))

    def put_bytes(self, content: bytes, name: str) -> None:
        """Store bytes under a name, whole. Raises StorageError."""
        self._whole(name, lambda system, target: system.pipe_file(target, content))

    def get(self, name: str, target: Path) -> None:
        """Bring a stored file to a path, whole. Raises FileNotFoundError, StorageError."""
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            self._call(lambda system, folder: system.get_file(f"{folder}/{name}", str(aside)))
            aside.replace(target)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()

    def get_bytes(self, name: str) -> bytes | None:
        """What is stored under a name; None when there is nothing. Raises StorageError."""
        try:
            content: bytes = self._call(lambda system, folder: system.cat_file(f"{folder}/{name}"))
        except FileNotFoundError:
            return None
        return content

    def has(self, name: str) -> bool:
        """Whether there is something under a name. Raises StorageError."""
        return bool(self._call(lambda system, folder: system.exists(f"{folder}/{name}")))

    def remove(self, name: str) -> None:
        """Remove what is stored under a name; nothing when it has gone. Raises StorageError."""
        with suppress(FileNotFoundError):
            self._call(lambda system, folder: system.rm_file(f"{folder}/{name}"))

    def _whole(self, name: str, write: Callable[[Any, str], Any]) -> None:
        def place(system: Any, folder: str) -> None:
            target, aside = f"{folder}/{name}", f"{folder}/{name}.{secrets.token_hex(4)}.part"
            system.makedirs(target.rpartition("/")[0], exist_ok=True)
            write(system, aside)
            system.mv(aside, target)

        try:
            self._call(place)
        except FileNotFoundError as error:  # of the storage, such as a bucket that there is not
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
        except Exception as error:  # each kind of storage has errors of its own
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            raise StorageError(f"storage {self.url} does not answer or refuses ({told}); check it") from error


@dataclass
class Outgoing:
    """The writer's side: a folder whose changes are stored. `sent`: what is stored by now."""

    folder: Path
    storage: Storage
    kept: frozenset[str] = OWN
    sent: Files = field(default_factory=dict)

    def push(self) -> None:
        """Store what changed since the last push, remove what has gone, then say so. Raises StorageError."""
        there = stamps(self.folder, self.kept)
        for name in in_order(there):
            if self.sent.get(name) != there[name]:
                try:
                    self.storage.put(self.folder / name, f"run/{name}")
                except (FileNotFoundError, StorageError):
                    if (self.folder / name).exists():
                        raise
                    continue  # a checkpoint that was dropped meanwhile
                self.sent[name] = there[name]
        gone = [name for name in reversed(in_order(self.sent)) if name not in there]
        for name in gone:
            del self.sent[name]
        told = {"files": self.sent, "folder": str(self.folder)}
        self.storage.put_bytes(as_json(told), MANIFEST)
        for name in gone:
            self.storage.remove(f"run/{name}")


@dataclass
class Incoming:
    """The reader's side: a folder into which what is stored is brought. `taken`: what was brought by now."""

    folder: Path
    storage: Storage
    taken: Files = field(default_factory=dict)

    def pull(self) -> dict[str, Any] | None:
        """Bring what changed since the last pull and drop what has gone, except files that only this side has.

        Returns the status as it is stored, None when it did not change. Raises StorageError.
        """
        told = self._manifest()
        files: Files = {name: stamp for name, stamp in told["files"].items() if name not in OWN}
        for name in reversed(in_order(self.taken)):
            if name not in files:
                (self.folder / name).unlink(missing_ok=True)
                _remove_empty(self.folder, (self.folder / name).parent)
                del self.taken[name]
        status = None
        for name in in_order(files):
            if self.taken.get(name) == files[name]:
                continue
            if name == STATUS:
                status = self._status()
            else:
                self._take(name, told["folder"])
            self.taken[name] = files[name]
        return status

    def _manifest(self) -> dict[str, Any]:
        content = self.storage.get_bytes(MANIFEST)
        if content is None:
            return {"files": self.taken, "folder": ""}
        told = _parsed(content, MANIFEST)
        if not isinstance(told.get("files"), dict) or not isinstance(told.get("folder"), str):
            raise StorageError(f"{MANIFEST} in the storage is damaged (it names no files); store the run anew")
        return told

    def _status(self) -> dict[str, Any] | None:
        content = self.storage.get_bytes(f"run/{STATUS}")
        return None if content is None else _parsed(content, STATUS)

    def _take(self, name: str, written_in: str) -> None:
        target = _inside(self.folder, name)
        try:
            self.storage.get(f"run/{name}", target)
        except FileNotFoundError:  # dropped since the manifest was written; the next one will not name it
            return
        if name == "result.json":  # its paths are those of the machine that wrote it
            told = json.loads(target.read_bytes())
            write_whole(target, as_json(_moved(told, str(Path(written_in).parent), str(self.folder.parent)), indent=1))


def stamps(folder: Path, kept: frozenset[str] = frozenset()) -> Files:
    """Size and time of all files of a folder but hidden ones, by their relative names; `kept` are left out."""
    found: Files = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name in kept or any(part.startswith(".") for part in PurePosixPath(name).parts):
            continue
        with suppress(FileNotFoundError):
            if path.is_file():
                facts = path.stat()
                found[name] = [facts.st_size, facts.st_mtime_ns]
    return found


def in_order(files: Mapping[str, Any]) -> list[str]:
    """Names so that what makes a checkpoint or the run complete comes last."""
    return sorted(files, key=lambda name: (PurePosixPath(name).name in _LAST, name == STATUS, name))


def _parsed(content: bytes, name: str) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except ValueError as error:
        raise StorageError(f"{name} in the storage is damaged ({error}); store the run anew") from None
    return values if isinstance(values, dict) else {}


def _inside(folder: Path, name: str) -> Path:
    target = folder / name
    if ".." in PurePosixPath(name).parts or not target.is_relative_to(folder):
        raise StorageError(f"{name!r} would lie outside {folder}; the manifest in the storage is not this run's")
    return target


def _remove_empty(root: Path, folder: Path) -> None:
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _moved(value: Any, source: str, target: str) -> Any:
    """The value with paths under one folder as paths under another."""
    if isinstance(value, dict):
        return {name: _moved(item, source, target) for name, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, source, target) for item in value]
    if isinstance(value, str) and value.startswith(f"{source}/"):
        return target + value[len(source) :]
    return value
