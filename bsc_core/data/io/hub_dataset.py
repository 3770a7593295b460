"""Datasets on the Hub: the files of a repository, chosen by its card, are read like other files.

The package `datasets` is not used for them: the card of a dataset, written by its author, sets any option of its
readers, among them regular expressions, other protocols and paths. Here, a card can only choose files of its repository
and name classes.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl

from bsc_core.config.reading import HUB
from bsc_core.data.io.hub_repository import Repository, open_repository
from bsc_core.data.io.saved_dataset import MAX_LABELS, SPLIT, listed_classes, short_text
from bsc_core.data.io.sources import FORMATS, Format, Source
from bsc_core.errors import DataError, InputError
from bsc_core.files import error_reason

CARD = "README.md"
HUB_FORMS = "write it as hf://owner/name, hf://owner/name/config or hf://owner/name?split=train"
SLICE = re.compile(r"(?P<split>[^\[\]]+)(\[(?P<start>[0-9]{0,12}):(?P<stop>[0-9]{0,12})\])?")
SPLIT_WORDS = {  # words in the path of a file of a split, as in `datasets`
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("validation", "valid", "dev", "val"),
    "train": ("train", "training"),
}
NO_DATA = ("config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
METADATA = re.compile(r"\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
ABOUT_FILES = re.compile("configs|dataset_info")
MAX_CARD_BYTES = 1 << 20
MAX_METADATA = 200_000  # characters
MAX_NESTING = 20  # brackets in each other
OPENED = {"[": 1, "{": 1, "]": -1, "}": -1}  # by YAML token
GLOB = re.compile(r"[*?\[]")
MAX_GLOBS = 20  # of all splits together
MAX_FILES = 2_000
MAX_ENTRIES = 1_000  # of a list of a card
MAX_PATTERN_PARTS = 20


@dataclass(frozen=True)
class HubSplit:
    """One split of a dataset on the Hub.

    Attributes:
        name: Name of the split.
        files: Its files in the local cache, in order.
        class_names: Names of the classes of each column with class numbers, where the files themselves give none.
        start: Number of rows to skip.
        stop: Number of rows to read, including the skipped ones; None: all.
    """

    name: str
    files: tuple[Source, ...]
    class_names: Mapping[str, Sequence[str]]
    start: int = 0
    stop: int | None = None


def open_hub_dataset(path: str) -> list[HubSplit]:
    """Download the files of a dataset, if they are not in the cache, and return its splits.

    Args:
        path: `hf://owner/name`, optionally with `/config` and `?split=NAME` or `?split=NAME[START:STOP]`.

    Raises:
        DataError: The id is malformed, or the dataset cannot be loaded or has no files that can be read.
        InputError: The files are larger than the limit.
    """
    name, config, options = _parse_hub_id(path)
    chosen = SLICE.fullmatch(options.get(SPLIT, "*"))
    if chosen is None:
        raise DataError(f"{path}: {options[SPLIT]} is not a split; write NAME, or NAME[0:1000] for its first rows")
    try:
        repository = open_repository(name, "dataset")
        card = _read_card(path, repository)
        try:
            config = _chosen_config(path, card, config)
            card_classes = _card_classes(card, config)
            files = _files_by_split(path, repository, card, config, chosen["split"])
        except ValueError as error:
            raise DataError(f"{path}: {error}; download the dataset and give its files") from None
        names = list(files) if chosen["split"] == "*" else [chosen["split"]]
        if unknown := [one for one in names if one not in files]:
            raise DataError(f"{path}: has no split {unknown[0]}; its splits are {', '.join(files)}")
        chosen_files = [file for one in names for file in files[one]]
        if repeated := [file for file, count in Counter(chosen_files).items() if count > 1]:
            example = f"?split={names[0][:80]}"
            raise DataError(f"{path}: {repeated[0][:80]} belongs to several splits; choose one, such as {example}")
        folder = repository.download(chosen_files)
    except (DataError, InputError):
        raise
    except Exception as error:  # whatever the network and the Hub raise
        if _is_offline():
            raise DataError(
                f"{path}: not in the cache of this machine, and HF_HUB_OFFLINE forbids the network; unset it, or "
                "download the files and give them"
            ) from None
        raise DataError(
            f"{path}: could not be loaded from the hub ({error_reason(error).rstrip('.')}); check the name, the "
            "config, the split and the network"
        ) from None
    start, stop = int(chosen["start"] or 0), int(chosen["stop"]) if chosen["stop"] else None
    return [
        HubSplit(
            one,
            tuple(_source(path, folder, file) for file in files[one]),
            card_classes,
            start,
            stop,
        )
        for one in names
    ]


def _parse_hub_id(path: str) -> tuple[str, str | None, dict[str, str]]:
    """Parse `hf://owner/name/config?split=train` into name, config and options."""
    location, _, query = path.removeprefix(HUB).partition("?")
    parts = location.strip("/").split("/")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise DataError(f"{path}: a dataset on the hub has an owner and a name; {HUB_FORMS}")
    if set(options) - {SPLIT} or not all(options.values()) or (query and not options):
        raise DataError(f"{path}: split is the only option of a dataset; {HUB_FORMS}")
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None, options


def _read_card(path: str, repository: Repository) -> dict[str, Any]:
    """Return the metadata of the card of a dataset; empty if it has none, or none about its files.

    Raises:
        DataError: The metadata about the files are too large or not plain YAML.
    """
    import yaml  # type: ignore[import-untyped]  # installed with huggingface_hub

    refusal = DataError(f"{path}: its card is too large or not plain YAML; download the dataset and give its files")
    if repository.sizes.get(CARD, 0) > MAX_CARD_BYTES:
        raise refusal
    if CARD not in repository.sizes:
        return {}
    found = METADATA.match((repository.download([CARD]) / CARD).read_text(encoding="utf-8-sig", errors="replace"))
    metadata = found[1] if found else ""
    values = None
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        if len(metadata) <= MAX_METADATA and _is_plain_yaml(yaml.scan(metadata)):
            values = yaml.safe_load(metadata)
    if isinstance(values, dict):
        return values
    if ABOUT_FILES.search(metadata):
        raise refusal
    return {}


def _is_plain_yaml(tokens: Iterable[Any]) -> bool:
    """Whether YAML has no aliases, which can repeat a part any number of times, and few nested brackets, each slow."""
    depth = 0
    for token in tokens:
        depth += OPENED.get(token.id, 0)
        if token.id == "<alias>" or depth > MAX_NESTING:
            return False
    return True


def _configs(card: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the configs of a card by name."""
    return {name: one for one in _objects(card.get("configs")) if (name := short_text(one.get("config_name")))}


def _chosen_config(path: str, card: Mapping[str, Any], config: str | None) -> str | None:
    """Return the name of a config: the given one, else the default or only one, None if the card names none.

    Raises:
        DataError: There is no such config, or none of several is the default.
    """
    configs = _configs(card)
    if config is None and len(configs) > 1:
        config = next((name for name, one in configs.items() if name == "default" or one.get("default") is True), None)
        if config is None:
            raise DataError(
                f"{path}: has several configs; choose one of {', '.join(configs)}, as in {HUB}owner/name/config"
            )
    if config is not None and configs and config not in configs:
        raise DataError(f"{path}: has no config {config}; its configs are {', '.join(configs)}")
    return next(iter(configs), None) if config is None else config


def _files_by_split(
    path: str, repository: Repository, card: Mapping[str, Any], config: str | None, chosen: str
) -> dict[str, list[str]]:
    """Return the readable files of a config by split: those of the card, else all of the most common format.

    Raises:
        DataError: The dataset has no files that can be read, too many, or no such config.
        ValueError: A file that the card names in the chosen split (`*`: in any) cannot be read.
    """
    readable = sorted(file for file in repository.sizes if _format(file) is not None)
    if len(readable) > MAX_FILES:
        raise DataError(f"{path}: has more than {MAX_FILES:,} files of data; download those that you need")
    configs = _configs(card)
    settings = {} if config is None else configs.get(config, {})
    folder = (short_text(settings.get("data_dir")) or (config if config is not None and not configs else "")).strip("/")
    if settings.get("data_files"):
        patterns = _patterns(settings["data_files"])
        if sum(bool(GLOB.search(one)) for found in patterns.values() for one in found) > MAX_GLOBS:
            raise DataError(f"{path}: its card has more than {MAX_GLOBS} patterns of files; download the dataset")
        files = {}
        for split, wanted in patterns.items():
            located = [f"{folder}/{pattern}".strip("/") for pattern in wanted]
            unknown = [pattern for pattern in located if not _selected([pattern], readable)]
            if unknown and chosen in ("*", split):
                raise ValueError(f"its card names {unknown[0][:80]}, which is no file that can be read")
            files[split] = _selected(located, readable)
    else:
        inside = [file for file in readable if file.startswith(f"{folder}/" if folder else "")]
        common = Counter(map(_format, inside)).most_common(1)
        inside = [file for file in inside if _format(file) == common[0][0]]
        found = {split: [file for file in inside if _split_of(file) == split] for split in reversed(SPLIT_WORDS)}
        files = found if any(found.values()) else {"train": inside}
    files = {split: found for split, found in files.items() if found}
    if not files:
        raise DataError(
            f"{path}: has no files that can be read ({', '.join(FORMATS)}); download it and convert its files"
        )
    return files


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list of a card."""
    return [one for one in _entries(value) if isinstance(one, dict)]


def _entries(value: Any) -> list[Any]:
    """Return a list of a card; empty for another value. Raises ValueError for a long one."""
    if not isinstance(value, list):
        return []
    if len(value) > MAX_ENTRIES:
        raise ValueError(f"a list of its card has more than {MAX_ENTRIES:,} entries")
    return value


def _patterns(value: Any) -> dict[str, list[str]]:
    """Return the patterns of files by split: text, a list of texts, or a list of objects with split and path."""
    entries = _entries(value) if isinstance(value, list) else [value]
    texts = [one for one in entries if isinstance(one, str)]
    patterns = {"train": texts} if texts else {}
    for one in _objects(entries):
        paths = one.get("path")
        found = [paths] if isinstance(paths, str) else _entries(paths)
        patterns.setdefault(short_text(one.get("split")) or "train", []).extend(map(short_text, found))
    _entries([pattern for found in patterns.values() for pattern in found])
    return {split: [one for one in found if one] for split, found in patterns.items()}


def _selected(patterns: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return the files that are named, in a named folder, or match a pattern with `*`."""
    plain = [pattern.removeprefix("./").rstrip("/") for pattern in patterns if not GLOB.search(pattern)]
    globs = [pattern for pattern in patterns if GLOB.search(pattern)]
    named, folders = set(plain), tuple(f"{name}/" for name in plain)
    return [
        file
        for file in files
        if file in named or file.startswith(folders) or any(_matches(pattern, file) for pattern in globs)
    ]


def _matches(pattern: str, file: str) -> bool:
    """Return whether a pattern with `*` and `**` names a file, or a folder that contains it."""
    wanted, parts = pattern.removeprefix("./").split("/"), PurePosixPath(file).parts
    if len(wanted) > MAX_PATTERN_PARTS:
        return False

    @cache
    def match(first: int, part: int) -> bool:
        if first == len(wanted):
            return True  # the rest of the path is inside a folder
        if wanted[first] == "**":
            return any(match(first + 1, later) for later in range(part, len(parts) + 1))
        return part < len(parts) and fnmatchcase(parts[part], wanted[first]) and match(first + 1, part + 1)

    return match(0, 0)


def _split_of(file: str) -> str | None:
    words = re.split(r"[^a-z]+", file.lower())
    return next((split for split, known in SPLIT_WORDS.items() if any(word in words for word in known)), None)


def _format(file: str) -> Format | None:
    """Return the format of a file of a repository; None if it cannot be read."""
    if PurePosixPath(file).name in NO_DATA or any(part.startswith((".", "__")) for part in PurePosixPath(file).parts):
        return None
    name = file.lower().removesuffix(".gz")
    known = FORMATS.get(PurePosixPath(name).suffix) or ("jsonl" if name.endswith(".json") else None)
    return None if known == "parquet" and file.lower().endswith(".gz") else known


def _source(path: str, folder: Path, file: str) -> Source:
    known = _format(file)
    assert known is not None
    return Source(f"{path}: {file}", known, folder / file, file.lower().endswith(".gz"))


def _card_classes(card: Mapping[str, Any], config: str | None) -> dict[str, list[str]]:
    """Return the names of the classes of each column with class numbers, from the card."""
    infos = card.get("dataset_info")
    infos = [infos] if isinstance(infos, dict) else _objects(infos)
    info = next((one for one in infos if one.get("config_name", "default") == (config or "default")), {})
    if len(infos) == 1 and "config_name" not in infos[0]:
        info = infos[0]
    found: dict[str, list[str]] = {}
    for feature in _objects(info.get("features")):
        kind = feature.get("dtype")
        label = kind.get("class_label") if isinstance(kind, dict) else None
        names = listed_classes(label.get("names")) if isinstance(label, dict) else None
        if names is not None:
            found[short_text(feature.get("name"))] = names
    if len(found) > MAX_LABELS:
        raise ValueError(f"its card has more than {MAX_LABELS} columns of classes")
    return found


def _is_offline() -> bool:
    return any(
        os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )
