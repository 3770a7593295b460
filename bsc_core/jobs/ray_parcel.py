"""What a run needs on a machine that shares no disk with its launcher: its folder, the files it names, a chain's model.

Packed into storage before the job is submitted, and unpacked by the job. Files that a config names are stored under
their digest, once for all runs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsc_core.errors import JobError
from bsc_core.files import as_json, write_whole
from bsc_core.jobs.ray_storage import MANIFEST, OWN, Files, Outgoing, Storage, stamps
from bsc_core.runs import Run, RunStore, chain_of

FILES = "inputs"
BESIDE = "beside"
PARCEL = "parcel.json"
_STAYS = frozenset({"launch.json", "ray.json", "stop"})
_DATA = ("train", "dev", "test", "corpus", "mix", "false_negatives")
_BLOCK = 1 << 20


def pack(run: Run, storage: Storage, shared: Storage, roots: tuple[Path, ...]) -> Files:
    """Store a run's folder, the files that its config names, and the model of the run that it starts from.

    storage: the run's own; shared: that of all runs. roots: folders whose files may be sent; empty: any. Returns the
    stamps of the run's files as they are stored. Raises StorageError, and JobError where a file cannot be read.
    """
    places, listed = {}, {}
    for key, path in _named_files(run.config().model_dump(mode="json"), roots):
        place, names = _send(path, shared)
        places[key], listed[place] = place, names
    parent = chain_of(run.config().encoder.name)
    beside = [] if parent is None else _send_model(RunStore(run.folder.parent).get(parent), storage)
    outgoing = Outgoing(run.folder, storage, kept=_STAYS)
    outgoing.push()
    parcel = {"run": run.id, "places": places, "files": listed, "beside": beside}
    storage.put_bytes(as_json(parcel), PARCEL)
    return _followed(outgoing.sent)


@dataclass(frozen=True)
class Unpacked:
    """A run on the machine that performs it, and the stamps of its files as they are stored."""

    run: Run
    files: Files


def unpack(storage: Storage, shared: Storage, scratch: Path) -> Unpacked:
    """Bring what `pack` stored under a folder of this machine; the config names the files where they now lie.

    Raises StorageError; JobError when the storage holds no whole parcel.
    """
    content, told = storage.get_bytes(PARCEL), storage.get_bytes(MANIFEST)
    if content is None or told is None:
        raise JobError(f"storage {storage.url}: it holds no run; launch the run again")
    parcel, files = json.loads(content), json.loads(told)["files"]
    run = Run(scratch / "runs" / parcel["run"])
    for name, (_, changed) in files.items():
        storage.get(f"run/{name}", run.folder / name)
        os.utime(run.folder / name, ns=(changed, changed))
    for name in parcel["beside"]:
        storage.get(f"{BESIDE}/{name}", run.folder.parent / name)
    for place, names in parcel["files"].items():
        for name in names:
            shared.get(f"{FILES}/{place}{name}", scratch / FILES / f"{place}{name}")
    config = json.loads((run.folder / "config.json").read_bytes())
    for key, place in parcel["places"].items():
        _set(config, key, str(scratch / FILES / place))
    write_whole(run.folder / "config.json", as_json(config, indent=1))
    return Unpacked(run, _followed(files))


def _followed(files: Files) -> Files:
    """Those of the files whose changes are brought back."""
    return {name: stamp for name, stamp in files.items() if name not in OWN}


def _named_files(config: dict[str, Any], roots: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    """The keys of a config whose values are files or folders of this machine, and those."""
    for field in _DATA:
        value = config["data"][field]
        for key, name in enumerate(value) if isinstance(value, list) else [("", value)]:
            path = _local(name, roots)
            if path is not None:
                yield f"data.{field}.{key}".rstrip("."), path
    path = _local(config["encoder"]["name"], roots)
    if path is not None and path.is_dir():
        yield "encoder.name", path


def _local(name: str | None, roots: tuple[Path, ...]) -> Path | None:
    """A path that exists here and may be sent; the job itself says what is wrong with any other."""
    if not name or "://" in name:
        return None
    path = Path(name).expanduser().resolve()
    allowed = not roots or any(path.is_relative_to(root) for root in roots)
    return path if allowed and path.exists() else None


def _send(path: Path, shared: Storage) -> tuple[str, list[str]]:
    """Store a file or folder under its digest, unless it is there. Returns its place, and the names under that."""
    names = [f"/{name}" for name in sorted(stamps(path))] if path.is_dir() else [""]
    try:
        place = f"{_digest(path, names)}/{path.name}"
        if not shared.has(f"{FILES}/{place}.whole"):
            for name in names:
                shared.put(Path(f"{path}{name}"), f"{FILES}/{place}{name}")
            shared.put_bytes(b"", f"{FILES}/{place}.whole")
    except OSError as error:
        raise JobError(f"{path}: it cannot be sent to the cluster's storage ({error}); check the file") from error
    return place, names


def _send_model(parent: Run, storage: Storage) -> list[str]:
    """Store what a chain reads of the run that it starts from. Returns the names."""
    wanted = [name for name in stamps(parent.folder) if name.startswith("model/") or name in _FACTS]
    for name in wanted:
        storage.put(parent.folder / name, f"{BESIDE}/{parent.id}/{name}")
    return [f"{parent.id}/{name}" for name in wanted]


_FACTS = ("config.json", "status.json")


def _digest(path: Path, names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\0".encode())
        with Path(f"{path}{name}").open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()[:32]


def _set(config: dict[str, Any], key: str, value: str) -> None:
    *path, last = key.split(".")
    section: Any = config
    for name in path:
        section = section[name]
    section[int(last) if isinstance(section, list) else last] = value
