"""A step encodes distinct texts, stored or recomputed, and equals a step that encodes every row separately."""

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
from bsc_core.data.decisions import Decision, with_decisions
from bsc_core.encoders import load_encoder, tokenize
from bsc_core.encoders.forward import Forward, make_forward
from bsc_core.encoders.forward.packed import PackedForward
from bsc_core.encoders.forward.plain import PROBES
from bsc_core.losses import build_loss
from bsc_core.training.loop.device import ActivationMemory
from bsc_core.training.loop.step import (
    HARDNESS_ROWS,
    BatchReport,
    GradientCachedEncoder,
    backward_batch,
    batch_hardness,
    batch_texts,
    make_batch,
)
from tests.losses.oracles import SWITCH_PAIRS, switched_loss

MICRO_TOKENS = 16
ROWS = np.array([0, 1, 2, 3, 8, 9, 14, 0], dtype=np.int32)  # repeated queries, and a repeated row
LOSSES = [
    {"name": "bsc", "learn_temperature": True},
    {"name": "bsc", "normalization": "l2_columns", "temperature": 1.2, "learn_temperature": True},
    {"name": "bsc", "normalization": "minmax_columns", "temperature": 1.2, "duplicates": "merge"},
    {"name": "bsc", "labeled_negatives": False, "duplicates": "multi_positive", "symmetric": False},
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
    {"name": "mnrl", "mask": "self", "hardness": "all_negatives", "directions": ["query_to_doc", "query_to_query"]},
    {"name": "bsc", "mask": "self", "mask_margin": 0.1, "debiased_prior": 0.05, "matryoshka_dims": [16, 32]},
    {"name": "sigmoid"},
    {"name": "cosent"},
    {"name": "angle"},
]


ENOUGH_MEMORY = ActivationMemory(2**30, 2**28)
Gradients = dict[str, torch.Tensor]
every_loss = pytest.mark.parametrize("config", LOSSES, ids=[f"{i}-{loss['name']}" for i, loss in enumerate(LOSSES)])
every_forward = pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])


@pytest.fixture(scope="module")
def dataset() -> PairDataset:
    """Sixteen pairs with labels, classes and negatives; some texts are in several of them."""
    words = "soup bread salt water garden rose seed soil tent train ticket bank money loan sleep tea".split()
    queries = [f"how do i {words[row // 4]}" for row in range(16)]
    documents = [" ".join(words[row : row + 1 + row % 5]) for row in range(16)]
    negatives = [" ".join(words[(3 * row) % 11 : 3 * row % 11 + 3]) for row in range(16)]
    labels = [(1.0, 0.2, 0.8, 0.6)[row % 4] for row in range(16)]
    classes = [row % 3 for row in range(16)]
    return PairDataset.from_pairs(queries, documents, labels, negatives=negatives, classes=classes)


@dataclass
class Bench:
    """A model with its texts, and the gradients of a step."""

    model: nn.Module
    dataset: PairDataset

    def __post_init__(self) -> None:
        self.tokens = tokenize(self.model, self.dataset.texts.texts, 32)

    def step(
        self,
        loss: nn.Module,
        rows: np.ndarray,
        mode: str = "never",
        memory: ActivationMemory = ENOUGH_MEMORY,
        *,
        micro_tokens: int = MICRO_TOKENS,
        packed: bool = False,
        precision: str = "fp32",
        guide: np.ndarray | None = None,
    ) -> tuple[BatchReport, Gradients, torch.Tensor]:
        """Return the report, the gradients of encoder and loss, and the next random number."""
        config = TrainingConfig(gradient_cache=mode).model_copy(update={"micro_tokens": micro_tokens})
        forward = (make_forward if packed else Forward)(self.model, self.tokens, precision)
        assert isinstance(forward, PackedForward) == packed
        torch.manual_seed(5)
        report = backward_batch(GradientCachedEncoder(forward, config, memory), loss, self.dataset, rows, guide=guide)
        return report, self.gradients(loss, forward), torch.rand(1)

    def gradients(self, loss: nn.Module, forward: Forward | None = None) -> Gradients:
        """Return and clear the gradients by name; those of word pieces that no text contains are 0."""
        result = {}
        for name, parameter in [*(forward or self.model).named_parameters(), *loss.named_parameters()]:
            if parameter.grad is not None:
                result[name], parameter.grad = parameter.grad, None
        words = next(name for name in result if "word_embeddings" in name)
        pieces, weights = np.unique(self.tokens.tokens), self.model.get_parameter(words)
        if len(result[words]) != len(weights):
            result[words] = torch.zeros_like(weights).index_copy(0, torch.from_numpy(pieces).long(), result[words])
        return result


@pytest.fixture(scope="module")
def bench(dataset, tiny_encoder) -> Bench:
    return Bench(load_encoder(EncoderConfig(name=str(tiny_encoder), max_seq_length=32)), dataset)


def loss_of(config: dict) -> nn.Module:
    torch.manual_seed(1)
    return build_loss(TypeAdapter(LossConfig).validate_python(config), dimensions=32)


def separate_gradients(bench: Bench, loss: nn.Module, rows: np.ndarray) -> tuple[float, Gradients]:
    """Return loss and gradients of a step that encodes every text of every column separately, in one graph."""
    texts = batch_texts(bench.dataset, rows, loss.config)
    sides = np.concatenate([texts.queries, texts.documents])
    vectors = [bench.model(bench.tokens.features([text]))["sentence_embedding"] for text in texts.ids[sides]]
    seeds = len(bench.tokens.micro_batches(texts.ids, MICRO_TOKENS))
    texts = type(texts)(texts.ids[sides], 0, np.arange(len(rows)), np.arange(len(rows), len(sides)))
    batch = make_batch(torch.cat(vectors), texts, bench.dataset, rows)
    torch.manual_seed(5)
    torch.randint(2**31, (seeds,))  # a step samples the seeds of its micro-batches before the loss samples
    total = loss(batch.queries, batch.documents, batch.labels, **batch.ids).total
    total.backward()
    return float(total.detach()), bench.gradients(loss)


def assert_close(actual: Gradients, expected: Gradients) -> None:
    atol = 2e-5 * max(1.0, *(float(gradient.abs().max()) for gradient in expected.values()))
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(actual[name], gradient, atol=atol, rtol=1e-4), name


def assert_equal(actual: Gradients, expected: Gradients) -> None:
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], gradient) for name, gradient in expected.items())


def test_no_loss_is_left_out() -> None:
    assert {loss["name"] for loss in LOSSES} == set(LOSS_CONFIGS)


@every_forward
@every_loss
def test_stored_and_recomputed_gradients_equal_those_of_separate_rows(bench: Bench, config: dict, packed: bool) -> None:
    bench.model.eval()
    if packed and "max_negatives" in config:  # other micro-batches sample other numbers before the loss samples
        config = {**config, "max_negatives": 100, "max_positives": 100}
    loss = loss_of(config)
    total, expected = separate_gradients(bench, loss, ROWS)
    one, stored, _ = bench.step(loss, ROWS, "never", packed=packed)
    two, recomputed, _ = bench.step(loss, ROWS, "always", packed=packed)
    assert one.loss == two.loss == pytest.approx(total, abs=1e-5)
    assert (one.recomputed, two.recomputed) == (0.0, 1.0)
    assert one.micro_batches == two.micro_batches > 1
    assert max(float(gradient.abs().max()) for gradient in expected.values()) > 1e-4
    assert_close(stored, expected)
    assert_equal(recomputed, stored)


@pytest.mark.parametrize("names", SWITCH_PAIRS, ids=" and ".join)
def test_recomputed_gradients_of_each_pair_of_switches_equal_stored_ones(bench: Bench, names: tuple[str, ...]) -> None:
    bench.model.eval()
    loss = switched_loss(names)
    guide = np.random.default_rng(0).normal(size=(len(bench.dataset.texts), 4)).astype(np.float32)
    one, stored, _ = bench.step(loss, ROWS, "never", guide=guide)
    two, recomputed, _ = bench.step(loss, ROWS, "always", guide=guide)
    assert one.loss == two.loss
    assert (one.recomputed, two.recomputed) == (0.0, 1.0)
    assert max(float(gradient.abs().max()) for gradient in stored.values()) > 1e-4
    assert_equal(recomputed, stored)


@pytest.mark.parametrize(
    ("packed", "precision"), [(False, "fp32"), (True, "fp32"), (True, "bf16")], ids=["padded", "packed", "packed-bf16"]
)
@every_loss
def test_recomputing_repeats_dropout(bench: Bench, config: dict, packed: bool, precision: str) -> None:
    bench.model.train()
    loss = loss_of(config)
    (one, stored, after), (two, recomputed, after_recomputing) = (
        bench.step(loss, ROWS, mode, packed=packed, precision=precision) for mode in ("never", "always")
    )
    assert one.loss == two.loss
    assert len(stored) > 30
    assert_equal(recomputed, stored)
    assert torch.equal(after, after_recomputing)  # the next step samples the same numbers
    bench.model.eval()
    without, _, _ = bench.step(loss, ROWS, packed=packed, precision=precision)
    assert without.loss != one.loss


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.integers(0, 15), min_size=2, max_size=12),
    micro_tokens=st.sampled_from([5, 16, 50, 4096]),
    limit=st.integers(0, 300_000),
)
def test_stored_activations_never_change_the_result(
    bench: Bench, rows: list[int], micro_tokens: int, limit: int
) -> None:
    bench.model.train()
    loss = loss_of({"name": "bsc", "learn_temperature": True})
    batch, memory = np.array(rows, dtype=np.int32), ActivationMemory(limit, limit // 4)
    stored, expected, after = bench.step(loss, batch, "never", micro_tokens=micro_tokens)
    mixed, actual, after_mixed = bench.step(loss, batch, "auto", memory, micro_tokens=micro_tokens)
    assert mixed.loss == stored.loss
    assert_equal(actual, expected)
    assert torch.equal(after, after_mixed)
    assert stored.recomputed == 0.0 <= mixed.recomputed <= 1.0


def test_some_micro_batches_are_stored_where_not_all_fit(bench: Bench) -> None:
    bench.model.eval()
    loss = loss_of({"name": "bsc"})
    forward = Forward(bench.model, bench.tokens, "fp32")
    ids = batch_texts(bench.dataset, ROWS, loss.config).ids
    pieces = forward.micro_batches(ids, MICRO_TOKENS)
    needed = sum(forward.activation_bytes(bench.tokens.lengths[ids[piece]]) for piece in pieces)
    for limit, bounds in {needed: (0.0, 0.0), needed - 1: (0.0, 0.9), needed // 3: (0.3, 0.95), 0: (1.0, 1.0)}.items():
        report, _, _ = bench.step(loss, ROWS, "auto", ActivationMemory(limit, limit // 2))
        assert bounds[0] <= report.recomputed <= bounds[1]


@pytest.mark.parametrize(
    "rows", [[0, 1], [5, 5], [4, 4, 4, 4], [0, 2]], ids=["two", "one row twice", "all duplicates", "one query"]
)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_small_and_repeating_batches_have_the_same_gradients(bench: Bench, rows: list[int], mode: str) -> None:
    bench.model.eval()
    loss, batch = loss_of({"name": "bsc", "learn_temperature": True}), np.array(rows, dtype=np.int32)
    total, expected = separate_gradients(bench, loss, batch)
    report, actual, _ = bench.step(loss, batch, mode)
    assert report.loss == pytest.approx(total, abs=1e-5)
    assert_close(actual, expected)


def count_texts(model: nn.Module) -> tuple[list[int], Callable[[], None]]:
    """Return a list that will hold the number of texts of each forward pass, and a function that ends the counting."""
    counts: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, inputs: counts.append(len(inputs[0]["input_ids"])))
    return counts, hook.remove


@pytest.mark.parametrize(("mode", "times"), [("never", 1), ("always", 2), ("auto", 1)])
def test_each_distinct_text_is_encoded_once_or_with_recomputing_twice(bench: Bench, mode: str, times: int) -> None:
    bench.model.eval()
    loss = loss_of({"name": "mse"})  # does not use the negatives
    Forward(bench.model, bench.tokens, "fp32").activation_bytes(np.array([4]))
    counts, stop_counting = count_texts(bench.model)
    report, _, _ = bench.step(loss, np.arange(8, dtype=np.int32), mode)
    stop_counting()
    texts = np.unique(np.concatenate([bench.dataset.query[:8], bench.dataset.document[:8]]))
    probes = 0 if mode != "auto" else sum(number for number, _ in PROBES)
    assert sum(counts) == times * len(texts) + probes
    assert report.distinct_tokens == bench.tokens.lengths[texts].sum() < report.tokens


def test_two_views_of_a_text_are_encoded_in_two_passes(bench: Bench) -> None:
    texts = batch_texts(bench.dataset, np.arange(4, dtype=np.int32), SimCSEConfig())
    assert len(texts.ids) == 2 * texts.distinct
    assert np.array_equal(texts.ids[texts.queries], texts.ids[texts.documents])
    assert not np.intersect1d(texts.queries, texts.documents).size


def test_the_memory_receives_the_vectors_of_the_step(bench: Bench) -> None:
    bench.model.eval()
    memory = np.full((len(bench.dataset.texts), 32), np.nan, dtype=np.float32)
    config = TrainingConfig(gradient_cache="always")
    encoder = GradientCachedEncoder(Forward(bench.model, bench.tokens, "fp32"), config, ActivationMemory(0, 0))
    loss = loss_of({"name": "mse"})
    backward_batch(encoder, loss, bench.dataset, ROWS, step_vectors=memory)
    bench.gradients(loss)
    used = np.unique(np.concatenate([bench.dataset.query[ROWS], bench.dataset.document[ROWS]]))
    assert np.array_equal(np.flatnonzero(~np.isnan(memory[:, 0])), used)
    with torch.no_grad():
        vectors = bench.model(bench.tokens.features(used))["sentence_embedding"].numpy()
    assert np.allclose(memory[used], vectors, atol=1e-5)


def test_half_precision_casts_shared_by_micro_batches_have_accurate_gradients(bench: Bench) -> None:
    bench.model.eval()
    loss = loss_of({"name": "bsc"})
    _, exact, _ = bench.step(loss, ROWS)
    for mode in ("never", "always", "auto"):
        _, actual, _ = bench.step(loss, ROWS, mode, ActivationMemory(100_000, 50_000), precision="bf16")
        error = sum(float((actual[name] - exact[name]).square().sum()) for name in exact) ** 0.5
        assert error < 0.05 * sum(float(gradient.square().sum()) for gradient in exact.values()) ** 0.5


def test_positives_only_have_no_labels() -> None:
    dataset = PairDataset.from_pairs(["what is soup", "what is rain"], ["hot water", "cold water"])
    rows = np.array([0, 1], dtype=np.int32)
    texts = batch_texts(dataset, rows, BSCLossConfig())
    assert make_batch(torch.randn(len(texts.ids), 3), texts, dataset, rows).labels is None


def test_a_negative_has_the_same_id_as_a_document_of_the_same_text() -> None:
    dataset = PairDataset.from_pairs(["a", "b"], ["x", "y"], negatives=["y", "z"])
    rows = np.arange(2, dtype=np.int32)
    texts = batch_texts(dataset, rows, BSCLossConfig())
    batch = make_batch(torch.randn(len(texts.ids), 3), texts, dataset, rows)
    assert batch.ids["document_ids"].tolist() == [*dataset.document.tolist(), *dataset.negative.tolist()]
    assert len(batch.documents) == 4


def slow_hardness(queries, documents, query_ids, document_ids, positive) -> float | None:
    """Compute the definition, cell by cell."""
    gaps = []
    for i in range(len(queries)):
        if not positive[i]:
            continue
        cosine = [float(torch.cosine_similarity(queries[i], other, dim=0)) for other in documents]
        negatives = [
            cosine[j]
            for j in range(len(documents))
            if document_ids[j] != document_ids[i]
            and not (j < len(queries) and query_ids[j] == query_ids[i] and positive[j])
        ]
        if negatives:
            gaps.append(max(negatives) - cosine[i])
    return sum(gaps) / len(gaps) if gaps else None


@given(seed=st.integers(0, 10**6), pairs=st.integers(1, 8), extra=st.integers(0, 4), texts=st.integers(1, 6))
def test_hardness_is_the_gap_to_the_closest_negative(seed, pairs, extra, texts):
    generator = np.random.default_rng(seed)
    vectors = torch.from_numpy(generator.normal(size=(2 * texts, 5))).float()
    query_ids = torch.from_numpy(generator.integers(0, texts, pairs))
    document_ids = torch.from_numpy(generator.integers(texts, 2 * texts, pairs + extra))
    positive = torch.from_numpy(generator.random(pairs) < 0.7)
    batch = (vectors[query_ids], vectors[document_ids], query_ids, document_ids, positive)
    expected, actual = slow_hardness(*batch), batch_hardness(*batch)
    assert actual == (None if expected is None else pytest.approx(expected, abs=1e-5))


def test_a_batch_of_equal_documents_has_no_hardness():
    ids = torch.zeros(4, dtype=torch.long)
    assert batch_hardness(torch.randn(4, 3), torch.ones(4, 3), torch.arange(4), ids) is None


def test_the_hardness_of_a_large_batch_uses_rows_from_all_of_it():
    size = 3 * HARDNESS_ROWS
    queries = torch.eye(2)[torch.arange(size) % 2]
    documents = torch.eye(2)[torch.arange(size) % 2]
    documents[size // 2 :] = documents[size // 2 :].flip(1)  # the second half points the wrong way
    # 0 in the easy half, where another row is as close, and 1 in the other
    assert batch_hardness(queries, documents, torch.arange(size), torch.arange(size)) == pytest.approx(0.5, abs=0.02)


def test_decided_pairs_are_passed_to_the_loss_as_cells() -> None:
    dataset = PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"])
    decisions = [Decision("a", "y", "positive"), Decision("b", "z"), Decision("c", "x", "true_negative")]
    rows = np.array([2, 0, 1], dtype=np.int32)
    dataset = with_decisions(dataset, decisions)
    texts = batch_texts(dataset, rows, BSCLossConfig())
    ids = make_batch(torch.randn(len(texts.ids), 3), texts, dataset, rows).ids
    assert sorted(ids["excluded"].tolist()) == [[1, 2], [2, 0]]
    assert ids["labeled_negative"].tolist() == [[0, 1]]
