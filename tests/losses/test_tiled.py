"""Tiles give the losses and gradients of the full matrix, in the memory of one tile."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from bsc_core.config import BSCLossConfig, MNRLConfig, SupConLossConfig
from bsc_core.losses import build_loss
from bsc_core.losses.kernel import tiled
from bsc_core.losses.kernel.candidate_rules import Diagonal, transpose_rule
from bsc_core.losses.kernel.softmax import logits, masked_softmax
from tests.losses.oracles import softmax_losses

HEIGHT, WIDTH = 7, 9
SIDES = ("left", "right", "temperature")


def batch(scale: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(size, 4, generator=generator, dtype=torch.float64) for size in (HEIGHT, WIDTH))
    tau = torch.tensor(0.7, dtype=torch.float64)
    return [values.requires_grad_() for values in (left * scale, right, tau)]


def random_masks(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(HEIGHT, WIDTH, generator=generator) < 0.3, torch.rand(HEIGHT, WIDTH, generator=generator) < 0.6


def of_masks(positives: Tensor, candidates: Tensor | None):
    def rule(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        return positives[rows, columns], None if candidates is None else candidates[rows, columns]

    return rule


def dense(sides: list[Tensor], rows: tuple[Tensor, Tensor | None], columns: tuple[Tensor, Tensor | None] | None):
    scores = logits(*sides)
    first = softmax_losses(scores, *rows)
    if columns is None:
        return first, None
    return first, softmax_losses(scores.T, columns[0].T, None if columns[1] is None else columns[1].T)


def weighed(losses: tuple[Tensor, Tensor | None]) -> Tensor:
    return sum((part * torch.arange(1, len(part) + 1)).sum() for part in losses if part is not None)


COUNTED = torch.tensor([True, False, True, True, False, True, True])
OF_COLUMNS = torch.cat([COUNTED, torch.zeros(2, dtype=torch.bool)])
OFFERED = torch.cat([COUNTED, torch.ones(2, dtype=torch.bool)])
OWN = torch.eye(HEIGHT, WIDTH, dtype=torch.bool)
CASES = {
    "both directions": (of_masks(*random_masks(1)), of_masks(*random_masks(2)), random_masks(1), random_masks(2)),
    "one direction": (of_masks(*random_masks(1)), None, random_masks(1), None),
    "all candidates": (of_masks(random_masks(3)[0], None), None, (random_masks(3)[0], None), None),
    "diagonal": (Diagonal(), None, (OWN, None), None),
    "masked diagonal": (
        Diagonal(COUNTED),
        Diagonal(OF_COLUMNS),
        (OWN & COUNTED[:, None], None),
        (OWN & COUNTED[:, None], None),
    ),
    "diagonal without negatives": (
        Diagonal(COUNTED, OFFERED),
        Diagonal(OF_COLUMNS, COUNTED),
        (OWN & COUNTED[:, None], OFFERED.expand(HEIGHT, WIDTH)),
        (OWN & COUNTED[:, None], COUNTED[:, None].expand(HEIGHT, WIDTH)),
    ),
}


@pytest.mark.parametrize(("case", "tile", "scale"), list(itertools.product(CASES, [None, 1, 3, 5, 64], [0.5, 300.0])))
def test_tiles_give_the_values_and_gradients_of_the_whole_matrix(case: str, tile: int | None, scale: float) -> None:
    rows, columns, row_masks, column_masks = CASES[case]
    sides = batch(scale)  # 300: far beyond what one exp can hold
    result = masked_softmax(*sides, rows, columns, tile=tile)
    expected = dense(sides, row_masks, column_masks)
    torch.testing.assert_close(result[0], expected[0])
    if columns is not None:
        torch.testing.assert_close(result[1], expected[1])
    ours, theirs = (torch.autograd.grad(weighed(losses), sides) for losses in (result, expected))
    for name, one, other in zip(SIDES, ours, theirs, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}", rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_of_the_tiles_is_that_of_finite_differences(case: str) -> None:
    rows, columns, *_ = CASES[case]

    def value(left: Tensor, right: Tensor, tau: Tensor) -> Tensor:
        return weighed(masked_softmax(left, right, tau, rows, columns, tile=4))

    assert torch.autograd.gradcheck(value, batch(1.0), eps=1e-6, atol=1e-6)


def test_a_rule_seen_from_the_columns_is_its_transpose() -> None:
    positives, candidates = random_masks(1)
    seen = transpose_rule(of_masks(positives.T, candidates.T))(slice(1, 3), slice(2, 8))
    assert torch.equal(seen[0], positives[1:3, 2:8])
    assert torch.equal(seen[1], candidates[1:3, 2:8])


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        (BSCLossConfig(learn_temperature=True), False),
        (BSCLossConfig(duplicates="multi_positive"), True),
        (BSCLossConfig(duplicates="merge", labeled_negatives=False, normalization="none"), True),
        (MNRLConfig(), False),
        (SupConLossConfig(mix=1, max_positives=2, max_negatives=5), True),
    ],
)
def test_a_loss_in_tiles_is_the_loss_in_one_piece(monkeypatch: pytest.MonkeyPatch, config, ids: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    sides = [torch.randn(50, 8, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    given = {
        name: torch.randint(0, high, (50,), generator=generator)
        for name, high in (("query_ids", 20), ("document_ids", 30), ("classes", 3))
    }
    labels = torch.rand(50, generator=generator, dtype=torch.float64)
    results = []
    for rows, columns, stored in ((1024, 4096, tiled.STORED_SCORES), (7, 11, 0)):
        monkeypatch.setattr(tiled, "TILE_ROWS", rows)
        monkeypatch.setattr(tiled, "TILE_COLUMNS", columns)
        monkeypatch.setattr(tiled, "STORED_SCORES", stored)
        torch.manual_seed(3)
        total = build_loss(config)(*sides, labels, **given).total
        results.append((total.item(), *torch.autograd.grad(total, sides)))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-10)
    for one, other in zip(results[0][1:], results[1][1:], strict=True):
        torch.testing.assert_close(one, other)


def test_no_tensor_of_the_full_matrix_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, sizes = 2000, []
    monkeypatch.setattr(tiled, "STORED_SCORES", 0)
    monkeypatch.setattr(tiled, "TILE_ROWS", 128)
    monkeypatch.setattr(tiled, "TILE_COLUMNS", 256)

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), named=None):
            result = function(*arguments, **(named or {}))
            sizes.extend(
                part.numel()
                for part in (result if isinstance(result, tuple) else (result,))
                if isinstance(part, Tensor)
            )
            return result

    sides = [torch.randn(pairs, 8, requires_grad=True) for _ in range(2)]
    with Watching():
        build_loss(BSCLossConfig())(*sides).total.backward()
    assert max(sizes) < pairs * pairs / 50


def test_both_directions_share_each_tile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    plain = tiled._TileBuilder.build
    monkeypatch.setattr(
        tiled._TileBuilder, "build", lambda *args, **options: computed.append(1) or plain(*args, **options)
    )
    sides = [torch.randn(40, 4, requires_grad=True) for _ in range(2)]
    for columns in (None, Diagonal()):
        computed.clear()
        first, _ = masked_softmax(*sides, 0.5, Diagonal(), columns, tile=10)
        first.sum().backward()
        assert len(computed) == 2 * 16  # once forward and once on the way back, whatever the directions


@pytest.mark.parametrize("stored", [0, tiled.STORED_SCORES])
def test_a_second_pass_backwards_gives_the_same_gradient(monkeypatch: pytest.MonkeyPatch, stored: int) -> None:
    monkeypatch.setattr(tiled, "STORED_SCORES", stored)
    sides = [torch.randn(150, 4, requires_grad=True) for _ in range(2)]
    total = build_loss(BSCLossConfig())(*sides).total
    first, second = (torch.autograd.grad(total, sides, retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
