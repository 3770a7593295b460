"""A loss from its config, written to disk and read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bsc_core.config import LOSS_CONFIGS
from bsc_core.errors import CheckpointError
from bsc_core.losses import LOSSES, load_loss, save_loss
from tests.losses.oracles import loss_of


def build(values: dict[str, object], dimensions: int | None = 6) -> torch.nn.Module:
    return loss_of(**values, threshold=0.3, dimensions=dimensions)


@pytest.mark.parametrize("name", LOSS_CONFIGS)
def test_a_loss_is_built_from_its_name(name: str) -> None:
    assert type(build({"name": name})) is LOSSES[name]


@pytest.mark.parametrize(
    "values",
    [
        {"name": "bsc", "learn_temperature": True},
        {"name": "softmax", "hidden": 5, "features": ["u", "v"]},
        {"name": "supcon", "learn_temperature": True, "temperature_parameter": "linear"},
        {"name": "combined", "preset": "custom", "parts": [{"loss": {"name": "mnrl"}}, {"loss": {"name": "softmax"}}]},
        {"name": "mse"},
    ],
)
def test_a_saved_loss_loads_unchanged(values: dict[str, object], tmp_path: Path) -> None:
    loss = build(values)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(0.25)
    save_loss(loss, tmp_path / "loss")
    read = load_loss(tmp_path / "loss")
    assert read.config == loss.config
    assert not read.training
    assert all(torch.equal(read.state_dict()[name], value) for name, value in loss.state_dict().items())
    assert getattr(read, "threshold", 0.3) == getattr(loss, "threshold", 0.3)


def test_a_head_without_a_known_width_takes_it_from_the_first_batch() -> None:
    loss = build({"name": "softmax"}, dimensions=None)
    loss(torch.randn(3, 4), torch.randn(3, 4), None, classes=torch.tensor([0, 1, 2]))
    assert loss.head[0].weight.shape == (3, 12)


def test_probabilities_of_a_head_add_up_to_one() -> None:
    loss = build({"name": "softmax"})
    probabilities = loss.predict(torch.randn(5, 6), torch.randn(5, 6))
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(5))


def test_a_frozen_head_is_kept_but_not_trained() -> None:
    loss = build({"name": "softmax", "frozen_head": True})
    assert not any(parameter.requires_grad for parameter in loss.parameters())
    assert "head.0.weight" in loss.state_dict()


def test_a_temperature_of_a_sum_is_its_first_parts() -> None:
    assert build({"name": "combined", "bsc": {"temperature": 0.2}}).temperature.value == 0.2
    parts = [{"loss": {"name": "mse"}}, {"loss": {"name": "pearson"}}]
    assert build({"name": "combined", "preset": "custom", "parts": parts}).temperature is None


def test_two_summands_of_one_kind_get_distinct_names() -> None:
    parts = [{"loss": {"name": "bsc"}}, {"weight": 2, "loss": {"name": "bsc", "temperature": 1}}]
    terms = build({"name": "combined", "preset": "custom", "parts": parts})(torch.randn(4, 6), torch.randn(4, 6)).terms
    assert {"bsc", "bsc_2", "bsc.query_to_document", "bsc_2.document_to_query"} <= set(terms)


def broken(folder: Path, kind: str) -> None:
    save_loss(build({"name": "softmax"}), folder)
    settings, weights = folder / "loss.json", folder / "loss.safetensors"
    if kind == "missing":
        weights.unlink()
    elif kind == "truncated":
        weights.write_bytes(weights.read_bytes()[:40])
    elif kind == "foreign":
        settings.write_text(json.dumps({"config": {"name": "nope"}, "threshold": 0.5}), encoding="utf-8")
    elif kind == "another shape":
        save_loss(build({"name": "softmax", "num_classes": 5}), folder / "other")
        weights.write_bytes((folder / "other" / "loss.safetensors").read_bytes())
    elif kind == "huge":
        stored = json.loads(settings.read_text(encoding="utf-8"))
        settings.write_text(json.dumps(stored | {"dimensions": 10**12}), encoding="utf-8")
    else:
        settings.write_text("[]", encoding="utf-8")


@pytest.mark.parametrize("kind", ["missing", "truncated", "foreign", "another shape", "huge", "no settings"])
def test_a_broken_saved_loss_is_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    broken(tmp_path, kind)
    with pytest.raises(CheckpointError, match="not a saved loss"):
        load_loss(tmp_path)
