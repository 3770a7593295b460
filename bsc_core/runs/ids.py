"""Ids of runs and groups, which begin with the date and time."""

from __future__ import annotations

import re
import secrets
import time
from datetime import UTC, datetime

from bsc_core.config import RunConfig

UPLOADS = "uploads"  # folder of uploaded files in a runs folder, so no id of a run
_RUN_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_MEMBER = re.compile(r"(?:^|(?<=-))([0-9a-f]{4})-(\d{3,5})(?:-|$)")  # in the id of a run of a group: code and number
_RUN_PREFIX = "run:"
MAX_ID_WORDS = 36
"""Characters of the name in an id, and of the setting in that of a run of a group; with both, it has at most 100."""


def parent_run_id(encoder: str) -> str | None:
    """Return the run id of an encoder name `run:ID`; None for any other name."""
    return encoder.removeprefix(_RUN_PREFIX).strip() if encoder.startswith(_RUN_PREFIX) else None


def new_run_id(config: RunConfig, *others: RunConfig, words: str = "", now: float | None = None) -> str:
    """Return a new id of a run, or of a group of several configs, sortable by time.

    It has the UTC date and time, the name, and four random characters. Without a name, it has the loss, the strategy
    and the temperature, of a group only those that are equal in all configs.

    words: used instead of the name, at most 79 characters.
    """
    stamp = datetime.fromtimestamp(time.time() if now is None else now, UTC).strftime("%Y%m%d-%H%M%S")
    configs = config, *others
    described = (
        {one.loss.name for one in configs},
        {one.batching.strategy for one in configs},
        set(map(_temperature_word, configs)),
    )
    equal = [word for words in described if len(words) == 1 for word in words if word]
    slug = words or id_words(config.name or "-".join(equal) or "sweep")[:MAX_ID_WORDS].strip("-.") or "run"
    return f"{stamp}-{slug}-{secrets.token_hex(2)}"


def _temperature_word(config: RunConfig) -> str:
    temperature = getattr(config.loss, "temperature", None)
    return f"t{temperature:g}" if isinstance(temperature, float) else ""


def short_id(run_id: str) -> str:
    """Return the id of a run or a group without its leading date and time: its name and four random characters.

    Of a run of a group, spaces separate the group, the number and the setting: `warmup-9907 001 temperature-0.05`.
    """
    return _MEMBER.sub(r"\1 \2 ", without_time(run_id), count=1).rstrip()


def without_time(run_id: str) -> str:
    """Return the id of a run or a group without its leading date and time."""
    return re.sub(r"^\d{8}-\d{6}-", "", run_id)


def id_code(run_id: str) -> str:
    """Return the characters of an id that distinguish runs of one name; `9907-001` of a run of a group."""
    member = _MEMBER.search(run_id)
    return f"{member[1]}-{member[2]}" if member else run_id[-4:]


def id_words(text: str) -> str:
    """Return a text as a part of an id: `temperature-0.05` for `Temperature: 0.05`."""
    return re.sub(r"[^a-z0-9.]+|\.{2,}", "-", text.lower()).strip("-.")


def is_run_id(name: str) -> bool:
    """Return whether a folder with this name can be that of a run."""
    return _RUN_ID.fullmatch(name) is not None and name != UPLOADS
