"""A step over distinct texts, kept or computed twice, equals a step that encodes every row by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch import nn

from bsc_core.config import LOSS_CONFIGS, BSCLossConfig, EncoderConfig, LossConfig, SimCSEConfig, TrainingConfig
from bsc_core.data import PairDataset
from bsc_core.encoders import load_encoder, tokenise
from bsc_core.encoders.forward import PlainForward
from bsc_core.losses import build_loss
from bsc_core.training.cache import CachedEncoder
from bsc_core.training.memory import Room
from bsc_core.training.step import BatchReport, backward_batch, batch_labels, batch_texts, make_batch

TOKENS = 16  # of a micro-batch
ROWS = np.array([0, 1, 2, 3, 8, 9, 14, 0], dtype=np.int32)  # repeated queries, and a repeated row
LOSSES = [
    {"name": "bsc", "learn_temperature": True},
    {"name": "bsc", "normalization": "l2_columns", "temperature": 1.2, "learn_temperature": True},
    {"name": "bsc", "normalization": "minmax_columns", "temperature": 1.2, "duplicates": "merge"},
    {"name": "bsc", "labelled_negatives": False, "duplicates": "multi_positive", "symmetric": False},
    {"name": "combined"},
    {"name": "combined", "preset": "bsc_pearson", "mu": 0.1},
    {"name": "mse"},
    {"name": "pearson"},
    {"name": "softmax", "hidden": 8, "activation": "tanh"},
    {"name": "supcon", "max_positives": 1, "max_negatives": 3, "learn_temperature": True},
    {"name": "triplet"},
    {"name": "contrastive"},
    {"name": "online_contrastive", "distance": "euclidean"},
    {"name": "simcse", "learn_temperature": True},
    {"name": "mnrl"},
]


def sixteen_pairs() -> PairDataset:
    """Sixteen pairs with labels, classes and negatives; some texts stand in several of them."""
    words = "soup bread salt water garden rose seed soil tent train ticket bank money loan sleep tea".split()
    queries = [f"how do i {words[row // 4]}" for row in range(16)]
    documents = [" ".join(words[row : row + 1 + row % 5]) for row in range(16)]
    negatives = [" ".join(words[(3 * row) % 11 : 3 * row % 11 + 3]) for row in range(16)]
    labels = [(1.0, 0.2, 0.8, 0.6)[row % 4] for row in range(16)]
    return PairDataset.from_pairs(
        queries, documents, labels, negatives=negatives, classes=[row % 3 for row in range(16)]
    )


@pytest.fixture(scope="module")
def dataset() -> PairDataset:
    return sixteen_pairs()


@dataclass
class Bench:
    """A model with its texts, and the gradients that a step leaves."""

    model: nn.Module
    dataset: PairDataset

    def __post_init__(self) -> None:
        self.tokens = tokenise(self.model, self.dataset.texts.texts, 32)

    def step(
        self,
        loss: nn.Module,
        rows: np.ndarray,
        mode: str = "never",
        room: Room | None = None,
        micro_tokens: int = TOKENS,
    ):
        """Report, gradients of encoder and loss, and the next random number."""
        config = TrainingConfig(gradient_cache=mode).model_copy(update={"micro_tokens": micro_tokens})
        forward = PlainForward(self.model, self.tokens, "fp32")
        encoder = CachedEncoder(forward, config, room or Room(2**30, 2**28))
        torch.manual_seed(5)
        report = backward_batch(encoder, loss, self.dataset, rows)
        return report, self.gradients(loss), torch.rand(1)

    def gradients(self, loss: nn.Module) -> list[torch.Tensor]:
        named = [*self.model.parameters(), *loss.parameters()]
        taken = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in named]
        for parameter in named:
            parameter.grad = None
        return taken


@pytest.fixture(scope="module")
def bench(dataset, tiny_encoder) -> Bench:
    return Bench(load_encoder(EncoderConfig(name=str(tiny_encoder), max_length=32)), dataset)


def loss_of(config: dict) -> nn.Module:
    torch.manual_seed(1)
    return build_loss(TypeAdapter(LossConfig).validate_python(config), dimensions=32)


def plain_gradients(bench: Bench, loss: nn.Module, rows: np.ndarray) -> tuple[float, list[torch.Tensor]]:
    """Loss and gradients of the step that encodes every text of every column by itself, in one graph."""

    def alone(position: int) -> torch.Tensor:
        return bench.model(bench.tokens.features([position]))["sentence_embedding"]

    texts = batch_texts(bench.dataset, rows, loss.config)
    sides = np.concatenate([texts.queries, texts.documents])
    vectors = torch.cat([alone(text) for text in texts.ids[sides]])
    texts = type(texts)(texts.ids[sides], 0, np.arange(len(rows)), np.arange(len(rows), len(sides)))
    batch = make_batch(vectors, texts, bench.dataset, rows)
    torch.manual_seed(5)
    drawn = len(bench.tokens.micro_batches(batch_texts(bench.dataset, rows, loss.config).ids, TOKENS))
    torch.randint(2**31, (drawn,))  # a step draws the seeds of its micro-batches before the loss draws its own
    total = loss(batch.queries, batch.documents, batch.labels, **batch.ids).total
    total.backward()
    return float(total.detach()), bench.gradients(loss)


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor], atol: float) -> None:
    largest = max(float(gradient.abs().max()) for gradient in expected)
    assert all(
        torch.allclose(one, other, atol=atol * max(1.0, largest), rtol=1e-4)
        for one, other in zip(found, expected, strict=True)
    )


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_no_loss_is_left_out() -> None:
    assert {loss["name"] for loss in LOSSES} == set(LOSS_CONFIGS)


@pytest.mark.parametrize("config", LOSSES, ids=[f"{number}-{loss['name']}" for number, loss in enumerate(LOSSES)])
def test_cached_is_one_pass_is_every_row_by_itself(bench: Bench, config: dict) -> None:
    bench.model.eval()
    loss = loss_of(config)
    plain, expected = plain_gradients(bench, loss, ROWS)
    one, kept, _ = bench.step(loss, ROWS, "never")
    two, cached, _ = bench.step(loss, ROWS, "always")
    assert one.loss == two.loss == pytest.approx(plain, abs=1e-5)
    assert (one.recomputed, two.recomputed) == (0.0, 1.0)
    assert one.micro_batches == two.micro_batches > 1
    assert max(float(gradient.abs().max()) for gradient in expected) > 1e-4
    assert_close(kept, expected, 2e-5)
    assert_equal(cached, kept)


@pytest.mark.parametrize("config", LOSSES, ids=[f"{number}-{loss['name']}" for number, loss in enumerate(LOSSES)])
def test_dropout_is_the_same_when_computed_again(bench: Bench, config: dict) -> None:
    bench.model.train()
    loss = loss_of(config)
    (one, kept, after), (two, cached, after_cached) = (bench.step(loss, ROWS, mode) for mode in ("never", "always"))
    assert one.loss == two.loss
    assert_equal(cached, kept)
    assert torch.equal(after, after_cached)  # what follows a step draws the same numbers
    bench.model.eval()
    without, _, _ = bench.step(loss, ROWS)
    assert without.loss != one.loss


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.integers(0, 15), min_size=2, max_size=12),
    micro_tokens=st.sampled_from([5, 16, 50, 4096]),
    room=st.integers(0, 300_000),
)
def test_what_is_kept_never_changes_the_result(bench: Bench, rows: list[int], micro_tokens: int, room: int) -> None:
    bench.model.train()
    loss = loss_of({"name": "bsc", "learn_temperature": True})
    chosen = np.array(rows, dtype=np.int32)
    whole, expected, after = bench.step(loss, chosen, "never", micro_tokens=micro_tokens)
    mixed, found, after_mixed = bench.step(loss, chosen, "auto", Room(room, room // 4), micro_tokens=micro_tokens)
    assert mixed.loss == whole.loss
    assert_equal(found, expected)
    assert torch.equal(after, after_mixed)
    assert whole.recomputed == 0.0 <= mixed.recomputed <= 1.0


def test_some_micro_batches_are_kept_where_not_all_fit(bench: Bench) -> None:
    bench.model.eval()
    loss = loss_of({"name": "bsc"})
    forward = PlainForward(bench.model, bench.tokens, "fp32")
    ids = batch_texts(bench.dataset, ROWS, loss.config).ids
    costs = [forward.activation_bytes(bench.tokens.lengths[ids[piece]]) for piece in forward.micro_batches(ids, TOKENS)]
    needed = sum(costs)
    for room, bounds in {needed: (0.0, 0.0), needed - 1: (0.0, 0.9), needed // 3: (0.3, 0.95)}.items():
        report, _, _ = bench.step(loss, ROWS, "auto", Room(room, room // 2))
        assert bounds[0] <= report.recomputed <= bounds[1]
    report, _, _ = bench.step(loss, ROWS, "auto", Room(0, 0))
    assert report.recomputed == 1.0


@pytest.mark.parametrize(
    "rows", [[0, 1], [5, 5], [4, 4, 4, 4], [0, 2]], ids=["two", "one row twice", "all duplicates", "one query"]
)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_small_and_repeating_batches_have_the_plain_gradients(bench: Bench, rows: list[int], mode: str) -> None:
    bench.model.eval()
    loss = loss_of({"name": "bsc", "learn_temperature": True})
    chosen = np.array(rows, dtype=np.int32)
    plain, expected = plain_gradients(bench, loss, chosen)
    report, found, _ = bench.step(loss, chosen, mode)
    assert report.loss == pytest.approx(plain, abs=1e-5)
    assert_close(found, expected, 2e-5)


def counting(model: nn.Module) -> tuple[list[int], Callable[[], None]]:
    seen: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0]["input_ids"])))
    return seen, hook.remove


@pytest.mark.parametrize(("mode", "times"), [("never", 1), ("always", 2), ("auto", 1)])
def test_each_distinct_text_is_encoded_once_or_with_caching_twice(bench: Bench, mode: str, times: int) -> None:
    bench.model.eval()
    loss = loss_of({"name": "mse"})  # leaves the negatives out
    PlainForward(bench.model, bench.tokens, "fp32").activation_bytes(np.array([4]))
    seen, remove = counting(bench.model)
    report, _, _ = bench.step(loss, np.arange(8, dtype=np.int32), mode, Room(2**30, 2**28))
    remove()
    texts = np.unique(np.concatenate([bench.dataset.query[:8], bench.dataset.document[:8]]))
    measured = 0 if mode != "auto" else sum(texts for texts, _ in ((2, 8), (6, 8), (2, 32)))
    assert sum(seen) == times * len(texts) + measured
    assert report.distinct_tokens == bench.tokens.lengths[texts].sum() < report.tokens


def test_two_views_of_a_text_differ_and_cost_two_passes(bench: Bench) -> None:
    rows = np.arange(4, dtype=np.int32)
    texts = batch_texts(bench.dataset, rows, SimCSEConfig())
    assert len(texts.ids) == 2 * texts.distinct
    assert np.array_equal(texts.ids[texts.queries], texts.ids[texts.documents])
    assert not np.intersect1d(texts.queries, texts.documents).size


def test_the_memory_takes_the_vectors_of_the_step(bench: Bench) -> None:
    bench.model.eval()
    memory = np.full((len(bench.dataset.texts), 32), np.nan, dtype=np.float32)
    config = TrainingConfig(gradient_cache="always")
    encoder = CachedEncoder(PlainForward(bench.model, bench.tokens, "fp32"), config, Room(0, 0))
    loss = loss_of({"name": "mse"})
    backward_batch(encoder, loss, bench.dataset, ROWS, memory=memory)
    bench.gradients(loss)
    used = np.unique(np.concatenate([bench.dataset.query[ROWS], bench.dataset.document[ROWS]]))
    assert np.array_equal(np.flatnonzero(~np.isnan(memory[:, 0])), used)
    with torch.no_grad():
        vectors = bench.model(bench.tokens.features(used))["sentence_embedding"].numpy()
    assert np.allclose(memory[used], vectors, atol=1e-5)


def test_half_precision_casts_shared_by_micro_batches_keep_their_gradient(bench: Bench) -> None:
    bench.model.eval()
    loss = loss_of({"name": "bsc"})
    _, exact, _ = bench.step(loss, ROWS)
    for mode in ("never", "always", "auto"):
        config = TrainingConfig(gradient_cache=mode).model_copy(update={"micro_tokens": TOKENS})
        encoder = CachedEncoder(PlainForward(bench.model, bench.tokens, "bf16"), config, Room(100_000, 50_000))
        report = backward_batch(encoder, loss, bench.dataset, ROWS)
        assert isinstance(report, BatchReport)
        found = bench.gradients(loss)
        gap = sum(float((one - other).square().sum()) for one, other in zip(found, exact, strict=True)) ** 0.5
        assert gap < 0.05 * sum(float(one.square().sum()) for one in exact) ** 0.5


def test_positives_only_have_no_labels() -> None:
    dataset = PairDataset.from_pairs(["what is soup", "what is rain"], ["hot water", "cold water"])
    assert batch_labels(dataset, np.array([0, 1], dtype=np.int32), torch.device("cpu")) is None


def test_a_negative_text_is_known_by_the_same_id_as_a_document() -> None:
    dataset = PairDataset.from_pairs(["a", "b"], ["x", "y"], negatives=["y", "z"])
    rows = np.arange(2, dtype=np.int32)
    texts = batch_texts(dataset, rows, BSCLossConfig())
    batch = make_batch(torch.randn(len(texts.ids), 3), texts, dataset, rows)
    assert batch.ids["document_ids"].tolist() == [*dataset.document.tolist(), *dataset.negative.tolist()]
    assert len(batch.documents) == 4
