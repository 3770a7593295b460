"""Users of a shared app: their roles and quotas, the runs that they see, and the audit log.

The file `users.toml` in the runs folder names the users. Who owns a run, and who else sees it, is in the run folder.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bsc_core.config import DataConfig, EncoderConfig, RunConfig
from bsc_core.config.messages import first_problem
from bsc_core.config.reading import HUB, check_toml
from bsc_core.data.io.sources import is_hub_id
from bsc_core.errors import BscError, ConfigError, InputError, RunNotFoundError
from bsc_core.files import (
    FileStamp,
    as_json,
    atomic_write,
    file_lock,
    file_stamp,
    folder_bytes,
    read_regular,
    to_jsonable,
)
from bsc_core.formatting import shorten
from bsc_core.paths import sample_data_folder
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import parent_run_id
from bsc_core.runs.signatures import signed, verified

USERS_FILE = "users.toml"
AUDIT_FILE = "audit.jsonl"
ACCESS = "access"  # name of the JSON document with the owner of a run and the users it is shared with
SHARED = "BSC_SHARED"  # environment variable: runs folder of a shared app, with its file of users
USER_HEADER = "X-Bsc-User"  # request header with `User.signed_in_as`; set by the server only
EVERYONE = "*"
BUILT_IN_ENCODERS = ("bundled", "static")
ENCODER_FIELDS = ("encoder", "mask_guide", "second_opinion")  # fields of a config with an encoder
MAX_NAME_LENGTH = 200  # of a model or dataset in an error message
WEEK = 7 * 24 * 3600.0  # seconds
_KEY_BYTES = 32
_LOCK_FILE, _QUOTA_LOCK = ".users.lock", ".quota.lock"

Role = Literal["owner", "member", "student"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
_Limit = Annotated[float, Field(ge=0)]
_STRICT = ConfigDict(frozen=True, extra="forbid")


class Quota(BaseModel):
    """Limits of a member."""

    model_config = _STRICT
    runs: Annotated[int, Field(ge=0)] = 500
    """Number of runs, with deleted ones; every page reads their states."""
    active_runs: Annotated[int, Field(ge=0)] = 8
    """Runs that wait or train at the same time."""
    processor_hours: _Limit = 24.0
    """Time of the runs of the last seven days, times their threads."""
    disk_gb: _Limit = 10.0
    """Size of all runs, deleted runs and uploaded files."""
    upload_mb: _Limit = 100.0
    """Size of one uploaded file."""
    upload_cells: Annotated[int, Field(ge=0)] = 5_000_000
    """Rows times columns of one uploaded file; a page holds them in memory."""
    datasets: Annotated[int, Field(ge=0)] = 200
    """Number of uploaded and generated datasets."""


class User(BaseModel):
    """One user. Without an email address, the user signs in with a secret link."""

    model_config = _STRICT
    name: Name
    role: Role
    email: str | None = None
    key_sha256: str | None = None
    quota: Quota = Quota()
    hub: tuple[str, ...] = ()
    """Models and datasets of the Hugging Face Hub that a member may open; `*` stands for any characters."""

    @property
    def is_owner(self) -> bool:
        """Whether the user may do and see everything."""
        return self.role == "owner"

    @property
    def may_launch(self) -> bool:
        """Whether the user may import data and launch runs."""
        return self.role != "student"

    def may_open_hub(self, name: str) -> bool:
        """Whether the user may open a model or dataset of the Hub, which the server downloads."""
        allowed = self.may_launch and any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in self.hub)
        return self.is_owner or allowed

    @property
    def signed_in_as(self) -> str:
        """Name and a digest of key, email address and role, so that a session ends when one of them changes."""
        return f"{self.name}:{key_hash(f'{self.key_sha256} {self.email} {self.role}')}"


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


OWNER = User(name="owner", role="owner")
"""The only user of an app that is not shared."""


def read_users(root: Path) -> dict[str, User]:
    """Return the users by name; empty if there is no file of users.

    Raises:
        ConfigError: The file is invalid.
    """
    path = root / USERS_FILE
    try:
        stat = path.stat()
    except FileNotFoundError:
        return {}
    return dict(_read_users(path, stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=8)
def _read_users(path: Path, modified: int, size: int) -> Mapping[str, User]:
    try:
        text = read_regular(path).decode("utf-8")
        check_toml(text)
        values = tomllib.loads(text)
        if unknown := set(values) - {"users"}:
            raise ConfigError(f"{path}: {min(unknown)} is not a section; the sections are [users.NAME]")
        return {name: User.model_validate({"name": name, **user}) for name, user in values.get("users", {}).items()}
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error)}; correct the file") from None
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a valid file of users ({error}); correct or restore it") from None


def add_user(root: Path, name: str, role: Role, email: str | None = None) -> str | None:
    """Add a user, or replace the role, the email address and the key of an existing one.

    Returns:
        The key; None for a user with an email address. Only its hash is stored, so it cannot be shown again.

    Raises:
        ConfigError: The name is invalid.
        InputError: Another user has the email address.
    """
    if name.endswith((".json", ".tsv")):  # a folder of this name would be in place of a file of the owner
        raise ConfigError(f"user {name!r}: the name has the ending of a file; choose another one")
    with _changed_users(root) as users:
        if email is not None and any(_is_same_address(one.email, email) and one.name != name for one in users.values()):
            raise InputError(f"{email} is the address of another user; see `bsc users list`")
        key = None if email else secrets.token_urlsafe(_KEY_BYTES)
        values: dict[str, Any] = {"name": name, "role": role, "email": email, "key_sha256": key and key_hash(key)}
        if name in users:
            values |= {"quota": users[name].quota, "hub": users[name].hub}
        try:
            user = User.model_validate(values)
        except ValidationError as error:
            raise ConfigError(f"user {name!r}: {first_problem(error)}") from None
        users[name] = user
    return key


def remove_user(root: Path, name: str) -> None:
    """Remove a user but not their runs.

    Raises:
        InputError: There is no user of this name.
    """
    with _changed_users(root) as users:
        if users.pop(name, None) is None:
            raise InputError(f"there is no user {name}; see `bsc users list`")


@contextmanager
def _changed_users(root: Path) -> Iterator[dict[str, User]]:
    """Yield the users, and write them when the block ends without an error; no other process changes them meanwhile."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file_lock(root / _LOCK_FILE):
        users = read_users(root)
        yield users
        _write_users(root, users)


def _write_users(root: Path, users: Mapping[str, User]) -> None:
    tables = {
        name: user.model_dump(exclude={"name"}, exclude_none=True, exclude_defaults=True)
        for name, user in users.items()
    }
    atomic_write(root / USERS_FILE, tomli_w.dumps({"users": tables}))
    (root / USERS_FILE).chmod(0o600)


def key_hash(key: str) -> str:
    """Return the SHA-256 digest of a key as hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def user_with_key(users: Iterable[User], key: str) -> User | None:
    """Return the user with this secret key; None if there is none."""
    digest = key_hash(key)
    return next((user for user in users if user.key_sha256 and hmac.compare_digest(user.key_sha256, digest)), None)


def signed_in_user(users: Mapping[str, User], header: str) -> User | None:
    """Return the user whom the server named in a request; None if they were removed or got another key since."""
    user = users.get(header.partition(":")[0])
    return user if user is not None and user.signed_in_as == header else None


def user_with_email(users: Iterable[User], email: str) -> User | None:
    """Return the user with this email address, ignoring case; None if there is none."""
    return next((user for user in users if _is_same_address(user.email, email)), None)


def _is_same_address(one: str | None, other: str) -> bool:
    """Return whether two email addresses are equal; ASCII letters in any case.

    Other letters can be equal in lower case in the domains of different people, such as "ß" and "ss".
    """
    if one is None:
        return False
    return one == other or (one.isascii() and other.isascii() and one.lower() == other.lower())


def write_audit(root: Path, user: str, action: str, subject: str = "", **details: Any) -> None:
    """Append an event to the audit log: time, user, action, and the id of the run or dataset (`subject`)."""
    root.mkdir(parents=True, exist_ok=True)
    event = {"time": round(time.time(), 3), "user": user, "action": action, "subject": subject, **details}
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(root / AUDIT_FILE, flags, 0o600)
    try:
        line = json.dumps(to_jsonable(event), allow_nan=False)  # ASCII: a terminal shows no control character of a name
        os.write(handle, f"{line}\n".encode())  # one write, so that lines of several processes do not mix
    finally:
        os.close(handle)


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


def check_quota(store: RunStore, user: User, number: int, *, threads: int) -> None:
    """Check the quota of a member before runs are launched.

    Args:
        store: All runs.
        user: The user who launches.
        number: How many runs.
        threads: Number of threads of a run whose config does not set it.

    Raises:
        InputError: The user may not launch runs, or a limit is exceeded; the message names it.
    """
    if not user.may_launch:
        raise InputError("students cannot launch runs; ask the owner of this app for the role of a member")
    if user.is_owner:
        return
    quota, runs = user.quota, [run for run in store.list() if run_access(run).owner == user.name]
    active = sum(not run.status().is_finished for run in runs)
    if active + number > quota.active_runs:
        raise InputError(
            f"you have {active} active runs and may have {quota.active_runs}; wait, stop a run, or launch fewer"
        )
    deleted = _deleted_runs(store, user)
    if len(runs) + len(deleted) + number > quota.runs:
        raise InputError(
            f"you have {len(runs)} runs and {len(deleted)} deleted runs, and may have {quota.runs}; delete runs, which "
            "the trash removes after a week, launch fewer, or ask the owner of this app"
        )
    used = processor_hours([*runs, *deleted], threads=threads)
    if used >= quota.processor_hours:
        raise InputError(
            f"your runs of the last seven days used {used:.1f} of {quota.processor_hours:g} processor hours; "
            "wait, or ask the owner of this app"
        )
    check_disk(store, user)


def check_disk(store: RunStore, user: User, additional_bytes: int = 0) -> None:
    """Check the disk quota of a member before a file is written.

    Raises:
        InputError: A limit is exceeded; the message names it.
    """
    if user.is_owner:
        return
    used = (disk_bytes(store, user) + additional_bytes) / 1e9
    if used > user.quota.disk_gb:
        raise InputError(
            f"your runs and files would use {used:.2f} of {user.quota.disk_gb:g} GB; "
            "delete runs, which the trash removes after a week, or ask the owner of this app"
        )


def check_run_disk(run: Run, additional_bytes: int) -> None:
    """Check the disk quota of the owner of a run, in a shared app, before its folder grows.

    Raises:
        InputError: The limit is exceeded.
    """
    if (root := os.environ.get(SHARED)) is not None:
        owner = read_users(Path(root)).get(run_access(run).owner or "")
        if owner is not None:
            check_disk(run.store, owner, additional_bytes)


@contextmanager
def admit_run_files(run: Run, additional_bytes: int) -> Iterator[None]:
    """Check the disk quota as `check_run_disk`; write the files in the block, before another check of a quota."""
    root = os.environ.get(SHARED)
    with nullcontext() if root is None else quota_lock_of(Path(root)):
        check_run_disk(run, additional_bytes)
        yield


def quota_lock_of(root: Path) -> FileLock:
    """Return the lock of a shared app from the check of a quota until the runs or files that it admits exist.

    It excludes the threads of this server, and other servers of the same runs folder. It is reentrant.
    """
    return file_lock(root / _QUOTA_LOCK, is_singleton=True)


def check_dataset_number(store: RunStore, user: User) -> None:
    """Check how many datasets a member has before another one is added.

    Raises:
        InputError: The limit is reached.
    """
    if not user.is_owner and len(_datasets(store, user)) >= user.quota.datasets:
        raise InputError(
            f"you have {user.quota.datasets} datasets, the most that you may have; ask the owner of this app to "
            "remove one"
        )


def processor_hours(runs: Iterable[Run], *, threads: int) -> float:
    """Return the processor hours of the runs that were active in the last seven days: their time, times threads."""
    now, total = time.time(), 0.0
    for run in runs:
        status = run.status()
        end = status.finished or (status.updated if status.is_finished else now)
        if status.started is None or end < now - WEEK:
            continue
        try:
            run_threads = run.config().training.threads or threads
        except BscError:
            run_threads = threads
        total += max(0.0, end - max(status.started, now - WEEK)) * run_threads
    return total / 3600


def disk_bytes(store: RunStore, user: User) -> int:
    """Return the size of a user's runs, deleted runs, uploaded files and decisions about false negatives."""
    runs = [*(run for run in store.list() if run_access(run).owner == user.name), *_deleted_runs(store, user)]
    datasets = _datasets(store, user)
    decisions = [
        *(store.false_negatives_file(folder.name) for folder in datasets),
        *store.false_negatives_of_user(user.name),
    ]
    folders = [*(run.folder for run in runs), *datasets]
    return sum(map(folder_bytes, folders)) + sum(file.stat().st_size for file in decisions if file.is_file())


def _datasets(store: RunStore, user: User) -> list[Path]:
    paths = store.uploads_folder.glob(f"*/{ACCESS}.json")
    return [path.parent for path in paths if dataset_access(path.parent).owner == user.name]


def _deleted_runs(store: RunStore, user: User) -> list[Run]:
    folders = (store.root / ".trash").glob("*/")
    return [run for folder in folders if run_access(run := Run(folder)).owner == user.name]


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
