"""Two processes compute the gradients of one, for every kind of loss, cached or not."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.training.loop.distributed import MICRO_BATCHES_EACH, Distributed
from tests.helpers.warm_processes import two_processes

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("two_ranks.py")
KINDS = (
    *("bsc", "columns", "softmax", "supcon", "simcse"),
    *("mask and weights", "debiased in four directions", "decoupled matryoshka", "sigmoid", "angle"),
)


@pytest.fixture(scope="module")
def results(tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    """Results of one process, and of each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    threads = torch.get_num_threads()
    runpy.run_path(str(SCRIPT))["main"](str(tiny_encoder), folder / "alone")
    torch.set_num_threads(threads)
    two_processes(SCRIPT.read_text(encoding="utf-8"), lambda rank: (tiny_encoder, folder / str(rank)), folder)
    return [torch.load(folder / name, weights_only=True) for name in ("alone", "0", "1")]


def test_processes_share_decisions(results: list[dict[str, torch.Tensor]]) -> None:
    alone, first, second = results
    assert [int(result["count"]) for result in results] == [1, 2, 2]
    assert [bool(result["main"]) for result in results] == [True, True, False]
    assert int(alone["shared"]) == int(first["shared"]) == int(second["shared"]) == 7


@pytest.mark.parametrize("mode", ["never", "always", "auto"])
@pytest.mark.parametrize("number", range(len(KINDS)), ids=KINDS)
def test_two_processes_give_the_gradients_of_one(results, number: int, mode: str) -> None:
    assert_same_gradients(results, f"{number} {mode} ")


@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_process_may_have_nothing_to_encode(results, mode: str) -> None:
    assert_same_gradients(results, f"small {mode} ")


def assert_same_gradients(results: list[dict[str, torch.Tensor]], start: str) -> None:
    names = [name for name in results[0] if name.startswith(start)]
    assert len(names) > 20
    for name in names:
        alone, first, second = (result[name] for result in results)
        assert torch.allclose(first, alone, atol=1e-6, rtol=1e-4), name  # sums in another order
        assert torch.equal(first, second), name


def test_two_processes_train_to_the_same_weights(results) -> None:
    alone, first, second = results
    weights = [name for name in alone if name.startswith("weight ")]
    assert all(torch.equal(first[name], second[name]) for name in weights)
    assert all(torch.allclose(first[name], alone[name], atol=1e-4) for name in weights)
    assert torch.allclose(first["losses"], alone["losses"], atol=1e-4)
    assert torch.allclose(first["memory"], alone["memory"], atol=1e-3)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    count=st.integers(1, 5),
    rows=st.integers(1, 9),
)
def test_every_text_is_assigned_once_and_the_loads_are_even(lengths: list[int], count: int, rows: int) -> None:
    tokens = np.array(sorted(lengths, reverse=True))
    distributed = Distributed(0, count)
    pieces = distributed.split(
        [np.arange(start, min(start + rows, len(tokens))) for start in range(0, len(tokens), rows)]
    )
    assigned = distributed.assign(pieces, tokens)
    assert len(assigned) == count
    assert sorted(number for numbers in assigned for number in numbers) == list(range(len(pieces)))
    assert sorted(np.concatenate(pieces).tolist()) == list(range(len(tokens)))
    if count > 1 and len(tokens) >= MICRO_BATCHES_EACH * count * rows:
        assert len(pieces) >= MICRO_BATCHES_EACH * count
    loads = [sum(int(tokens[pieces[number]].sum()) for number in numbers) for numbers in assigned]
    assert max(loads) - min(loads) <= max(int(tokens[piece].sum()) for piece in pieces)
