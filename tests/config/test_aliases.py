"""Old names of config keys and values: still read everywhere, with one line in the log per file."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from bsc_core.config import RunConfig, make_config, read_config, read_sweep, sweep_configs
from bsc_core.errors import ConfigError
from bsc_core.runs import RunStore

Renamed = tuple[str, str, Any, str, Any]
# section, old key, value under the old key, current key, value under the current key
RENAMED = [
    ("training", "steps", 7, "max_steps", 7),
    ("training", "warmup", 0.2, "warmup_ratio", 0.2),
    ("training", "accumulation", 3, "gradient_accumulation_steps", 3),
    ("training", "checkpoint_steps", 5, "save_steps", 5),
    ("training", "keep_checkpoints", 4, "save_total_limit", 4),
    ("training", "early_stopping", 2, "early_stopping_patience", 2),
    ("encoder", "max_length", 64, "max_seq_length", 64),
    ("data", "dev_share", 0.3, "dev_size", 0.3),
    ("data", "remedies", ["drop_conflicts"], "filters", ["drop_conflicts"]),
    ("data", "filters", ["drop_repeats"], "filters", ["drop_duplicates"]),
    ("data", "remedies", ["drop_near_repeats"], "filters", ["drop_near_duplicates"]),
    ("batching", "forbid_collisions", True, "no_duplicates", True),
    ("batching", "by", "document", "group_by", "document"),
    ("batching", "reverse", False, "easy_first", False),
    ("batching", "neighbours", 9, "neighbors", 9),
    ("batching", "shingle_neighbours", 3, "shingle_neighbors", 3),
    ("batching", "strategy", "examples", "strategy", "nearest"),
    ("batching", "strategy", "neighbours", "strategy", "neighbors"),
    ("loss", "labelled_negatives", False, "labeled_negatives", False),
]
parametrize = pytest.mark.parametrize("renamed", RENAMED)


def config_file(tmp_path: Path, section: str = "training", *lines: str) -> Path:
    """Write a config file with lines in a section."""
    sections = {"data": ['train = "pairs.tsv"']}
    sections.setdefault(section, []).extend(lines)
    path = tmp_path / "config.toml"
    path.write_text("\n".join(line for name, keys in sections.items() for line in (f"[{name}]", *keys, "")))
    return path


def read_value(config: RunConfig, section: str, key: str) -> Any:
    value = getattr(getattr(config, section), key)
    return list(value) if isinstance(value, tuple) else value


def deprecations(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "bsc_core.config"]


@parametrize
def test_an_old_name_in_a_file_is_read_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, renamed: Renamed
) -> None:
    section, old, old_value, new, value = renamed
    path = config_file(tmp_path, section, f"{old} = {json.dumps(old_value)}")
    assert read_value(read_config(path), section, new) == value
    (line,) = deprecations(caplog)
    assert line.startswith(f"{path}: deprecated config keys: ")
    assert new in line


@parametrize
def test_an_old_name_can_be_set_on_the_command_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, renamed: Renamed
) -> None:
    section, old, old_value, new, value = renamed
    config = read_config(config_file(tmp_path), [f"{section}.{old}={json.dumps(old_value)}"])
    assert read_value(config, section, new) == value
    assert len(deprecations(caplog)) == 1


@parametrize
def test_an_old_name_in_a_sweep_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture, renamed: Renamed) -> None:
    section, old, old_value, new, value = renamed
    path = config_file(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write(f'\n[sweep.over]\n"{section}.{old}" = [{json.dumps(old_value)}]\n')
    values, sweep = read_sweep(path)
    (config,) = sweep_configs(values, sweep, source=str(path))
    assert read_value(config, section, new) == value
    assert sweep is not None
    assert list(sweep.over) == [f"{section}.{new}"]
    assert len(deprecations(caplog)) == 1


@parametrize
def test_an_old_name_in_over_on_the_command_line_is_read(tmp_path: Path, renamed: Renamed) -> None:
    section, old, old_value, new, value = renamed
    path = config_file(tmp_path)
    values, sweep = read_sweep(path, over=[f"{section}.{old}={json.dumps(old_value)}"])
    (config,) = sweep_configs(values, sweep, source=str(path))
    assert read_value(config, section, new) == value


@parametrize
def test_an_old_name_is_accepted_in_direct_construction(renamed: Renamed) -> None:
    section, old, old_value, new, value = renamed
    config = RunConfig.model_validate({"data": {"train": "pairs.tsv"}} | nested(section, old, old_value))
    assert read_value(config, section, new) == value
    assert config == make_config({"data": {"train": "pairs.tsv"}} | nested(section, new, value))
    assert old == new or old not in config.model_dump()[section]


def nested(section: str, key: str, value: Any) -> dict[str, Any]:
    return {section: {key: value} | ({"train": "pairs.tsv"} if section == "data" else {})}


def test_several_old_names_in_one_file_make_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = config_file(tmp_path, "training", "steps = 5", "warmup = 0.3", "early_stopping = 2")
    read_config(path, ["batching.strategy=examples"])
    (line,) = deprecations(caplog)
    for part in ("training.steps is now training.max_steps", "warmup_ratio", "early_stopping_patience", "nearest"):
        assert part in line


def test_current_names_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_config(config_file(tmp_path, "training", "max_steps = 5"), ["batching.strategy=nearest"])
    assert deprecations(caplog) == []


def test_old_and_current_name_with_equal_values_are_accepted(tmp_path: Path) -> None:
    config = read_config(config_file(tmp_path, "training", "steps = 5", "max_steps = 5"))
    assert config.training.max_steps == 5


@pytest.mark.parametrize("lines", [("steps = 5", "max_steps = 6"), ("max_steps = 6", "steps = 5")])
def test_old_and_current_name_with_different_values_are_refused(tmp_path: Path, lines: tuple[str, str]) -> None:
    path = config_file(tmp_path, "training", *lines)
    with pytest.raises(ConfigError) as refused:
        read_config(path)
    assert str(refused.value) == (
        f"{path}: training.steps and training.max_steps are both set; training.steps is the old name of "
        "training.max_steps, keep only training.max_steps"
    )


def test_direct_construction_with_different_values_is_refused() -> None:
    values = {"data": {"train": "pairs.tsv"}, "training": {"steps": 5, "max_steps": 6}}
    with pytest.raises(ConfigError, match="steps and max_steps are both set; steps is the old name of max_steps"):
        make_config(values)


def test_a_sweep_with_old_and_current_name_is_refused(tmp_path: Path) -> None:
    path = config_file(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write('\n[sweep.over]\n"training.steps" = [5]\n"training.max_steps" = [6]\n')
    with pytest.raises(ConfigError, match=r"over has training\.max_steps twice, also under an old name"):
        read_sweep(path)


def test_an_override_replaces_the_value_of_an_old_name_in_the_file(tmp_path: Path) -> None:
    path = config_file(tmp_path, "training", "steps = 5")
    assert read_config(path, ["training.max_steps=9"]).training.max_steps == 9
    assert read_config(path, ["training.steps=9"]).training.max_steps == 9


def test_old_names_in_the_parts_of_a_combined_loss_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = config_file(
        tmp_path,
        "loss",
        'name = "combined"',
        'preset = "custom"',
        "parts = [{weight = 1.0, loss = {name = 'bsc', labelled_negatives = false}}]",
    )
    (part,) = read_config(path).loss.parts
    assert part.loss.labeled_negatives is False
    assert len(deprecations(caplog)) == 1


def test_the_stored_config_of_a_run_is_read_without_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RunStore(tmp_path / "runs")
    run = store.create(make_config({"data": {"train": "pairs.tsv"}, "training": {"max_steps": 5}}))
    path = run.folder / "config.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["training"]["steps"] = stored["training"].pop("max_steps")
    stored["batching"]["strategy"] = "examples"
    path.write_text(json.dumps(stored), encoding="utf-8")
    caplog.set_level(logging.DEBUG)
    config = store.get(run.id).config()
    assert (config.training.max_steps, config.batching.strategy) == (5, "nearest")
    assert deprecations(caplog) == []
