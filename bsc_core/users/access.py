"""Owners of runs and uploaded datasets, who else may read them, and the runs that a user sees.

The owner of a run is stored in its folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from bsc_core.config import DataConfig, EncoderConfig, RunConfig
from bsc_core.config.reading import HUB
from bsc_core.data.io.sources import is_hub_id
from bsc_core.errors import InputError, RunNotFoundError
from bsc_core.files import FileStamp, as_json, atomic_write, file_stamp, read_regular
from bsc_core.formatting import shorten
from bsc_core.paths import sample_data_folder
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import parent_run_id
from bsc_core.runs.signatures import signed, verified
from bsc_core.users.accounts import User, read_users

ACCESS = "access"  # name of the JSON document with the owner of a run and the users it is shared with
EVERYONE = "*"
BUILT_IN_ENCODERS = ("bundled", "static")
ENCODER_FIELDS = ("encoder", "mask_guide", "second_opinion")  # fields of a config with an encoder
MAX_NAME_LENGTH = 200  # of a model or dataset in an error message


class Access(BaseModel):
    """Owner of a run or dataset, and the users who may read it; without an owner, it belongs to the app's owner."""

    model_config = ConfigDict(frozen=True)
    owner: str | None = None
    shared_with: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()

    def may_read(self, user: User) -> bool:
        """Whether a user may read the run or dataset."""
        return self.may_change(user) or bool({user.name, EVERYONE} & set(self.shared_with))

    def may_change(self, user: User) -> bool:
        """Whether a user may stop, delete or share the run, or change the dataset."""
        return user.is_owner or (user.may_launch and self.owner == user.name)


def run_access(run: Run) -> Access:
    """Return the owner of a run and who else may read it.

    A run with a damaged document, or one that was not written in this runs folder, belongs to the app's owner.
    """
    try:
        return _read_run_access(run.folder, file_stamp(run.folder / f"{ACCESS}.json"))
    except (OSError, ValueError):
        return Access()


@lru_cache(maxsize=16_384)  # every page reads that of all runs
def _read_run_access(folder: Path, stamp: FileStamp) -> Access:
    return _signed_access(Run(folder).read_signed(ACCESS))


def _signed_access(values: Mapping[str, Any] | None) -> Access:
    """Return the access; raises ValueError without valid values, which are then read again: the key may be there."""
    if values is None:
        raise ValueError("it was not written in this runs folder")
    return Access.model_validate(values)


def share_run(run: Run, shared_with: Iterable[str]) -> None:
    """Set the users who may read a run in addition to its owner. Students, part of `EVERYONE`, see finished runs."""
    write_run_access(run, run_access(run).model_copy(update={"shared_with": tuple(shared_with)}))


def write_run_access(run: Run, access: Access) -> None:
    """Write the owner of a run and who else may read it."""
    run.write_signed(ACCESS, access.model_dump())


class UserRuns(RunStore):
    """The runs that one user sees: their own, and those shared with them; for students, finished ones only."""

    def __init__(self, user: User, root: Path | str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(root, clock=clock)
        self.user = user

    def create(self, config: RunConfig, run_id: str | None = None, fill: Callable[[Run], object] | None = None) -> Run:
        """Create a run of this user; see `RunStore.create`.

        Raises:
            RunNotFoundError: Another user has the id.
        """

        def fill_owned(draft: Run) -> None:
            if not self.user.is_owner:
                write_run_access(draft, Access(owner=self.user.name))
            if fill is not None:
                fill(draft)

        run = super().create(config, run_id, fill_owned)
        return self.get(run.id)

    def get(self, run_id: str) -> Run:
        """Return a run.

        Raises:
            RunNotFoundError: There is no run of this id that the user sees.
        """
        run = self._run(run_id)
        if not (run.exists and self._is_visible(run)):
            raise RunNotFoundError(f"run {run_id}: there is no such run, or it is not shared with you")
        return run

    def list(self) -> list[Run]:
        """Return the runs that the user sees, newest first."""
        return [run for run in super().list() if self._is_visible(run)]

    def _is_visible(self, run: Run) -> bool:
        if self.user.is_owner:
            return True
        return run_access(run).may_read(self.user) and (self.user.may_launch or run.status().is_finished)


def dataset_access(folder: Path) -> Access:
    """Return the owner of an uploaded dataset and who else may read it; without a valid document, the app's owner."""
    path = folder / f"{ACCESS}.json"
    try:
        return _read_access(path, file_stamp(path))
    except (OSError, ValueError, RecursionError, AttributeError):
        return Access()


@lru_cache(maxsize=8192)
def _read_access(path: Path, stamp: FileStamp) -> Access:
    return _signed_access(verified(_root_of(path), path.parent.name, json.loads(read_regular(path))))


@dataclass(frozen=True)
class UploadedDataset:
    """An uploaded or generated dataset: its name for people, how it is read, and who may read it."""

    label: str
    data: DataConfig
    access: Access


def uploaded_datasets(store: RunStore, user: User) -> dict[str, UploadedDataset]:
    """Return the datasets in the uploads that are shared with a user, by key, newest first; damaged ones are left out.

    Their files need not be readable: see `may_read_file`.
    """
    paths = store.uploads_folder.glob("*/dataset.json")
    datasets = {}
    for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True):
        access = dataset_access(path.parent)
        if access.may_read(user):
            with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                datasets[path.parent.name] = UploadedDataset(*_read_dataset(path, file_stamp(path)), access)
    return datasets


@lru_cache(maxsize=8192)
def _read_dataset(path: Path, stamp: FileStamp) -> tuple[str, DataConfig]:
    values = json.loads(read_regular(path))
    return str(values["label"]), DataConfig.model_validate(values["data"])


def may_read_file(store: RunStore, user: User, path: str) -> bool:
    """Whether a file is sample data, or an uploaded one whose upload belongs to the user or is shared with them."""
    is_sample = Path(path).parent == sample_data_folder()
    return user.is_owner or is_sample or _file_access(store, path).may_read(user)


def _file_access(store: RunStore, path: str) -> Access:
    """Return the owner of an uploaded file and who may read it; any other file belongs to the owner of the app."""
    folder = Path(path).parent
    is_uploaded = folder.parent == store.uploads_folder and ".." not in Path(path).parts
    return dataset_access(folder) if is_uploaded else Access()


def shared_files(store: RunStore, datasets: Iterable[UploadedDataset]) -> set[str]:
    """Return the files that are shared by the datasets with them.

    The owner of a file shares it by each dataset with it; a dataset of another user does not share it.
    """
    return {
        file
        for one in datasets
        for file in one.data.files
        if one.access.owner is None or one.access.owner == _file_access(store, file).owner
    }


def encoder_names(config: BaseModel) -> Iterator[str]:
    """Yield the names of all encoders of a config or of a section."""
    for name, value in config:
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, BaseModel):
                yield from encoder_names(part)
        is_encoder = name in ENCODER_FIELDS or (isinstance(config, EncoderConfig) and name == "name")
        if isinstance(value, str) and is_encoder:
            yield value


def check_still_shared(store: RunStore, run: Run) -> None:
    """Check that the owner of a run that is to start may still launch it and read its files and models.

    Raises:
        InputError: The owner was removed or became a student, or what the run reads is no longer shared with them.
    """
    name, users = run_access(run).owner, read_users(store.root)
    if name is None or not users:  # a run of the app's owner, or an app that is not shared
        return
    user = users.get(name)
    if user is None or not user.may_launch:
        raise InputError(f"{name} may no longer launch runs on this server")
    if user.is_owner:
        return
    config, datasets = run.config(), uploaded_datasets(store, user)
    shared = shared_files(store, datasets.values())
    for path in config.data.files:
        if is_hub_id(path):
            check_hub(user, path.removeprefix(HUB).partition("?")[0])
        elif path not in shared and not may_read_file(store, user, path):
            raise InputError(f"{Path(path).name} is no longer shared with {name}; ask its owner to share the dataset")
    decisions = config.data.false_negatives
    if decisions is not None and not _may_read_decisions(store, user, decisions, datasets):
        raise InputError(f"the decisions {Path(decisions).name} are no longer shared with {name}")
    for encoder in encoder_names(config):
        if (parent := parent_run_id(encoder)) is not None:
            UserRuns(user, store.root).get(parent)
        elif encoder not in BUILT_IN_ENCODERS:
            check_hub(user, encoder)


def check_hub(user: User, name: str) -> None:
    """Check that a user may open a model or dataset of the Hub; of a longer name, `owner/name` counts.

    Raises:
        InputError: The user may not open it.
    """
    name = "/".join(name.split("/")[:2])
    if not user.may_open_hub(name):
        raise InputError(
            f"{shorten(name, MAX_NAME_LENGTH)}: not among the models and datasets of the Hub that you may open; ask "
            "the owner of this app to add it to `hub` in users.toml"
        )


def _may_read_decisions(store: RunStore, user: User, path: str, datasets: Mapping[str, UploadedDataset]) -> bool:
    """Whether a file of decisions is that of the user about a dataset, or of a dataset that is shared with them."""
    key = Path(path).stem
    own = [store.false_negatives_file(f"{user.name}/{key}")]
    if key in datasets and datasets[key].access.may_change(user):
        own.append(store.false_negatives_file(key))
    return Path(path) in own or path in {one.data.false_negatives for one in datasets.values()}


def write_dataset_access(folder: Path, access: Access) -> None:
    """Write the owner of an uploaded dataset and who else may read it."""
    path = folder / f"{ACCESS}.json"
    atomic_write(path, as_json(signed(_root_of(path), folder.name, access.model_dump())))


def _root_of(path: Path) -> Path:
    """Return the runs folder of a file of an uploaded dataset."""
    return path.parents[2]
