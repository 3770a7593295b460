"""Treatment of the negatives against an oracle, sentence-transformers, and finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer import losses as peers
from torch import Tensor

from bsc_core.errors import ConfigError, InputError
from bsc_core.losses.kernel import negatives, tiled
from bsc_core.neighbors import TIE
from tests.losses.oracles import DIRECTIONS, SWITCH_PAIRS, cosine, loss_of, switched_loss


def vectors(seed: int, *shapes: tuple[int, int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]


class Batch:
    """Random vectors of a batch and of a guide; the positives are close to their queries."""

    def __init__(self, seed: int, pairs: int = 5, extra: int = 0, width: int = 6) -> None:
        self.queries, own, self.guide_queries, of_guide = vectors(
            seed, (pairs, width), (pairs, width), (pairs, 4), (pairs, 4)
        )
        more, more_of_guide = vectors(seed + 1, (extra, width), (extra, 4))
        self.documents = torch.cat([self.queries + 0.8 * own, more])
        self.guide_documents = torch.cat([self.guide_queries + 0.8 * of_guide, more_of_guide])
        random = np.random.default_rng(seed)
        self.labels = torch.tensor(random.choice([0.0, 1.0, 1.0], pairs))
        self.ids = {
            "query_ids": torch.tensor(random.integers(0, pairs, pairs)),
            "document_ids": torch.tensor(random.integers(0, pairs, pairs + extra)),
        }
        self.guide = {"guide_queries": self.guide_queries, "guide_documents": self.guide_documents}

    def value(self, loss: Any, labels: Tensor | None = None, **ids: Tensor) -> Tensor:
        return loss(self.queries, self.documents, labels, **ids, **self.guide).total


def in_batch(batch: Batch, ids: dict[str, Tensor], labels: Tensor | None, **config: Any) -> float:
    """Return the loss, computed one cell at a time."""
    settings_ = {
        "temperature": 0.1,
        "directions": ("query_to_doc",),
        "partition": "joint",
        "mask": "none",
        "mask_margin": 0.0,
        "mask_margin_kind": "absolute",
        "hardness": "none",
        "hardness_strength": 5.0,
        "decoupled": False,
        "debiased_prior": 0.0,
    } | config
    tau, prior = settings_["temperature"], settings_["debiased_prior"]
    queries, documents = batch.queries.numpy(), batch.documents.numpy()
    pairs = len(queries)
    judge = (batch.guide_queries.numpy(), batch.guide_documents.numpy())
    judge = judge if settings_["mask"] == "guide" else (queries, documents)
    labeled = {}
    if ids and settings_["mask"] != "none":
        for row in range(pairs):
            pair = (int(ids["query_ids"][row]), int(ids["document_ids"][row]))
            labeled[pair] = labeled.get(pair, False) or labels is None or float(labels[row]) > 0.5
    sides = {"query": (queries, judge[0], ids.get("query_ids")), "doc": (documents, judge[1], ids.get("document_ids"))}

    def negatives(row: int, direction: str) -> list[float]:
        from_side, to_side = direction.split("_to_")
        anchors, of_anchor, anchor_ids = sides[from_side]
        candidates, of_candidate, candidate_ids = sides[to_side]
        limit = cosine(judge[0][row], judge[1][row])
        margin = settings_["mask_margin"]
        limit -= margin if settings_["mask_margin_kind"] == "absolute" else margin * abs(limit)
        result = []
        for column in range(len(candidates)):
            owned = column % pairs == row if len(candidates) % pairs == 0 else column == row
            if column == row or (from_side == to_side and owned):
                continue
            if settings_["mask"] != "none":
                label = None
                if ids and from_side == to_side and anchor_ids[row] == candidate_ids[column]:
                    continue
                if ids and from_side != to_side:
                    cell = (int(anchor_ids[row]), int(candidate_ids[column]))
                    label = labeled.get(cell if from_side == "query" else cell[::-1])
                if label is True:
                    continue
                if label is None and cosine(of_anchor[row], of_candidate[column]) > limit + TIE:
                    continue
            logit = cosine(anchors[row], candidates[column]) / tau
            weighted = {
                "none": False,
                "in_batch_negatives": not owned,
                "hard_negatives": owned and column >= pairs,
                "all_negatives": True,
            }[settings_["hardness"]]
            if direction == "query_to_doc" and weighted:
                logit += settings_["hardness_strength"] * logit * tau
            result.append(logit)
        return result

    def softmax(row: int, directions: tuple[str, ...]) -> float:
        positive = cosine(queries[row], documents[row]) / tau
        logits = [logit for direction in directions for logit in negatives(row, direction)]
        if not logits:
            return 0.0
        denominator = sum(np.exp(logits))
        if prior:
            share = (np.mean(np.exp(logits)) - prior * np.exp(positive)) / (1 - prior)
            denominator = len(logits) * max(share, np.exp(-1 / tau))
        if not settings_["decoupled"]:
            denominator += sum(direction in DIRECTIONS[:2] for direction in directions) * np.exp(positive)
        return float(np.log(denominator) - positive)

    directions = settings_["directions"]
    groups = [directions] if settings_["partition"] == "joint" else [(direction,) for direction in directions]
    counted = [row for row in range(pairs) if labels is None or float(labels[row]) > 0.5]
    return sum(softmax(row, group) for row in counted for group in groups) / len(groups) / max(1, len(counted))


configs = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.05, 1),
        "directions": st.sets(st.sampled_from(DIRECTIONS[1:])).map(
            lambda chosen: tuple(name for name in DIRECTIONS if name in chosen or name == "query_to_doc")
        ),
        "partition": st.sampled_from(["joint", "per_direction"]),
        "mask": st.sampled_from(["none", "self", "guide"]),
        "mask_margin": st.floats(-1, 1),
        "mask_margin_kind": st.sampled_from(["absolute", "relative"]),
        "hardness": st.sampled_from(["none", "in_batch_negatives", "hard_negatives", "all_negatives"]),
        "hardness_strength": st.floats(0, 9),
        "decoupled": st.booleans(),
        "debiased_prior": st.sampled_from([0.0, 0.05, 0.5]),
    }
).filter(
    lambda config: config["partition"] == "joint" or not {"query_to_query", "doc_to_doc"} & {*config["directions"]}
)


@given(configs, st.integers(0, 10_000), st.integers(2, 6), st.sampled_from([0, 1, 2]), st.booleans(), st.booleans())
@settings(max_examples=300, derandomize=True)
def test_every_combination_of_switches_is_its_equation(
    config: dict[str, Any], seed: int, pairs: int, copies: int, with_ids: bool, with_labels: bool
) -> None:
    batch = Batch(seed, pairs, extra=copies * pairs)
    ids, labels = batch.ids if with_ids else {}, batch.labels if with_labels else None
    value = batch.value(loss_of(name="mnrl", **config), labels, **ids)
    assert float(value) == pytest.approx(in_batch(batch, ids, labels, **config), rel=1e-9, abs=1e-9)


@given(configs, st.integers(0, 10_000))
@settings(max_examples=40, derandomize=True)
def test_bsc_with_the_settings_of_mnrl_is_mnrl(config: dict[str, Any], seed: int) -> None:
    batch = Batch(seed)
    bsc = loss_of(name="bsc", average="positives", **config)
    assert float(batch.value(bsc)) == pytest.approx(float(batch.value(loss_of(name="mnrl", **config))), rel=1e-12)


@given(configs, st.integers(0, 10_000), st.sampled_from([0, 3, 7]))
@settings(max_examples=40, derandomize=True)
def test_tiles_and_recomputed_scores_change_nothing(config: dict[str, Any], seed: int, extra: int) -> None:
    batch, loss = Batch(seed, 7, extra), loss_of(name="bsc", learn_temperature=True, **config)
    results = []
    for rows, columns, stored in ((1024, 4096, tiled.STORED_SCORES), (2, 12, 0), (3, 8, 25)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiled, "TILE_ROWS", rows)
            patch.setattr(tiled, "TILE_COLUMNS", columns)
            patch.setattr(tiled, "STORED_SCORES", stored)
            queries, documents = batch.queries.clone().requires_grad_(), batch.documents.clone().requires_grad_()
            total = loss(queries, documents, **batch.ids, **batch.guide).total
            tau = loss.temperature.log_temperature
            results.append([total, *torch.autograd.grad(total, [queries, documents, tau], allow_unused=True)])
    for others in results[1:]:
        torch.testing.assert_close(others, results[0])


@pytest.mark.parametrize("many", [0.0, 1 / 32, 1.0])
@pytest.mark.parametrize(("margin", "extra"), [(-0.3, 0), (0.0, 0), (1.2, 0), (0.0, 1300)])
def test_a_guide_that_is_rounded_first_removes_the_same_candidates(
    monkeypatch: pytest.MonkeyPatch, margin: float, extra: int, many: float
) -> None:
    monkeypatch.setattr(negatives, "MANY", many)
    batch = Batch(7, pairs=1300, extra=extra, width=8)
    single = {name: vectors.float() for name, vectors in batch.guide.items()}
    loss = loss_of(name="bsc", mask="guide", mask_margin=margin)
    results, rounded = [], []
    of = negatives.Cosines.for_limits
    monkeypatch.setattr(negatives.Cosines, "for_limits", lambda *sides: rounded.append(of(*sides)) or rounded[-1])
    for has_instructions in (False, True):
        monkeypatch.setattr(negatives, "has_bf16_instructions", lambda has=has_instructions: has)
        sides = [side.float().requires_grad_() for side in (batch.queries, batch.documents)]
        found = loss(*sides, **single)
        results.append([found.total.detach(), *torch.autograd.grad(found.total, sides)])
    assert {cosines.rounded is None for cosines in rounded} == {True, False}
    torch.testing.assert_close(*results, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("mask", ["self", "guide"])
@pytest.mark.parametrize(
    "more", [{}, {"decoupled": True}, {"debiased_prior": 0.1}, {"directions": ("query_to_doc",)}], ids=str
)
def test_few_removed_cells_are_treated_as_many_are(
    monkeypatch: pytest.MonkeyPatch, mask: str, more: dict[str, Any]
) -> None:
    batch = Batch(3, pairs=40, extra=0)
    loss = loss_of(name="bsc", mask=mask, mask_margin=0.1, **more).double()
    monkeypatch.setattr(tiled, "TILE_ROWS", 16)
    monkeypatch.setattr(tiled, "TILE_COLUMNS", 64)
    results, kinds = [], []
    build = tiled._TileBuilder.build
    monkeypatch.setattr(
        tiled._TileBuilder, "build", lambda *given, **named: kinds.append(build(*given, **named)) or kinds[-1]
    )
    for many in (0.0, 1.0):
        monkeypatch.setattr(negatives, "MANY", many)
        kinds.clear()
        sides = [side.clone().requires_grad_() for side in (batch.queries, batch.documents)]
        found = loss(*sides, batch.labels, **batch.guide)
        results.append([found.total.detach(), *found.terms.values(), *torch.autograd.grad(found.total, sides)])
        assert any(tile.removed is not None for tile in kinds) == bool(many)
        assert any(tile.mask_values is not None for tile in kinds) != bool(many)
    torch.testing.assert_close(*results)


def test_a_rounded_product_differs_by_at_most_its_bound() -> None:
    left, right = (torch.nn.functional.normalize(side.float(), dim=1) for side in vectors(0, (600, 384), (500, 384)))
    right[:100] = left[:100]
    difference = (left @ right.T - (left.bfloat16() @ right.bfloat16().T).float()).abs().max()
    assert 1e-4 < difference < negatives.ROUNDED_ERROR < 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_values_above_a_limit_are_found(dtype: torch.dtype, axes: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    found = set()
    for _ in range(300):
        values = (torch.rand(3, 4, generator=generator) * 2 - 1 - torch.rand(1, generator=generator)).to(dtype)
        limits = torch.rand(6, generator=generator) - 0.5 * torch.randint(3, (1,), generator=generator)
        rows, columns = slice(2, 5), slice(1, 5)
        kept = torch.ones(3, 4, dtype=torch.bool)
        kept.diagonal(1).fill_(False)
        above = [values > (limits[rows, None] if axis == 1 else limits[columns]) for axis in axes]
        expected = any(bool((one & kept).any()) for one in above)
        before = values.clone()
        assert negatives.exceed(values, limits, rows, columns, axes) == expected
        assert torch.equal(values, before)
        found.add((expected, bool((limits < 0).any())))
    assert len(found) == 4


@pytest.mark.parametrize("names", SWITCH_PAIRS, ids=" and ".join)
@pytest.mark.parametrize("extra", [0, 5])
def test_gradients_are_those_of_finite_differences(names: tuple[str, ...], extra: int) -> None:
    batch = Batch(3, extra=extra)
    loss = switched_loss(names).double()
    with torch.no_grad():
        weights = [name for name in names if "weights" in name]
    if weights:  # their cosines have no gradient: compare with a copy that shares the cosines
        return check_detached(batch, loss)

    def total(queries: Tensor, documents: Tensor) -> Tensor:
        return loss(queries, documents, **batch.guide).total

    sides = [batch.queries.requires_grad_(), batch.documents.requires_grad_()]
    assert torch.autograd.gradcheck(total, sides, eps=1e-7, atol=1e-5)


def check_detached(batch: Batch, loss: Any) -> None:
    """Compare the gradient with that of a dense computation in which autograd sees the detached cosines."""
    plain = loss.loss if hasattr(loss, "weights") else loss
    config = plain.config
    widths = loss.weights if hasattr(loss, "weights") else {batch.queries.shape[1]: 1.0}
    results = []
    for dense in (False, True):
        queries, documents = batch.queries.clone().requires_grad_(), batch.documents.clone().requires_grad_()
        if dense:
            total = sum(
                weight * dense_loss(batch, queries[:, :d], documents[:, :d], plain) for d, weight in widths.items()
            )
        else:
            total = loss(queries, documents, **batch.guide).total
        results.append([total.detach(), *torch.autograd.grad(total, [queries, documents])])
    torch.testing.assert_close(results[0], results[1])
    assert config.hardness != "none"


def dense_loss(batch: Batch, queries: Tensor, documents: Tensor, loss: Any) -> Tensor:
    """Return BSC with hardness weights from full matrices."""
    config, tau = loss.config, torch.as_tensor(loss.temperature())
    left, right = (torch.nn.functional.normalize(side, dim=1) for side in (queries, documents))
    pairs, choices = len(left), len(right)
    guide = [torch.nn.functional.normalize(side, dim=1) for side in (batch.guide_queries, batch.guide_documents)]
    judge = guide if config.mask == "guide" else [left.detach(), right.detach()]
    limit = (judge[0] * judge[1][:pairs]).sum(dim=1)
    limit = limit - config.mask_margin * (1 if config.mask_margin_kind == "absolute" else limit.abs())
    own = torch.eye(pairs).bool().repeat(1, choices // pairs)
    diagonal = torch.eye(pairs, choices).bool()
    chosen = {"in_batch_negatives": ~own, "hard_negatives": own & ~diagonal, "all_negatives": ~diagonal}[
        config.hardness
    ]
    blocks = {
        "query_to_doc": (left, right, judge[0], judge[1], ~diagonal),
        "doc_to_query": (right[:pairs], left, judge[1][:pairs], judge[0], ~torch.eye(pairs).bool()),
        "query_to_query": (left, left, judge[0], judge[0], ~torch.eye(pairs).bool()),
        "doc_to_doc": (right[:pairs], right, judge[1][:pairs], judge[1], ~own),
    }
    positive = (left * right[:pairs]).sum(dim=1) / tau
    logits = {}
    for name in loss.directions:
        anchors, candidates, of_anchors, of_candidates, allowed = blocks[name]
        if config.mask != "none":
            allowed = allowed & ~(of_anchors @ of_candidates.T > limit[:, None])
        scores = anchors @ candidates.T / tau
        if name == "query_to_doc":
            scores = scores + config.hardness_strength * chosen * (anchors @ candidates.T).detach()
        logits[name] = scores.masked_fill(~allowed, -torch.inf)
    groups = [list(logits)] if config.partition == "joint" and len(logits) > 1 else [[name] for name in logits]
    total = torch.zeros(())
    for group in groups:
        scores = torch.cat([logits[name] for name in group], dim=1)
        count = scores.isfinite().sum(dim=1)
        denominator = scores.exp().sum(dim=1)
        if config.debiased_prior:
            prior = config.debiased_prior
            share = (denominator / count.clamp(min=1) - prior * positive.exp()) / (1 - prior)
            denominator = count * torch.maximum(share, (-1 / tau).exp())
        if not config.decoupled:
            denominator = denominator + len({"query_to_doc", "doc_to_query"} & set(group)) * positive.exp()
        safe = torch.where(count > 0, denominator, 1.0)
        total = total + torch.where(count > 0, safe.log() - positive, 0.0).mean() / len(groups)
    return total


class Encoder(torch.nn.Module):
    """Returns the vectors in its input, as an encoder of sentence-transformers."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.tokenizer = torch.nn.Identity()
        self.max_seq_length = 1
        self.width = width

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self) -> int:
        return self.width


def compare(batch: Batch, loss: Any, peer: Any, columns: int = 2, labels: Tensor | None = None) -> None:
    """Compare value and gradients to 1e-6."""
    results = []
    for of_peer in (False, True):
        queries, documents = batch.queries.clone().requires_grad_(), batch.documents.clone().requires_grad_()
        if of_peer:
            sides = [queries, *documents.split(len(queries))][:columns]
            total = peer([{"vectors": side} for side in sides], labels)
        else:
            total = loss(queries, documents, labels, **batch.guide).total
        results.append([total.detach(), *torch.autograd.grad(total, [queries, documents])])
    torch.testing.assert_close(results[0], results[1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("margin", [-0.1, 0.0, 0.2])
@pytest.mark.parametrize("kind", ["absolute", "relative"])
@pytest.mark.parametrize("extra", [0, 5])
def test_the_guide_mask_equals_gist(monkeypatch, margin: float, kind: str, extra: int) -> None:
    batch = Batch(11, extra=extra)
    peer = peers.GISTEmbedLoss.__new__(peers.GISTEmbedLoss)
    torch.nn.Module.__init__(peer)
    peer.model, peer.guide, peer.must_retokenize = Encoder(), Guide(batch), False
    peer.temperature, peer.margin, peer.margin_strategy = 0.05, margin, kind
    peer.contrast_anchors, peer.contrast_positives, peer.gather_across_devices = True, not extra, False
    peer.similarity_fct = torch.nn.CosineSimilarity(dim=-1)
    peer.cross_entropy_loss = torch.nn.CrossEntropyLoss()
    directions = ["query_to_doc", "query_to_query", *(() if extra else ("doc_to_doc",))]
    loss = loss_of(
        name="mnrl", temperature=0.05, mask="guide", mask_margin=margin, mask_margin_kind=kind, directions=directions
    )
    compare(batch, loss, peer, columns=3 if extra else 2)


@pytest.mark.parametrize(("margin", "kind"), [(0.0, "absolute"), (0.1, "absolute"), (0.2, "relative")])
@pytest.mark.parametrize("extra", [0, 5])
def test_the_guide_mask_equals_cached_gist(margin: float, kind: str, extra: int) -> None:
    batch = Batch(13, extra=extra)
    peer = peers.CachedGISTEmbedLoss.__new__(peers.CachedGISTEmbedLoss)
    torch.nn.Module.__init__(peer)
    peer.temperature, peer.margin, peer.margin_strategy, peer.mini_batch_size = 0.05, margin, kind, 2
    peer.contrast_anchors, peer.contrast_positives, peer.gather_across_devices = True, not extra, False
    peer.similarity_fct, peer.show_progress_bar = torch.nn.CosineSimilarity(dim=-1), False
    peer.cross_entropy_loss = torch.nn.CrossEntropyLoss()
    pairs = len(batch.queries)
    columns = [batch.queries, *batch.documents.split(pairs)]
    pieces = [[part.detach().requires_grad_() for part in column.split(2)] for column in columns]
    of_guide = [list(column.split(2)) for column in (batch.guide_queries, *batch.guide_documents.split(pairs))]
    expected = peer.calculate_loss(pieces, of_guide, with_backward=True)
    directions = ["query_to_doc", "query_to_query", *(() if extra else ("doc_to_doc",))]
    loss = loss_of(
        name="mnrl", temperature=0.05, mask="guide", mask_margin=margin, mask_margin_kind=kind, directions=directions
    )
    batch.queries.requires_grad_()
    batch.documents.requires_grad_()
    value = batch.value(loss)
    value.backward()
    assert float(value.detach()) == pytest.approx(float(expected), abs=1e-6)
    gradients = [torch.cat([part.grad for part in column]) for column in pieces]
    assert torch.allclose(batch.queries.grad, gradients[0], atol=1e-6)
    assert torch.allclose(batch.documents.grad, torch.cat(gradients[1:]), atol=1e-6)


class Guide(torch.nn.Module):
    """Returns the guide's vectors of the batch, one column after another."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        pairs = len(batch.queries)
        self.columns = [batch.guide_queries, *batch.guide_documents.split(pairs)]
        self.calls = 0

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        self.calls += 1
        rows = len(features["vectors"])
        if rows > len(self.columns[0]):
            return {"sentence_embedding": torch.cat(self.columns[: rows // len(self.columns[0])])}
        return {"sentence_embedding": self.columns[self.calls - 1]}


@pytest.mark.parametrize(
    ("directions", "partition"),
    [
        (DIRECTIONS[:1], "joint"),
        (DIRECTIONS[:2], "joint"),
        (DIRECTIONS[:2], "per_direction"),
        (DIRECTIONS[::2], "joint"),
        (DIRECTIONS, "joint"),
    ],
)
@pytest.mark.parametrize("hardness", ["none", "in_batch_negatives", "hard_negatives", "all_negatives"])
@pytest.mark.parametrize("extra", [0, 5])
def test_mnrl_equals_sentence_transformers(
    directions: tuple[str, ...], partition: str, hardness: str, extra: int
) -> None:
    peer = peers.MultipleNegativesRankingLoss(
        Encoder(),
        directions=directions,
        partition_mode=partition,
        hardness_mode=None if hardness == "none" else hardness,
        hardness_strength=0.0 if hardness == "none" else 5.0,
    )
    loss = loss_of(name="mnrl", directions=directions, partition=partition, hardness=hardness)
    compare(Batch(12, extra=extra), loss, peer, columns=3 if extra else 2)


@pytest.mark.parametrize(("name", "peer"), [("cosent", peers.CoSENTLoss), ("angle", peers.AnglELoss)])
@pytest.mark.parametrize("width", [6, 5])
@pytest.mark.parametrize("labels", [[0.1, 0.9, 0.5, 0.5, 0.0], [1.0, 0.0, 1.0, 0.0, 0.0], [0.3] * 5])
def test_order_losses_equal_sentence_transformers(name: str, peer: Any, width: int, labels: list[float]) -> None:
    compare(Batch(13, width=width), loss_of(name=name), peer(Encoder()), labels=torch.tensor(labels))


@pytest.mark.parametrize("name", ["mnrl", "cosent"])
def test_matryoshka_equals_sentence_transformers(name: str) -> None:
    inner = {"mnrl": peers.MultipleNegativesRankingLoss, "cosent": peers.CoSENTLoss}[name](Encoder())
    peer = peers.MatryoshkaLoss(inner.model, inner, [2, 6, 4], [0.5, 1.0, 2.0])
    loss = loss_of(name=name, matryoshka_dims=[2, 6, 4], matryoshka_weights=[0.5, 1.0, 2.0])
    compare(Batch(14), loss, peer, labels=torch.tensor([0.1, 0.9, 0.5, 0.4, 0.7]) if name == "cosent" else None)


def test_a_row_without_negatives_gives_0_and_is_counted() -> None:
    batch = Batch(15)
    for config in ({}, {"decoupled": True}, {"debiased_prior": 0.1}):
        loss = loss_of(name="mnrl", mask="self", mask_margin=2.0, **config)
        queries = batch.queries.clone().requires_grad_()
        parts = loss(queries, batch.documents)
        assert parts.total.item() == 0.0
        assert float(parts.terms["rows_without_negatives"]) == 5
        assert float(parts.terms["masked_negatives"]) == 4
        assert torch.autograd.grad(parts.total, queries)[0].abs().max() == 0


def test_labels_win_over_the_judge() -> None:
    query = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    documents = torch.tensor([[0.6, 0.8], [1.0, 0.0], [0.8, 0.6]])  # the second document is closest to the first query
    ids = {"query_ids": torch.tensor([0, 0, 1]), "document_ids": torch.tensor([2, 3, 4])}
    loss = loss_of(name="mnrl", mask="self", temperature=1.0)

    def first_row(labels: list[float], **more: Tensor) -> float:
        weights = torch.tensor(labels)
        return float(loss(query, documents, weights, **more).terms["masked_negatives"]) * sum(labels)

    assert first_row([1.0, 0.0, 1.0]) == 2 + 1  # without ids, the judge removes both from row 0 and one from row 2
    assert first_row([1.0, 0.0, 1.0], **ids) == 1 + 1  # the pair labeled negative stays
    removed = loss(query, documents, torch.ones(3), **ids)
    assert float(removed.total) == pytest.approx(
        in_batch_of(query, documents, ids), abs=1e-6
    )  # the pair labeled positive leaves the denominator, and is not counted as the judge's


def in_batch_of(queries: Tensor, documents: Tensor, ids: dict[str, Tensor]) -> float:
    batch = Batch(0, 3)
    batch.queries, batch.documents = queries.double(), documents.double()
    return in_batch(batch, ids, None, mask="self", temperature=1.0)


def test_the_debiased_estimate_is_bounded_and_finite() -> None:
    """A positive far above the negatives: without the bound, the logarithm of a negative number."""
    queries = torch.eye(4, dtype=torch.float64).requires_grad_()
    loss = loss_of(name="mnrl", debiased_prior=0.3, temperature=0.02)
    parts = loss(queries, torch.eye(4, dtype=torch.float64))
    expected = np.log(1 + 3 * np.exp(-50 - 50))
    assert parts.total.item() == pytest.approx(expected, abs=1e-12)
    assert torch.autograd.grad(parts.total, queries)[0].isfinite().all()


@pytest.mark.parametrize("seed", range(3))
def test_the_sigmoid_loss_is_its_equation(seed: int) -> None:
    batch = Batch(seed, extra=5)
    loss = loss_of(name="sigmoid", temperature=0.2, bias=-3.0)
    cells = torch.tensor([[0, 1], [2, 7]])
    total = loss(batch.queries, batch.documents, batch.labels, excluded=cells).total
    expected = 0.0
    for row, query in enumerate(batch.queries.numpy()):
        for column, document in enumerate(batch.documents.numpy()):
            if (row, column) not in {(0, 1), (2, 7)}:
                sign = 1 if row == column and float(batch.labels[row]) > 0.5 else -1
                expected += np.log1p(np.exp(-sign * (cosine(query, document) / 0.2 - 3.0))) / len(batch.queries)
    assert total.item() == pytest.approx(expected, rel=1e-6)


def test_the_sigmoid_loss_in_blocks_is_that_of_the_full_matrix(monkeypatch) -> None:
    results = []
    for scores in (10**9, 7):
        monkeypatch.setattr("bsc_core.losses.sigmoid.BLOCK_SCORES", scores)
        batch, loss = Batch(4), loss_of(name="sigmoid").double()
        queries = batch.queries.clone().requires_grad_()
        total = loss(queries, batch.documents).total
        leaves = [queries, loss.bias, loss.temperature.log_temperature]
        results.append([total.detach(), *torch.autograd.grad(total, leaves)])
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"directions": ["doc_to_query"]}, "name query_to_doc"),
        ({"directions": DIRECTIONS, "partition": "per_direction"}, 'set partition = "joint"'),
        ({"mask_margin": 3}, "mask_margin"),
        ({"debiased_prior": 1.0}, "debiased_prior"),
        ({"hardness_strength": -1}, "hardness_strength"),
        ({"matryoshka_dims": [4, 4]}, "name each dimension once"),
        ({"matryoshka_dims": [4], "matryoshka_weights": [1, 2]}, "2 number"),
        ({"temperature_end": 0.2}, "temperature_schedule is constant"),
        ({"temperature_schedule": "linear", "learn_temperature": True}, "choose one of them"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, ConfigError), match=message):
        loss_of(name="mnrl", **config)


def test_a_batch_that_does_not_fit_the_settings_is_refused() -> None:
    batch = Batch(0)
    with pytest.raises(InputError, match="guide_queries and guide_documents are missing"):
        loss_of(name="mnrl", mask="guide")(batch.queries, batch.documents)
    with pytest.raises(InputError, match="one vector for each"):
        loss_of(name="mnrl", mask="guide")(
            batch.queries, batch.documents, guide_queries=batch.guide_queries[:2], guide_documents=batch.guide_documents
        )
    with pytest.raises(InputError, match="matryoshka_dims has 9, and the embeddings have 6 dimensions"):
        loss_of(name="mnrl", matryoshka_dims=[9])(batch.queries, batch.documents)


def test_a_cell_that_a_person_decided_negative_is_never_masked() -> None:
    left, right = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    loss = loss_of(name="mnrl", mask="self", mask_margin=2.0, temperature=0.5)
    ids = {"query_ids": torch.arange(3), "document_ids": torch.arange(3)}
    assert loss(left, right, **ids).total == 0
    decided = loss(left, right, **ids, labeled_negative=torch.tensor([[0, 1]]))
    torch.testing.assert_close(decided.total, torch.tensor(1 + math.exp(-2), dtype=torch.float64).log() / 3)
