"""Configs of sweeps: settings, number of runs, and errors."""

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


def test_a_grid_has_every_combination_once() -> None:
    configs = sweep_configs(BASE, GRID)
    result = [(config.loss.temperature, config.training.batch_size) for config in configs]  # type: ignore[union-attr]
    assert result == list(itertools.product(TEMPERATURES, SIZES))
    assert len(configs) == count_runs(GRID) == 6


def test_each_setting_has_one_run_per_seed() -> None:
    values = BASE | {"training": {"seeds": [3, 5]}}
    configs = sweep_configs(values, GRID)
    assert [config.training.seed for config in configs] == [3, 5] * 6
    assert {config.training.seeds for config in configs} == {()}
    assert len(configs) == count_runs(GRID, (3, 5)) == 12


def test_seeds_alone_are_a_sweep_too() -> None:
    assert [config.training.seed for config in sweep_configs(BASE | {"training": {"seeds": [1, 2]}}, None)] == [1, 2]
    assert sweep_configs(BASE, None) == [make_config(BASE)]


def test_random_samples_distinct_settings_and_is_reproducible() -> None:
    sampled = SweepConfig(over=GRID.over, method="random", runs=4, seed=1)
    result = list(settings(sampled))
    assert result == list(settings(sampled))
    assert len({tuple(one.items()) for one in result}) == 4 == count_runs(sampled)
    assert all(one in list(settings(GRID)) for one in result)
    every = SweepConfig(over=GRID.over, method="random", runs=6)
    assert sorted(map(repr, settings(every))) == sorted(map(repr, settings(GRID)))
    assert list(settings(every)) != list(settings(SweepConfig(over=GRID.over, method="random", runs=6, seed=7)))


def test_the_number_of_runs_is_computed_without_building_configs() -> None:
    many = {f"loss.key{number}": tuple(range(10)) for number in range(30)}
    assert count_runs(SweepConfig(over=many), (1, 2)) == 2 * 10**30
    assert len(list(settings(SweepConfig(over=many, method="random", runs=3)))) == 3


def test_a_sweep_does_not_modify_the_given_values() -> None:
    values: dict[str, Any] = {"data": {"train": "a"}, "loss": {"name": "bsc", "temperature": 0.3}}
    sweep_configs(values, GRID)
    assert values == {"data": {"train": "a"}, "loss": {"name": "bsc", "temperature": 0.3}}


def test_sections_and_unset_keys_can_be_swept() -> None:
    losses = ({"name": "bsc"}, {"name": "mnrl"})
    configs = sweep_configs(BASE, SweepConfig(over={"loss": losses, "training.max_steps": ("none", 5)}))
    assert [(config.loss.name, config.training.max_steps) for config in configs] == [
        ("bsc", None),
        ("bsc", 5),
        ("mnrl", None),
        ("mnrl", 5),
    ]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"over": {"loss.temperature": []}}, "over.loss.temperature is empty; give at least one value"),
        ({"over": {"loss": {"temperature": 0.1}}}, "over.loss.temperature is 0.1; give a list of values"),
        ({"over": {"loss.mu": [1, 1]}}, "its values must be distinct"),
        ({"over": {"loss..mu": [1]}}, "write it as section.key"),
        ({"over": {"training.seeds": [[1], [2]]}}, "list the seeds in [training] instead"),
        ({"over": {"loss.mu": [1]}, "runs": 1}, "a grid runs all combinations"),
        ({"over": {"loss.mu": [1]}, "method": "random"}, "runs is missing; set the number of combinations"),
        ({"over": {"loss.mu": [1, 2]}, "method": "random", "runs": 3}, "there are 2 combinations"),
        ({"over": {"loss.mu": [1]}, "rnus": 3}, "rnus is not a known key"),
        ({}, "over is missing"),
    ],
)
def test_an_invalid_sweep_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_sweep(values)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_invalid_setting_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"with loss.temperature = -1, training.batch_size = 16: loss: temperature is -1"
    ):
        sweep_configs(BASE, SweepConfig(over={"loss.temperature": (0.1, -1), "training.batch_size": (16,)}))


def test_seeds_and_a_sweep_over_the_seed_are_refused() -> None:
    with pytest.raises(ConfigError, match="set one of the two"):
        sweep_configs(BASE | {"training": {"seeds": [1, 2]}}, SweepConfig(over={"training.seed": (1, 2)}))


def test_a_file_and_the_command_line_are_combined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    sampled = read_sweep(path, (), over, random=3)[1]
    assert sampled is not None
    assert (sampled.method, sampled.runs) == ("random", 3)


def test_a_file_without_a_sweep_is_one_run(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[data]\ntrain = "pairs.tsv"\n')
    assert read_sweep(path)[1] is None
    with pytest.raises(ConfigError, match=r"--over loss\.temperature: write it as"):
        read_sweep(path, (), ["loss.temperature"])


def test_read_config_refuses_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text('[data]\ntrain = "pairs.tsv"\n[sweep.over]\nloss.mu = [1]\n')
    with pytest.raises(ConfigError, match="use `bsc sweep"):
        read_config(path)
    path.write_text('[data]\ntrain = "pairs.tsv"\n[sweep]\nover = 3\n')
    with pytest.raises(ConfigError, match="over is 3; write"):
        read_sweep(path)


@pytest.mark.parametrize("over", [{"training.seed": range(101), "training.epochs": range(1, 101)}, {}])
def test_a_sweep_of_very_many_runs_is_refused_before_all_are_built(over: dict[str, range]) -> None:
    sweep = make_sweep({"over": {key: list(values) for key, values in over.items()}}) if over else None
    values = {"data": {"train": "pairs.tsv"}} | ({} if over else {"training": {"seeds": list(range(10_001))}})
    with pytest.raises(ConfigError, match="at most 10,000 runs"):
        sweep_configs(values, sweep)


class Counted(int):
    """An integer that counts its comparisons."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__eq__(other)

    __hash__ = int.__hash__


def test_the_comparisons_of_values_do_not_grow_quadratically() -> None:
    make_sweep({"over": {"training.seed": list(map(Counted, range(1000)))}})
    assert Counted.comparisons < 10_000
    with pytest.raises(ConfigError, match="its values must be distinct"):
        make_sweep({"over": {"evaluation.k": [[1], [2], [1]]}})
