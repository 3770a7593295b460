"""The signed-in user of a shared app, and what they may open, read and change; else the owner of the app."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import streamlit as st
from pydantic import BaseModel

from bsc_core.background_task import STUDENTS
from bsc_core.config.reading import HUB
from bsc_core.data.io.sources import is_hub_id
from bsc_core.errors import ConfigError, InputError
from bsc_core.formatting import shorten
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import parent_run_id
from bsc_core.users.access import (
    BUILT_IN_ENCODERS,
    EVERYONE,
    MAX_NAME_LENGTH,
    Access,
    UserRuns,
    check_hub,
    dataset_access,
    encoder_names,
    run_access,
    write_dataset_access,
)
from bsc_core.users.accounts import OWNER, SHARED, USER_HEADER, User, read_users, signed_in_user, write_audit
from bsc_core.users.quotas import check_dataset_number, check_disk, check_quota, quota_lock_of

STUDENT_PAGES = ("start", "learn", "lessons", "runs", "embeddings", "retrieval", "findings")
HUB_NAME_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ABSOLUTE = re.compile(r"(?<![\w./~])/(?:[^\s/:;,()'\"]+/)+")  # the folders of a path
NO_SHARED_RUN = "No finished run is shared with you yet."
SIGN_OUT = """<a href="/sign-out" target="_self" style="color: inherit; font-size: 0.875rem">Sign out</a>"""
_SIGNED_IN = "users.signed_in"  # session key: the user for whom the session was opened


def is_shared() -> bool:
    """Whether the app has several users."""
    return SHARED in os.environ


def current_user() -> User:
    """Return the user of this session; ends the script if they were removed or got a new key."""
    if not is_shared():
        return OWNER
    user, header = user_of_connection(), _header()
    # Streamlit gives a session to any connection that knows its id, and callbacks act on what its page showed.
    if user is None or st.session_state.setdefault(_SIGNED_IN, header) != header:
        st.error(
            "You are no longer a user of this app, or your role has changed. Reload the page, or ask the owner of the "
            "app for a new link.",
            icon=":material/lock:",
        )
        st.stop()
    return user


def user_of_connection() -> User | None:
    """Return the user of the connection to this session; None if they were removed or got a new key."""
    return signed_in_user(_users(), _header()) if is_shared() else OWNER


def _header() -> str:
    return st.context.headers.get(USER_HEADER) or ""


def _users() -> dict[str, User]:
    try:
        return read_users(Path(os.environ[SHARED]))
    except ConfigError:  # made invalid while the app runs: nobody is signed in
        return {}


def task_user() -> str | None:
    """Return whose background tasks are limited in number; None for an owner. Students share a limit."""
    user = current_user()
    if user.is_owner:
        return None
    return user.name if user.may_launch else STUDENTS


def may_open(page: str) -> bool:
    """Whether the user may open pages/<page>.py."""
    return current_user().may_launch or page in STUDENT_PAGES


def may_change(run: Run) -> bool:
    """Whether the user may stop, resume, delete or share a run."""
    return not is_shared() or run_access(run).may_change(current_user())


def without_folders(value: str) -> str:
    """Return the value of a setting as the user may see it: students see only the last part of an absolute path."""
    is_hidden = Path(value).is_absolute() and not current_user().may_launch
    return Path(value).name if is_hidden else value


def without_paths(text: str) -> str:
    """Return a text as the user may see it: students see only the last part of the absolute paths in it."""
    return text if current_user().may_launch else ABSOLUTE.sub("", text)


def record(action: str, subject: str = "", **details: Any) -> None:
    """Write an action of the user to the audit log of a shared app."""
    if is_shared():
        write_audit(Path(os.environ[SHARED]), current_user().name, action, subject, **details)


def check_source(source: str) -> None:
    """Check that the user may read a path or a dataset of the Hub.

    Raises:
        InputError: The user may not read it.
    """
    user, name = current_user(), source.strip()
    if user.is_owner:
        return
    hub_name = name.removeprefix(HUB).partition("?")[0]
    if user.may_launch and is_hub_id(name) and is_hub_name(hub_name):
        check_hub(user, hub_name)
        return
    raise InputError("only the owner of this app may read files of the server by path; upload the file instead")


def check_encoder(name: str) -> None:
    """Check that the user may load an encoder: a built-in one, that of a run, or from the Hub.

    Raises:
        InputError: The user may not load it.
    """
    user, run_id = current_user(), parent_run_id(name)
    if user.is_owner or name in BUILT_IN_ENCODERS:
        return
    if run_id is not None:
        UserRuns(user).get(run_id)
        return
    if user.may_launch and is_hub_name(name) and name.count("/") < 2:  # a longer name is a path, also in other folders
        check_hub(user, name)
        return
    raise InputError(
        f"{shorten(name, MAX_NAME_LENGTH)}: only the owner of this app may load models from folders of the server; "
        "choose a built-in encoder, a run, or a model of the Hub"
    )


def is_hub_name(name: str) -> bool:
    """Whether a name has the form of a Hub id, such as `owner/name`, and is not a local folder or file."""
    parts = name.split("/")
    return len(name) <= MAX_NAME_LENGTH and all(map(HUB_NAME_PART.fullmatch, parts)) and not Path(parts[0]).exists()


def check_encoders(config: BaseModel) -> None:
    """Check all encoders of a config or of a section.

    Raises:
        InputError: The user may not load one of them.
    """
    for name in encoder_names(config):
        check_encoder(name)


def check_launch(number: int, threads: int | None) -> None:
    """Check the user's quota before runs are launched; arguments and errors as `admit_launch`."""
    if not is_shared():
        return
    check_threads(threads)
    check_quota(RunStore(), current_user(), number, threads=os.cpu_count() or 1)


def check_threads(threads: int | None) -> None:
    """Raise InputError if a member's run or preflight would have more threads than the machine has cores."""
    cores = os.cpu_count() or 1
    if threads and threads > cores and is_shared() and not current_user().is_owner:
        raise InputError(
            f"training.threads is {threads} and this machine has {cores} processor cores; set at most that"
        )


@contextmanager
def admit_launch(run_id: str, number: int, threads: int | None) -> Iterator[None]:
    """Check the user's quota and write the launch to the audit log; launch the runs in the block.

    Args:
        run_id: Id of the run or group.
        number: Number of runs.
        threads: Highest number of threads of a run; None: all of the machine.

    Raises:
        InputError: The user may not launch runs, or a limit is exceeded; the message names it.
    """
    if not is_shared():
        yield
        return
    with quota_lock():
        check_launch(number, threads)
        record("launch", run_id, runs=number)
        yield


def quota_lock() -> AbstractContextManager[object]:
    """Return the lock of quotas, which a shared app has."""
    return quota_lock_of(Path(os.environ[SHARED])) if is_shared() else nullcontext()


def check_upload(size: int) -> None:
    """Check the user's quota before a file of `size` bytes is stored.

    Raises:
        InputError: The user may not upload files, or the file exceeds the quota.
    """
    user = current_user()
    if not user.may_launch:
        raise InputError("students cannot upload files; ask the owner of this app for the role of a member")
    if not user.is_owner:
        if size > user.quota.upload_mb * 1e6:
            raise InputError(
                f"the file has {size / 1e6:.0f} MB and you may upload {user.quota.upload_mb:g} MB; divide it, or ask "
                "the owner of this app"
            )
        check_disk(RunStore(), user, size)


def set_dataset_owner(folder: Path) -> None:
    """Store the user as the owner of a new dataset.

    Raises:
        InputError: The dataset belongs to another user.
    """
    user, access = current_user(), dataset_access(folder)
    if user.is_owner or access.owner == user.name:
        return
    if folder.exists() or not user.may_launch:
        raise InputError(
            "this dataset belongs to another user; upload or import the data for a dataset that you can change"
        )
    check_dataset_number(RunStore(), user)
    write_dataset_access(folder, Access(owner=user.name))


def draw_share_button(subject: str, access: Access, share: Callable[[list[str]], None]) -> None:
    """Draw the button that selects who else sees a run or dataset of a shared app.

    Args:
        subject: Id of the run or key of the dataset.
        access: Its owner and who sees it now.
        share: Stores the names of the users who see it.
    """
    if not is_shared():
        return
    user, key = current_user(), f"users.share.{subject}"
    others = [name for name, other in _users().items() if name != user.name and not other.is_owner]
    choices = [EVERYONE, *sorted(others)]

    def save() -> None:
        selected = set(st.session_state[key])  # a client can send any text, also several times
        names = [name for name in choices if name in selected]
        record("share", subject, shared_with=names)
        share(names)

    with st.popover("Share", icon=":material/group:", help="Selects who else may open this. They cannot change it."):
        st.multiselect(
            "Shared with",
            choices,
            default=[name for name in access.shared_with if name in choices],
            format_func=lambda name: "Everyone" if name == EVERYONE else name,
            key=key,
            on_change=save,
            help="Students see finished runs only.",
        )


def draw_account() -> None:
    """Draw the user and a link to sign out at the end of the sidebar of a shared app."""
    if is_shared():
        user = current_user()
        with st.sidebar.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{user.name} ({user.role})")
            st.html(SIGN_OUT)
