"""Sweeps as configs: how many runs, which settings, and what is refused before a run is made."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from bsc_core.config import SweepConfig, count_runs, make_config, make_sweep, read_config, read_sweep, sweep_configs
from bsc_core.config.sweep import settings
from bsc_core.errors import ConfigError

BASE: dict[str, Any] = {"data": {"train": "pairs.tsv"}}
TEMPERATURES, SIZES = (0.05, 0.1, 0.2), (16, 32)
GRID = SweepConfig(over={"loss.temperature": TEMPERATURES, "training.batch_size": SIZES})


def test_a_grid_makes_every_combination_once() -> None:
    configs = sweep_configs(BASE, GRID)
    made = [(config.loss.temperature, config.training.batch_size) for config in configs]  # type: ignore[union-attr]
    assert made == list(itertools.product(TEMPERATURES, SIZES))
    assert len(configs) == count_runs(GRID) == 6


def test_each_setting_has_all_seeds_and_every_run_one() -> None:
    values = BASE | {"training": {"seeds": [3, 5]}}
    configs = sweep_configs(values, GRID)
    assert [config.training.seed for config in configs] == [3, 5] * 6
    assert {config.training.seeds for config in configs} == {()}
    assert len(configs) == count_runs(GRID, (3, 5)) == 12


def test_seeds_alone_are_a_sweep_too() -> None:
    assert [config.training.seed for config in sweep_configs(BASE | {"training": {"seeds": [1, 2]}}, None)] == [1, 2]
    assert sweep_configs(BASE, None) == [make_config(BASE)]


def test_random_draws_different_settings_of_the_grid_and_the_same_ones_for_a_seed() -> None:
    drawn = SweepConfig(over=GRID.over, method="random", runs=4, seed=1)
    found = list(settings(drawn))
    assert found == list(settings(drawn))
    assert len({tuple(one.items()) for one in found}) == 4 == count_runs(drawn)
    assert all(one in list(settings(GRID)) for one in found)
    every = SweepConfig(over=GRID.over, method="random", runs=6)
    assert sorted(map(repr, settings(every))) == sorted(map(repr, settings(GRID)))
    assert list(settings(every)) != list(settings(SweepConfig(over=GRID.over, method="random", runs=6, seed=7)))


def test_the_number_of_runs_needs_no_run_to_be_made() -> None:
    many = {f"loss.key{number}": tuple(range(10)) for number in range(30)}
    assert count_runs(SweepConfig(over=many), (1, 2)) == 2 * 10**30
    assert len(list(settings(SweepConfig(over=many, method="random", runs=3)))) == 3


def test_the_values_that_are_swept_do_not_change_what_the_caller_holds() -> None:
    values: dict[str, Any] = {"data": {"train": "a"}, "loss": {"name": "bsc", "temperature": 0.3}}
    sweep_configs(values, GRID)
    assert values == {"data": {"train": "a"}, "loss": {"name": "bsc", "temperature": 0.3}}


def test_whole_sections_and_unset_keys_can_be_swept() -> None:
    losses = ({"name": "bsc"}, {"name": "mnrl"})
    configs = sweep_configs(BASE, SweepConfig(over={"loss": losses, "training.steps": ("none", 5)}))
    assert [(config.loss.name, config.training.steps) for config in configs] == [
        ("bsc", None),
        ("bsc", 5),
        ("mnrl", None),
        ("mnrl", 5),
    ]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"over": {"loss.temperature": []}}, "over.loss.temperature is empty; give it at least one value"),
        ({"over": {"loss": {"temperature": 0.1}}}, "over.loss.temperature is 0.1; give a list of values"),
        ({"over": {"loss.mu": [1, 1]}}, "its values must differ"),
        ({"over": {"loss..mu": [1]}}, "write it as section.key"),
        ({"over": {"training.seeds": [[1], [2]]}}, "seeds are no setting: list them in [training]"),
        ({"over": {"loss.mu": [1]}, "runs": 1}, "it belongs to method = 'random'"),
        ({"over": {"loss.mu": [1]}, "method": "random"}, "runs is missing; say how many combinations"),
        ({"over": {"loss.mu": [1, 2]}, "method": "random", "runs": 3}, "there are 2 combinations"),
        ({"over": {"loss.mu": [1]}, "rnus": 3}, "rnus is not a known key"),
        ({}, "over is missing"),
    ],
)
def test_a_sweep_that_cannot_work_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_sweep(values)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_setting_that_cannot_work_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"with loss.temperature = -1, training.batch_size = 16: loss: temperature is -1"
    ):
        sweep_configs(BASE, SweepConfig(over={"loss.temperature": (0.1, -1), "training.batch_size": (16,)}))


def test_seeds_and_a_sweep_over_the_seed_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="keep one of the two"):
        sweep_configs(BASE | {"training": {"seeds": [1, 2]}}, SweepConfig(over={"training.seed": (1, 2)}))


def test_a_file_and_the_command_line_name_one_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "sweep.toml"
    path.write_text(
        '[data]\ntrain = "pairs.tsv"\n[sweep.over]\n"loss.temperature" = [0.05, 0.1]\n'
        'batching.strategy = ["random", "words"]\ndata.train = ["a.tsv", "b.tsv"]\n'
    )
    over = ("loss.temperature=0.2,0.3", "data.dev=c.tsv", "batching.strategy=random,clusters")
    values, sweep = read_sweep(path, ["training.batch_size=4"], over)
    assert sweep is not None
    assert sweep.over == {
        "loss.temperature": (0.2, 0.3),
        "batching.strategy": ("random", "clusters"),
        "data.train": (str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv")),
        "data.dev": (str(tmp_path / "here" / "c.tsv"),),
    }
    assert values["training"] == {"batch_size": 4}
    assert count_runs(sweep) == len(sweep_configs(values, sweep)) == 8
    drawn = read_sweep(path, (), over, random=3)[1]
    assert drawn is not None
    assert (drawn.method, drawn.runs) == ("random", 3)


def test_a_file_without_a_sweep_is_one_run(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[data]\ntrain = "pairs.tsv"\n')
    assert read_sweep(path)[1] is None
    with pytest.raises(ConfigError, match=r"--over loss\.temperature: write it as"):
        read_sweep(path, (), ["loss.temperature"])


def test_a_sweep_is_not_taken_for_one_run(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text('[data]\ntrain = "pairs.tsv"\n[sweep.over]\nloss.mu = [1]\n')
    with pytest.raises(ConfigError, match="use `bsc sweep"):
        read_config(path)
    path.write_text('[data]\ntrain = "pairs.tsv"\n[sweep]\nover = 3\n')
    with pytest.raises(ConfigError, match="over is 3; write"):
        read_sweep(path)
