"""Users of a shared app: roles, quotas, sign-in keys, and the audit log.

The file `users.toml` in the runs folder names the users.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bsc_core.config.messages import first_problem
from bsc_core.config.reading import check_toml
from bsc_core.errors import ConfigError, InputError
from bsc_core.files import atomic_write, file_lock, read_regular, to_jsonable

USERS_FILE = "users.toml"
AUDIT_FILE = "audit.jsonl"
SHARED = "BSC_SHARED"  # environment variable: runs folder of a shared app, with its file of users
USER_HEADER = "X-Bsc-User"  # request header with `User.signed_in_as`; set by the server only
_KEY_BYTES = 32
_LOCK_FILE = ".users.lock"
_STRICT = ConfigDict(frozen=True, extra="forbid")
Role = Literal["owner", "member", "student"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
_Limit = Annotated[float, Field(ge=0)]


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
