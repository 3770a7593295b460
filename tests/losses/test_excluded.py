"""Excluded cells: no softmax looks at them, whichever way the loss is computed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.errors import InputError
from tests.losses.oracles import loss_of

repeatable = settings(max_examples=60, derandomize=True)
B, D = 7, 5


def vectors(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(B, D, generator=generator, dtype=torch.float64) for _ in range(2))


def slow_direction(scores: torch.Tensor, out: set[tuple[int, int]]) -> torch.Tensor:
    """Mean negative log softmax of the diagonal, cell by cell, without the cells in `out` (never the own one)."""
    losses = []
    for i in range(len(scores)):
        remaining = [j for j in range(len(scores)) if j == i or (i, j) not in out]
        losses.append(torch.logsumexp(scores[i, remaining], dim=0) - scores[i, i])
    return torch.stack(losses).mean()


@given(st.integers(0, 99), st.sets(st.tuples(st.integers(0, B - 1), st.integers(0, B - 1)), max_size=12))
@repeatable
def test_batch_softmax_uses_only_the_remaining_cells(seed: int, out: set[tuple[int, int]]) -> None:
    queries, documents = vectors(seed)
    unit = torch.nn.functional.normalize
    scores = unit(queries) @ unit(documents).T / 0.1
    expected = (slow_direction(scores, out) + slow_direction(scores.T, {(j, i) for i, j in out})) / 2
    cells = torch.tensor(sorted(out), dtype=torch.long).reshape(-1, 2)
    result = loss_of(name="bsc", temperature=0.1)(queries, documents, excluded=cells)
    torch.testing.assert_close(result.total, expected)
    one = loss_of(name="mnrl", temperature=0.1)(queries, documents, excluded=cells)
    torch.testing.assert_close(one.total, slow_direction(scores, out))


@pytest.mark.parametrize("duplicates", ["merge", "multi_positive"])
def test_an_excluded_cell_has_no_gradient_and_a_repeated_text_none_either(duplicates: str) -> None:
    queries, documents = vectors(3)
    documents.requires_grad_(True)
    cells = torch.tensor([[0, column] for column in range(1, B)])
    ids = {"query_ids": torch.arange(B), "document_ids": torch.arange(B)}
    loss = loss_of(name="bsc", temperature=0.1, symmetric=False, duplicates=duplicates)
    everything = loss(queries, documents, excluded=cells, **ids).total
    first_alone = slow_direction(queries[:1] @ documents[:1].T, set())
    assert first_alone.item() == 0.0
    rest = loss(queries[1:], documents[1:], **{name: value[1:] for name, value in ids.items()}).total
    seen_first = torch.autograd.grad(everything, documents, retain_graph=True)[0]
    assert torch.isfinite(seen_first).all()
    assert everything.item() * B > rest.item() * (B - 1)  # the others still meet document 0


def test_supcon_leaves_excluded_hypotheses_out() -> None:
    queries, documents = vectors(5)
    classes = torch.tensor([0, 1, 2, 0, 1, 2, 1])
    loss = loss_of(name="supcon", temperature=0.5, mix=1.0, normalization="l2")
    cells = torch.tensor([[0, 1], [3, 6], [4, 2]])  # row 4 is no anchor
    result = loss(queries, documents, classes=classes, excluded=cells).total
    unit = torch.nn.functional.normalize
    scores = unit(queries) @ unit(documents).T / 0.5
    expected = []
    for anchor, left_out in ((0, 1), (3, 6)):
        remaining = [column for column in range(B) if column != left_out]
        expected.append(torch.logsumexp(scores[anchor, remaining], dim=0) - scores[anchor, anchor])
    torch.testing.assert_close(result, torch.stack(expected).mean())


def test_tiles_and_the_whole_matrix_agree_on_excluded_cells() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, documents = (torch.randn(300, 16, generator=generator) for _ in range(2))
    cells = torch.randint(0, 300, (500, 2), generator=generator)
    result = loss_of(name="bsc", temperature=0.07)(queries, documents, excluded=cells).total
    unit = torch.nn.functional.normalize
    scores = (unit(queries) @ unit(documents).T / 0.07).double()
    out = {(i, j) for i, j in cells.tolist()}
    expected = (slow_direction(scores, out) + slow_direction(scores.T, {(j, i) for i, j in out})) / 2
    assert float(result) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("cell", [[0, B], [B, 0], [-1, 0]])
def test_a_cell_outside_the_batch_is_refused(cell: list[int]) -> None:
    queries, documents = vectors(1)
    with pytest.raises(InputError, match="outside the 7 queries"):
        loss_of(name="bsc")(queries, documents, excluded=torch.tensor([cell]))
