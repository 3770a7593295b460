"""Reading and writing config files, and their error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bsc_core.config import (
    LOSS_CONFIGS,
    DataConfig,
    LossConfig,
    RunConfig,
    make_config,
    read_config,
    to_toml,
    validation_message,
)
from bsc_core.config.reading import parse_value
from bsc_core.data import load_data
from bsc_core.errors import ConfigError, FileFormatError, PathError

PARTS = [{"weight": 0.25, "loss": {"name": "supcon", "max_negatives": 3}}, {"weight": 2.0, "loss": {"name": "mse"}}]
LOSSES = [
    *({"name": name} for name in LOSS_CONFIGS),
    {"name": "bsc", "normalization": "none", "threshold": 0.6, "duplicates": "multi_positive"},
    {"name": "softmax", "features": ["difference"], "hidden": 768, "activation": "none"},
    {"name": "combined", "preset": "bsc_pearson", "mu": 0.9, "bsc": {"temperature": 1.2}},
    {"name": "combined", "preset": "custom", "parts": PARTS},
]


def config(loss: Any) -> RunConfig:
    return make_config({"data": {"train": "/pairs.tsv"}, "loss": loss})


def refusal(loss: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        config(loss)
    return str(refused.value)


def written(folder: Path, loss: str) -> Path:
    path = folder / "run.toml"
    path.write_text(f'[data]\ntrain = "/pairs.tsv"\n[loss]\n{loss}\n', encoding="utf-8")
    return path


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss['name']}-{len(loss)}")
def test_every_loss_is_equal_after_writing_and_reading(tmp_path: Path, loss: dict[str, Any]) -> None:
    path = tmp_path / "run.toml"
    path.write_text(to_toml(config(loss)), encoding="utf-8")
    assert read_config(path) == config(loss)


def test_the_name_comes_first_in_a_loss_section() -> None:
    text = to_toml(config({"name": "combined", "preset": "custom", "parts": PARTS}))
    for section in ("[loss]", "[loss.bsc]", "[loss.parts.loss]"):
        assert text.split(section + "\n")[1].startswith("name = ")


def test_a_loss_without_a_name_is_bsc() -> None:
    assert config({"temperature": 0.2}).loss == config({"name": "bsc", "temperature": 0.2}).loss


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ({"name": "bsc", "temperature": 0}, "loss: temperature is 0; it must be > 0"),
        ({"name": "bsc", "matryoshka_dims": list(range(1, 40))}, "loss.matryoshka_dims"),
        ({"name": "combined", "parts": [{"loss": {"name": "mse"}}] * 21}, "loss.parts"),
        ({"name": "bsc", "temperature": "warm"}, "loss.temperature is 'warm'; give a number"),
        ({"name": "bsc", "tau": 1}, "loss.tau is not a key of the loss bsc; remove it or correct its spelling (known:"),
        (
            {"name": "mse", "margin": 1},
            "it belongs to triplet, contrastive, online_contrastive (known: ",
        ),
        ({"name": "combined", "bsc": {"temperature": 0}}, "loss.bsc: temperature is 0"),
        ({"name": "combined", "bsc": {"tau": 0}}, "loss.bsc.tau is not a key of the loss bsc"),
        ({"name": "combined", "preset": "custom"}, "preset is custom and parts is empty"),
        ({"name": "softmax", "features": ["u", "w"]}, "loss.features.1 is 'w'"),
        ({"name": "softmax", "features": []}, "loss: features is []; name at least one"),
        ({"name": "triplet", "margin": -1}, "loss.margin is -1; input should be greater than 0"),
    ],
)
def test_an_error_names_the_key_as_in_the_file(loss: dict[str, Any], words: str) -> None:
    assert words in refusal(loss)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"name": "bsc", "temperature": 0}, "loss.parts.0.loss: temperature is 0"),
        ({"name": "triplet", "distance": "far"}, "loss.parts.0.loss.distance is 'far'"),
        ({"name": "combined"}, "loss.parts.0.loss.name is 'combined'; it must be one of bsc, mnrl"),
    ],
)
def test_an_error_in_a_term_of_a_sum_names_the_term(part: dict[str, Any], words: str) -> None:
    assert words in refusal({"name": "combined", "preset": "custom", "parts": [{"loss": part}]})


def test_the_error_for_an_unknown_loss_lists_the_names() -> None:
    message = refusal({"name": "infonce"})
    assert message.startswith("config: loss.name is 'infonce'; it must be one of ")
    assert all(name in message for name in LOSS_CONFIGS)


@pytest.mark.parametrize(("loss", "words"), [({"name": 3}, "loss.name is 3"), (3, "loss is 3; write a section")])
def test_a_name_that_is_not_a_string_is_refused(loss: Any, words: str) -> None:
    message = refusal(loss)
    assert words in message
    assert "name_of" not in message


def test_errors_of_a_single_section_are_explained_too() -> None:
    with pytest.raises(ValidationError) as fault:
        TypeAdapter(LossConfig).validate_python({"name": "mnrl", "symmetric": True})
    assert validation_message(fault.value).startswith(
        "symmetric is not a key of the loss mnrl; remove it: it belongs to bsc"
    )
    with pytest.raises(ValidationError) as fault:
        DataConfig.model_validate({"train": "x", "column": 1})
    assert "dev_size" in validation_message(fault.value)
    with pytest.raises(ValidationError) as fault:
        TypeAdapter(LossConfig).validate_python({"name": "odd"})
    assert validation_message(fault.value).startswith("name is 'odd'; it must be one of")


def test_a_key_of_another_loss_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, 'name = "bsc"\ntemperature = 0.05')
    with pytest.raises(ConfigError, match=r"loss\.temperature is not a key of the loss mse; remove it: it belongs to"):
        read_config(path, ["loss.name=mse"])


def test_a_combined_loss_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, 'name = "combined"\npreset = "custom"')
    parts = '[{weight = 0.3, loss = {name = "mse"}}, {loss = {name = "bsc", temperature = 0.05}}]'
    summands = read_config(path, [f"loss.parts={parts}", "loss.parts.1.weight=0.7"]).loss.summands
    assert [(part.weight, part.loss.name) for part in summands] == [(0.3, "mse"), (0.7, "bsc")]
    for last, words in (("loss.parts.5.weight=1", "5 is a value, not a section"), ("loss.parts.0=1", "an entry of a")):
        with pytest.raises(ConfigError, match=words):
            read_config(path, [f"loss.parts={parts}", last])


def test_none_unsets_a_key_unless_it_is_a_value_of_the_key(tmp_path: Path) -> None:
    path = written(tmp_path, 'name = "softmax"\nhidden = 8\nactivation = "relu"')
    loss = read_config(path, ["loss.hidden=none", "loss.activation=none"]).loss
    assert (loss.hidden, loss.activation) == (None, "none")


def test_data_paths_are_relative_to_the_config_file_and_hub_ids_are_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        '[data]\ntrain = "hf://owner/name?split=train"\ndev = "dev.csv"\nmix = ["more.csv", "hf://owner/other"]\n'
        'false_negatives = "marks.tsv"\n',
        encoding="utf-8",
    )
    data = read_config(path).data
    assert data.train == "hf://owner/name?split=train"
    assert data.dev == str(tmp_path / "dev.csv")
    assert data.mix == (str(tmp_path / "more.csv"), "hf://owner/other")
    assert data.false_negatives == str(tmp_path / "marks.tsv")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["1\n" + "a." * 200_000 + "a=1", "{" + "a." * 200_000 + "a=1}", "1\nother = 2"])
def test_a_value_of_several_lines_or_a_very_long_one_is_text(text):
    assert parse_value(text) == text


def test_a_truth_value_in_place_of_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="epochs is true; give a number"):
        read_config(written(tmp_path, 'name = "bsc"'), ["training.epochs=true"])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.epochs=" + "9" * 400, "training.epochs is 9"),
        ("loss.temperature=0x" + "f" * 4000, "loss.temperature is too long"),
        ("training" + ".a" * 3000 + "=1", "training"),
    ],
    ids=["epochs", "digits", "keys"],
)
def test_a_huge_number_or_a_deep_key_is_refused_in_one_sentence(tmp_path: Path, setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        read_config(written(tmp_path, 'name = "bsc"'), [setting])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (".".join(["a"] * 1_000) + " = 1", "have more dots than those of a config"),
        ("[" + ".".join("a" * 600) + "]\n" + "b = 1\n" * 2_000, "have more dots than those of a config"),
        ("[" + ".".join(["'b.c'"] * 1_000) + "]", "have more dots than those of a config"),
        ('x = { y = """"a""", ' + ".".join(["a"] * 1_000) + ' = 1, z = """"b""" }', "have more dots than"),
        ('x."' + ".".join(["a"] * 100) + '" = [1]', "has more than 20 parts"),
        ("x = {" + ".".join(['"d"'] * 1_000) + " = 1}", "have more dots than those of a config"),
        ("x = " + "[" * 900 + "]" * 900, "nested too deeply"),
        ("#" * 600_000, "has 600,000"),
    ],
)
def test_a_file_of_another_size_than_a_config_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((FileFormatError, ConfigError), match=reason):
        read_config(path)


@pytest.mark.parametrize("path", ["a\\u0000b", "~nobody-of-this-name/x"])
def test_a_path_that_cannot_exist_is_refused_when_it_is_opened(tmp_path: Path, path: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'[data]\ntrain = "{path}"\n', encoding="utf-8")
    with pytest.raises(PathError, match="not a valid path"):
        load_data(read_config(file).data, seed=0)
