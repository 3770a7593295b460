"""Presets are valid and follow the papers; the losses offered for a dataset can learn from it."""

from __future__ import annotations

import pytest

from bsc_core.config import LOSS_CONFIGS, RunConfig, count_runs, make_config, make_sweep, sweep_configs
from bsc_core.data import PairDataset, load_data
from bsc_core.data.sample_data import sample_config, sample_nli_config
from bsc_core.errors import DataError
from bsc_core.presets.catalog import FAMILIES, PRESETS, TASKS, family_of, preset_config
from bsc_core.presets.suitable_losses import shape_of, suitable_losses
from bsc_core.training.data import select_training_rows

IN_BATCH = {"bsc", "mnrl", "sigmoid"}
ON_LABELS = {"combined", "mse", "pearson", "cosent", "angle", "contrastive", "online_contrastive"}


def with_loss(name: str) -> RunConfig:
    return make_config({"data": {"train": "pairs.tsv"}, "loss": {"name": name}})


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_a_valid_config(name: str) -> None:
    config = preset_config(name, sample_config())
    assert config.loss.name == PRESETS[name].values["loss"]["name"]
    assert config.training.batch_size >= 2


def test_titles_of_presets_are_unique() -> None:
    for presets in FAMILIES.values():
        assert len({preset.title for preset in presets.values()}) == len(presets)
    assert sum(map(len, FAMILIES.values())) == len(PRESETS)
    assert all(preset.when.endswith(".") for preset in PRESETS.values())


@pytest.mark.parametrize("task", list(TASKS))
def test_a_papers_task_has_the_same_settings_alone_and_combined(task: str) -> None:
    alone, combined = (preset_config(f"paper_{task}{end}", sample_config()) for end in ("", "_combined"))
    assert combined.loss.bsc == alone.loss
    assert combined.loss.mu == TASKS[task]["mu"]
    assert (combined.training, combined.batching) == (alone.training, alone.batching)


def test_presets_cover_every_loss_and_every_strategy_of_the_papers() -> None:
    of_others = {"sigmoid", "cosent", "angle"}
    assert {preset.values["loss"]["name"] for preset in PRESETS.values()} == set(LOSS_CONFIGS) - of_others
    orders = {preset.values["batching"]["strategy"] for preset in FAMILIES["BSC paper"].values()}
    assert orders == {"nearest", "random", "clusters", "sequential"}


def test_the_family_of_a_preset_contains_it() -> None:
    assert all(name in FAMILIES[family_of(name)] for name in PRESETS)


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.sweep])
def test_the_sweep_of_a_preset_contains_its_value_and_every_run_is_valid(name: str) -> None:
    values = preset_config(name, sample_config()).model_dump(mode="json")
    sweep = make_sweep({"over": PRESETS[name].sweep})
    configs = sweep_configs(values, sweep)
    assert len(configs) == count_runs(sweep, values["training"]["seeds"])
    assert len({config.model_dump_json() for config in configs}) == len(configs)
    alone = {**values, "training": {**values["training"], "seeds": []}}
    first = sweep_configs(values, None)[0]
    assert make_config(alone).model_copy(update={"training": first.training}) in configs


# task: batch, epochs, rate, normalization, temperature, group, mu, bias correction; sections 1 and 3 of the BSC paper
TABLE = """
antique 50 5 2e-5 l2 0.1 8 0.9 no
cqa_a 30 5 2e-5 l2 0.055 8 0.1 yes
cqa_b 30 7 3e-5 l2 0.07 5 0.9 yes
pfcc 30 6 2e-5 range_columns 1.2 8 0.9 no
mrpc 30 6 2e-5 l2 0.1 4 0.1 no
qqp 50 6 2e-5 range_columns 1.2 8 0.1 no
stsb 30 5 2e-5 l2 0.1 8 0.1 no
""".split("\n")[1:-1]


@pytest.mark.parametrize("row", TABLE)
def test_the_settings_of_the_papers_table_are_those_of_the_presets(row: str) -> None:
    name, batch, epochs, rate, normalization, temperature, group, mu, corrected = row.split()
    config = preset_config(f"paper_{name}", sample_config())
    training, loss = config.training, config.loss
    assert (training.batch_size, training.epochs, training.learning_rate) == (int(batch), int(epochs), float(rate))
    assert (loss.normalization, loss.temperature) == (normalization, float(temperature))
    assert config.batching.group_size == int(group)
    assert training.bias_correction == (corrected == "yes")
    assert config.encoder.max_seq_length == 90
    assert preset_config(f"paper_{name}_combined", sample_config()).loss.mu == float(mu)
    assert preset_config(f"paper_{name}_mse", sample_config()).loss.name == "mse"


def test_positives_alone_fit_in_batch_losses() -> None:
    train = PairDataset.from_pairs(["a", "b", "c"], ["d", "e", "f"])
    assert set(suitable_losses(shape_of(train))) == IN_BATCH | {"simcse"}


def test_graded_labels_fit_regression_and_wrong_documents_fit_triplets() -> None:
    graded = PairDataset.from_pairs(["a", "a", "b", "b"], ["c", "d", "e", "f"], [1.0, 0.2, 0.9, 0.0])
    assert set(suitable_losses(shape_of(graded))) == IN_BATCH | ON_LABELS | {"triplet", "simcse"}
    wrong = PairDataset.from_pairs(["a", "b"], ["c", "d"], negatives=["e", "f"])
    assert set(suitable_losses(shape_of(wrong))) == IN_BATCH | {"triplet", "simcse"}


def test_constant_labels_fit_no_regression() -> None:
    train = PairDataset.from_pairs(["a", "b", "c"], ["d", "e", "f"], [1.0, 1.0, 1.0])
    assert set(suitable_losses(shape_of(train))) == IN_BATCH | {"simcse"}


def test_classes_fit_the_classifiers() -> None:
    train = load_data(sample_nli_config(), seed=0).train
    assert {"softmax", "supcon"} <= set(suitable_losses(shape_of(train)))
    assert shape_of(train).classes == 3


@pytest.mark.parametrize("name", list(LOSS_CONFIGS))
def test_a_fitting_loss_is_never_refused_by_a_run(name: str) -> None:
    for data in (
        PairDataset.from_pairs(["a", "b", "c"], ["d", "e", "f"]),
        PairDataset.from_pairs(["a", "a", "b", "b"], ["c", "d", "e", "f"], [1.0, 0.2, 0.9, 0.0]),
        PairDataset.from_pairs(["a", "b"], ["c", "d"], negatives=["e", "f"], classes=[0, 1]),
    ):
        try:
            select_training_rows(with_loss(name), data)
        except DataError:
            assert name not in suitable_losses(shape_of(data))
