"""Every loss trains from a config on suitable data, and refuses data that lack what it needs."""

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
from bsc_core.pipeline import check_dropout, run_experiment
from bsc_core.runs import RunStore
from bsc_core.training.checkpoint import checkpoints, read_checkpoint
from bsc_core.training.data import select_training_rows

ROOT = Path(__file__).resolve().parents[2]
GRADED = {"train": str(ROOT / "sample_data" / "pairs.tsv")}
TRAINING = {
    **{"max_steps": 3, "batch_size": 8, "learning_rate": 1e-3, "warmup_ratio": 0},
    **{"threads": 1, "precision": "fp32"},
}
CLASSES = {"train": str(ROOT / "sample_data" / "nli.tsv")}


def config_of(loss: dict[str, Any], data: dict[str, Any], encoder: Path | str, **training: Any):
    return make_config(
        {
            "data": data,
            "encoder": {"name": str(encoder), "max_seq_length": 16},
            "batching": {"strategy": "random"},
            "loss": loss,
            "training": {**TRAINING, **training},
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
    (
        {"name": "mnrl", "mask": "guide", "mask_guide": "static", "directions": ["query_to_doc", "query_to_query"]},
        GRADED,
    ),
    ({"name": "bsc", "mask": "self", "hardness": "all_negatives", "matryoshka_dims": [16, 32]}, GRADED),
    ({"name": "sigmoid"}, GRADED),
    ({"name": "cosent"}, GRADED),
    ({"name": "angle"}, GRADED),
]


def test_no_loss_is_left_out_of_the_cases() -> None:
    assert {loss["name"] for loss, _ in CASES} == set(LOSS_CONFIGS)


@pytest.mark.parametrize(
    ("loss", "data"), CASES, ids=[f"{number}{loss['name']}" for number, (loss, _) in enumerate(CASES)]
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
    config = config_of({"name": "softmax"}, CLASSES, tiny_encoder, max_steps=6)
    run, result = run_of(config, tmp_path)
    saved = load_loss(run.folder / "loss")
    state = read_checkpoint(checkpoints(run.checkpoints_folder)[-1]).loss
    assert all(torch.equal(saved.state_dict()[name], value) for name, value in state.items())
    assert 0 <= result["metrics"]["after"]["dev"]["class_accuracy"] <= 1
    frozen = {"name": "softmax", "frozen_head": True}
    runs = [run_of(config_of(frozen, CLASSES, tiny_encoder, max_steps=steps), tmp_path)[0] for steps in (1, 6)]
    first, last = (load_loss(run.folder / "loss") for run in runs)
    assert all(torch.equal(first.state_dict()[name], value) for name, value in last.state_dict().items())
    assert not torch.equal(saved.state_dict()["head.0.weight"], last.state_dict()["head.0.weight"])


def test_a_learned_temperature_is_saved_with_the_best_model(tiny_encoder, tmp_path: Path) -> None:
    loss = {"name": "bsc", "learn_temperature": True}
    run, _ = run_of(config_of(loss, GRADED, tiny_encoder, temperature_learning_rate=0.1), tmp_path)
    last = steps_of(run)[-1]
    assert load_loss(run.folder / "loss").temperature.value == pytest.approx(last["temperature"])
    assert last["temperature"] != pytest.approx(0.1, rel=1e-3)


def test_an_impossible_margin_is_reported_in_the_log(tiny_encoder, tmp_path: Path, capsys) -> None:
    run_of(config_of({"name": "triplet", "margin": 5}, GRADED, tiny_encoder, max_steps=1), tmp_path)
    assert "Note: The margin is 5; two cosine distances differ by at most 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mse", "learns from labels"),
        ("softmax", r"learns from classes.*data\.columns\.class_label"),
        ("triplet", r"data\.columns\.negative"),
    ],
)
def test_data_that_lack_what_the_loss_needs_are_refused(name: str, message: str, tmp_path: Path, tiny_encoder) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("query,document\n" + "".join(f"q{n},d{n}\n" for n in range(6)), encoding="utf-8")
    config = config_of({"name": name}, {"train": str(path)}, tiny_encoder)
    with pytest.raises(DataError, match=message):
        select_training_rows(config, read_pairs(path))


def test_a_class_beyond_the_head_is_refused(tiny_encoder) -> None:
    config = config_of({"name": "softmax", "num_classes": 2}, CLASSES, tiny_encoder)
    with pytest.raises(DataError, match=r"class 2 does not fit a head of 2.*num_classes"):
        select_training_rows(config, read_pairs(CLASSES["train"]))


def test_two_views_of_an_encoder_without_dropout_are_refused() -> None:
    with pytest.raises(ConfigError, match="static has no dropout"):
        check_dropout(config_of({"name": "simcse"}, GRADED, "static"), torch.nn.EmbeddingBag(3, 2))


def test_a_run_is_repeatable_although_supcon_samples_negatives(tiny_encoder, tmp_path: Path) -> None:
    loss = {"name": "supcon", "max_negatives": 2, "mix": 1.0}
    losses = []
    for _ in range(2):
        run, _ = run_of(config_of(loss, CLASSES, tiny_encoder), tmp_path)
        losses.append([row["loss"] for row in steps_of(run)])
    assert losses[0] == losses[1]
