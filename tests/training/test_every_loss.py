"""Every loss of the family trains from a config on data of its shape, and says in a sentence what data it lacks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bsc_core.config import LOSS_CONFIGS, make_config
from bsc_core.data import read_pairs
from bsc_core.errors import ConfigError, DataError
from bsc_core.losses import load_loss
from bsc_core.pipeline import run_experiment
from bsc_core.runs import RunStore
from bsc_core.training.checkpoint import checkpoints, read_state
from bsc_core.training.rows import check_views, training_rows

ROOT = Path(__file__).resolve().parents[2]
GRADED = {"train": str(ROOT / "sample_data" / "pairs.tsv")}
CLASSES = {"train": str(ROOT / "sample_data" / "nli.tsv")}


def config_of(loss: dict[str, Any], data: dict[str, Any], encoder: Path | str, **training: Any):
    return make_config(
        {
            "data": data,
            "encoder": {"name": str(encoder), "max_length": 16},
            "batching": {"strategy": "random"},
            "loss": loss,
            "training": {
                **{"steps": 3, "batch_size": 8, "learning_rate": 1e-3, "threads": 1, "precision": "fp32", "warmup": 0},
                **training,
            },
            "evaluation": {"each_epoch": False},
        }
    )


def run_of(config, folder: Path):
    run = RunStore(folder).create(config)
    return run, run_experiment(config, run)


def steps_of(run) -> list[dict[str, Any]]:
    return [row for row in run.metrics()[0] if row["kind"] == "step"]


CASES = [
    ({"name": "bsc", "learn_temperature": True, "duplicates": "multi_positive"}, GRADED),
    ({"name": "bsc", "normalization": "range_columns", "temperature": 1.2, "duplicates": "merge"}, GRADED),
    ({"name": "bsc", "learn_temperature": True, "temperature_parameter": "linear"}, GRADED),
    ({"name": "combined"}, GRADED),
    ({"name": "combined", "preset": "bsc_pearson", "mu": 0.1}, GRADED),
    (
        {
            "name": "combined",
            "preset": "custom",
            "parts": [{"weight": 0.5, "loss": {"name": "softmax"}}, {"loss": {"name": "mnrl"}}],
        },
        CLASSES,
    ),
    ({"name": "mse"}, GRADED),
    ({"name": "pearson"}, GRADED),
    ({"name": "softmax", "hidden": 8, "activation": "tanh"}, CLASSES),
    ({"name": "supcon", "max_positives": 1, "max_negatives": 3, "anchor": "premise"}, CLASSES),
    ({"name": "triplet"}, GRADED),
    ({"name": "contrastive"}, GRADED),
    ({"name": "online_contrastive", "distance": "euclidean"}, GRADED),
    ({"name": "simcse"}, GRADED),
    ({"name": "mnrl"}, GRADED),
]


def test_no_loss_is_left_out_of_the_cases() -> None:
    assert {loss["name"] for loss, _ in CASES} == set(LOSS_CONFIGS)


@pytest.mark.parametrize(
    ("loss", "data"), CASES, ids=[str(number) + case[0]["name"] for number, case in enumerate(CASES)]
)
def test_the_loss_trains_from_a_config(
    loss: dict[str, Any], data: dict[str, str], tiny_encoder, tmp_path: Path
) -> None:
    run, result = run_of(config_of(loss, data, tiny_encoder), tmp_path)
    steps = steps_of(run)
    assert len(steps) == 3
    assert all(math.isfinite(row["loss"]) for row in steps)
    assert max(row["grad_norm"] for row in steps) > 0  # a batch may happen to hold no positive pair
    assert result["state"] == "done"
    before = load_file(str(tiny_encoder / "model.safetensors"))
    after = load_file(str(run.model_folder / "model.safetensors"))
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_classifiers_head_is_trained_saved_and_restored(tiny_encoder, tmp_path: Path) -> None:
    config = config_of({"name": "softmax"}, CLASSES, tiny_encoder, steps=6)
    run, result = run_of(config, tmp_path)
    saved = load_loss(run.folder / "loss")
    state = read_state(checkpoints(run.checkpoints_folder)[-1])["loss"]
    assert all(torch.equal(saved.state_dict()[name], value) for name, value in state.items())
    torch.manual_seed(config.training.seed)
    assert 0 <= result["metrics"]["after"]["dev"]["class_accuracy"] <= 1
    frozen, _ = run_of(config_of({"name": "softmax", "frozen_head": True}, CLASSES, tiny_encoder, steps=6), tmp_path)
    frozen_early, _ = run_of(
        config_of({"name": "softmax", "frozen_head": True}, CLASSES, tiny_encoder, steps=1), tmp_path
    )
    first, last = load_loss(frozen_early.folder / "loss"), load_loss(frozen.folder / "loss")
    assert all(torch.equal(first.state_dict()[name], value) for name, value in last.state_dict().items())
    assert not torch.equal(saved.state_dict()["head.0.weight"], last.state_dict()["head.0.weight"])


def test_a_learned_temperature_is_saved_with_the_best_model(tiny_encoder, tmp_path: Path) -> None:
    loss = {"name": "bsc", "learn_temperature": True}
    run, _ = run_of(config_of(loss, GRADED, tiny_encoder, temperature_learning_rate=0.1), tmp_path)
    last = steps_of(run)[-1]
    assert load_loss(run.folder / "loss").temperature.value == pytest.approx(last["temperature"])
    assert last["temperature"] != pytest.approx(0.1, rel=1e-3)


def test_a_margin_that_cannot_be_met_is_said_in_the_runs_log(tiny_encoder, tmp_path: Path, capsys) -> None:
    run_of(config_of({"name": "triplet", "margin": 5}, GRADED, tiny_encoder, steps=1), tmp_path)
    assert "Note: margin is 5, but cosine distances never exceed 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("loss", "rows", "words"),
    [
        ({"name": "mse"}, ["q", "d"], "learns from labels"),
        ({"name": "softmax"}, ["q", "d"], r"learns from classes.*data\.columns\.class_label"),
        ({"name": "triplet"}, ["q", "d"], r"data\.columns\.negative"),
    ],
)
def test_data_that_lack_what_the_loss_needs_are_refused_by_name(
    loss, rows, words, tmp_path: Path, tiny_encoder
) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("query,document\n" + "".join(f"{rows[0]}{n},{rows[1]}{n}\n" for n in range(6)), encoding="utf-8")
    config = config_of(loss, {"train": str(path)}, tiny_encoder)
    with pytest.raises(DataError, match=words):
        training_rows(config, read_pairs(path))


def test_a_class_beyond_the_head_is_refused(tiny_encoder) -> None:
    config = config_of({"name": "softmax", "num_classes": 2}, CLASSES, tiny_encoder)
    with pytest.raises(DataError, match=r"class 2 has no row in a head of 2.*num_classes"):
        training_rows(config, read_pairs(CLASSES["train"]))


def test_two_views_of_an_encoder_without_dropout_are_refused() -> None:
    with pytest.raises(ConfigError, match="static has no dropout"):
        check_views(config_of({"name": "simcse"}, GRADED, "static"), torch.nn.EmbeddingBag(3, 2))


def test_a_run_repeats_though_supcon_draws_its_negatives(tiny_encoder, tmp_path: Path) -> None:
    loss = {"name": "supcon", "max_negatives": 2, "mix": 1.0}
    losses = []
    for _ in range(2):
        run, _ = run_of(config_of(loss, CLASSES, tiny_encoder), tmp_path)
        losses.append([row["loss"] for row in steps_of(run)])
    assert losses[0] == losses[1]
