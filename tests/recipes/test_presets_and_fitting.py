"""Presets are valid and say what the papers did; the losses offered for a dataset are those that can learn from it."""

from __future__ import annotations

import pytest

from bsc_core.config import LOSS_CONFIGS, RunConfig, make_config
from bsc_core.data import PairDataset, load_data
from bsc_core.errors import DataError
from bsc_core.recipes.fitting import fitting_losses, shape_of
from bsc_core.recipes.papers import TASKS
from bsc_core.recipes.presets import PRESETS, preset_config
from bsc_core.recipes.sample import sample_config, sample_nli_config
from bsc_core.training.rows import training_rows

IN_BATCH = {"bsc", "mnrl"}
ON_LABELS = {"combined", "mse", "pearson", "contrastive", "online_contrastive"}


def with_loss(name: str) -> RunConfig:
    return make_config({"data": {"train": "pairs.tsv"}, "loss": {"name": name}})


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_a_valid_config(name: str) -> None:
    config = preset_config(name, sample_config())
    assert config.loss.name == PRESETS[name].values["loss"]["name"]
    assert config.training.batch_size >= 2


def test_titles_of_presets_tell_them_apart() -> None:
    assert len({preset.title for preset in PRESETS.values()}) == len(PRESETS)
    assert all(preset.when.endswith(".") for preset in PRESETS.values())


@pytest.mark.parametrize("task", list(TASKS))
def test_a_papers_task_has_the_same_settings_alone_and_combined(task: str) -> None:
    alone, combined = (preset_config(f"paper_{task}{end}", sample_config()) for end in ("", "_combined"))
    assert combined.loss.bsc == alone.loss
    assert combined.loss.mu == TASKS[task].mu
    assert (combined.training, combined.batching) == (alone.training, alone.batching)


def test_presets_between_them_use_nearly_every_loss() -> None:
    used = {preset.values["loss"]["name"] for preset in PRESETS.values()}
    assert set(LOSS_CONFIGS) - used == {"pearson"}


def test_positives_alone_fit_the_in_batch_losses() -> None:
    train = PairDataset.from_pairs(["a", "b", "c"], ["d", "e", "f"])
    assert set(fitting_losses(shape_of(train))) == IN_BATCH | {"simcse"}


def test_graded_labels_fit_regression_and_wrong_documents_fit_triplets() -> None:
    graded = PairDataset.from_pairs(["a", "a", "b", "b"], ["c", "d", "e", "f"], [1.0, 0.2, 0.9, 0.0])
    assert set(fitting_losses(shape_of(graded))) == IN_BATCH | ON_LABELS | {"triplet", "simcse"}
    wrong = PairDataset.from_pairs(["a", "b"], ["c", "d"], negatives=["e", "f"])
    assert set(fitting_losses(shape_of(wrong))) == IN_BATCH | {"triplet", "simcse"}


def test_labels_that_never_differ_teach_no_regression() -> None:
    train = PairDataset.from_pairs(["a", "b", "c"], ["d", "e", "f"], [1.0, 1.0, 1.0])
    assert set(fitting_losses(shape_of(train))) == IN_BATCH | {"simcse"}


def test_classes_fit_the_classifiers() -> None:
    train = load_data(sample_nli_config(), seed=0).train
    assert {"softmax", "supcon"} <= set(fitting_losses(shape_of(train)))
    assert shape_of(train).classes == 3


@pytest.mark.parametrize("name", list(LOSS_CONFIGS))
def test_a_loss_that_fits_is_never_refused_by_the_run(name: str) -> None:
    for data in (
        PairDataset.from_pairs(["a", "b", "c"], ["d", "e", "f"]),
        PairDataset.from_pairs(["a", "a", "b", "b"], ["c", "d", "e", "f"], [1.0, 0.2, 0.9, 0.0]),
        PairDataset.from_pairs(["a", "b"], ["c", "d"], negatives=["e", "f"], classes=[0, 1]),
    ):
        try:
            training_rows(with_loss(name), data)
        except DataError:
            assert name not in fitting_losses(shape_of(data))
