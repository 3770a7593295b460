"""The packed forward pass: vectors and gradients equal those of the model, and which models it supports."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn

from bsc_core.encoders import TokenTable, tokenize
from bsc_core.encoders.forward import Forward, make_forward
from bsc_core.encoders.forward.packed import PackedForward, dropout, is_packable
from bsc_core.encoders.forward.packed_layout import unpadded_micro_batches
from bsc_core.encoders.forward.plain import counted_activations
from bsc_core.encoders.layers import freeze_layers

WORDS = "soup bread salt water garden rose seed soil tent train".split()


@pytest.fixture
def tokens(model) -> TokenTable:
    texts = [" ".join(WORDS[number % 10] for number in range(count)) for count in (1, 3, 7, 12, 13, 14, 15, 29, 30, 59)]
    return tokenize(model, [*texts, "soup [PAD] soup", ""], 64)


def gradients(forward, ids, weights) -> dict[str, torch.Tensor]:
    """Return the gradients of a weighted sum of the vectors for every weight of the model."""
    for positions in forward.micro_batches(ids, 64):
        with forward.one_pass():
            vectors = forward.embed(ids[positions])
        (vectors * weights[positions]).sum().backward()
    actual = {name: parameter.grad for name, parameter in forward.named_parameters() if parameter.grad is not None}
    if isinstance(forward, PackedForward):
        for name in [name for name in actual if "word_embeddings" in name]:
            full = torch.zeros_like(dict(forward.model.named_parameters())[name])
            full[np.unique(forward.tokens.tokens)] = actual[name]
            actual[name] = full
    return actual


def take_gradients(forward) -> dict[str, torch.Tensor]:
    """Return the gradients by name, and clear them."""
    result = {}
    for name, parameter in forward.named_parameters():
        result[name], parameter.grad = parameter.grad, None
    return result


def both(model, tokens, ids, precision="fp32"):
    """Return the gradients of the model's forward pass, and those of the packed one."""
    weights = torch.randn(len(ids), 32, generator=torch.Generator().manual_seed(3))
    plain = gradients(Forward(model, tokens, "fp32"), ids, weights)
    model.zero_grad()
    packed = gradients(make_forward(model, tokens, precision), ids, weights)
    return plain, packed


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(
    "ids", [[5], [11, 0], [4] * 5, [7, 0, 10, 3, 9, 9, 1, 8, 11]], ids=["one", "short", "equal", "all"]
)
def test_vectors_and_gradients_equal_those_of_the_model(model, tokens, pooling, normalized, ids) -> None:
    model[1].pooling_mode = pooling
    if normalized:
        model.append(Normalize())
    ids = np.array(ids)
    assert isinstance(make_forward(model, tokens, "fp32"), PackedForward)
    expected = Forward(model, tokens, "fp32").embed(ids)
    actual = make_forward(model, tokens, "fp32").embed(ids)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    plain, packed = both(model, tokens, ids)
    assert plain.keys() == packed.keys()
    for name, gradient in plain.items():
        largest = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(packed[name], gradient, rtol=0, atol=1e-5 * largest, msg=name)


def test_frozen_layers_have_no_gradient_and_no_graph(model, tokens) -> None:
    ids = np.arange(len(tokens))
    everything = make_forward(model, tokens, "fp32")
    freeze_layers(model, 1)
    assert everything.activation_bytes(tokens.lengths) > make_forward(model, tokens, "fp32").activation_bytes(
        tokens.lengths
    )
    plain, packed = both(model, tokens, ids)
    assert plain.keys() == packed.keys()
    assert all("encoder.layer.0" not in name and ".embeddings." not in name for name in packed)
    for name, gradient in plain.items():
        largest = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(packed[name], gradient, rtol=0, atol=1e-5 * largest, msg=name)
    sizes = []
    for forward in (everything, make_forward(model, tokens, "fp32")):
        with counted_activations(model.parameters()) as saved:
            forward.embed(ids)
        sizes.append(sum(saved))
    assert sizes[1] < 0.75 * sizes[0]


def test_bf16_is_as_accurate_as_autocast(model, tokens) -> None:
    ids = np.arange(len(tokens))
    weights = torch.randn(len(ids), 32, generator=torch.Generator().manual_seed(3))
    exact, packed = both(model, tokens, ids, "bf16")
    model.zero_grad()
    cast = gradients(Forward(model, tokens, "bf16"), ids, weights)

    def error(actual) -> float:
        return float(sum((actual[name] - exact[name]).square().sum() for name in exact) ** 0.5)

    assert 0 < error(packed) < 1.5 * error(cast)


def test_vectors_are_the_same_with_and_without_gradients(model, tokens) -> None:
    forward = make_forward(model, tokens, "bf16")
    ids = np.array([3, 8, 1])
    with torch.no_grad():
        actual = forward.embed(ids)
    assert not actual.requires_grad
    assert torch.equal(actual, forward.embed(ids).detach())


def test_dropout_depends_on_the_random_state(model, tokens) -> None:
    model.train()
    forward, ids = make_forward(model, tokens, "bf16"), np.array([3, 8, 1])
    vectors = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        vectors.append(forward.embed(ids).detach())
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.allclose(vectors[0], vectors[2], atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_has_its_probability_and_preserves_the_mean(dtype) -> None:
    torch.manual_seed(0)
    module = nn.Dropout(0.1)
    x = torch.ones(301, 997, dtype=dtype, requires_grad=True)
    y = dropout(x, module)
    assert abs(float((y == 0).float().mean()) - 0.1) < 0.003
    assert abs(float(y.detach().float().mean()) - 1) < 0.006
    y.sum().backward()
    assert torch.equal(x.grad, y)
    assert dropout(x, module.eval()) is x


def test_gradients_with_dropout_equal_finite_differences(model, tokens) -> None:
    model.train()
    forward, ids = make_forward(model, tokens, "fp32"), np.array([0, 5, 9])
    weights = torch.randn(3, 32, generator=torch.Generator().manual_seed(5))

    def total() -> torch.Tensor:
        torch.manual_seed(4)
        return (forward.embed(ids) * weights).sum()

    total().backward()
    for name, parameter in forward.named_parameters():
        if not name.endswith(("0.attention.self.value.weight", "1.output.dense.bias", "embeddings.LayerNorm.weight")):
            continue
        direction = parameter.grad / parameter.grad.norm()
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(direction, alpha=sign * 1e-2)
                ends.append(float(total()))
                parameter.sub_(direction, alpha=sign * 1e-2)
        assert (ends[0] - ends[1]) / 2e-2 == pytest.approx(float(parameter.grad.norm()), rel=2e-2), name


def test_gradients_are_zero_after_the_optimizer_clears_them(model, tokens) -> None:
    forward, ids = make_forward(model, tokens, "fp32"), np.array([2, 3])
    results = []
    for times in (1, 2, 1):
        for _ in range(times):
            forward.embed(ids)[:, 0].sum().backward()
        results.append(take_gradients(forward))
    once, twice, again = results
    for name, gradient in once.items():
        assert torch.equal(again[name], gradient)
        torch.testing.assert_close(twice[name], 2 * gradient)


def test_casting_weights_once_gives_identical_gradients(model, tokens) -> None:
    forward, ids = make_forward(model, tokens, "bf16"), np.array([3, 8, 1])
    results = []
    for context in (nullcontext, forward.one_pass):
        with context():
            parts = [forward.embed(ids[:2]), forward.embed(ids[2:])]
        for part in parts:
            part.sum().backward()
        results.append(take_gradients(forward))
    assert all(torch.equal(results[0][name], gradient) for name, gradient in results[1].items())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_write_back_copies_trained_weights_into_the_model(model, tokens, precision) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward, ids = make_forward(model, tokens, precision), np.array([4, 9, 0])
    optimizer = torch.optim.AdamW([parameter for _, parameter in forward.named_parameters()], lr=1e-2)
    for _ in range(2):
        forward.embed(ids)[:, 0].sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        forward.weights_changed()
    trained = forward.embed(ids).detach()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    forward.write_back()
    torch.testing.assert_close(Forward(model, tokens, precision).embed(ids).detach(), trained, rtol=0, atol=0.02)
    words = next(name for name in before if "word_embeddings" in name)
    used = np.unique(tokens.tokens)
    others = np.setdiff1d(np.arange(len(before[words])), used)
    after = model.state_dict()
    assert torch.equal(after[words][others], before[words][others])
    assert not torch.equal(after[words][used], before[words][used])


def test_another_token_table_needs_all_word_pieces(model, tokens) -> None:
    other = tokenize(model, ["how do i fix my bike", "grow tea"], 64)
    with pytest.raises(ValueError, match="fixed_tokens"):
        make_forward(model, tokens, "fp32").use_tokens(other)
    forward = make_forward(model, tokens, "fp32", fixed_tokens=False)
    forward.use_tokens(other)
    expected = Forward(model, other, "fp32").embed(np.array([1, 0]))
    torch.testing.assert_close(forward.embed(np.array([1, 0])), expected, rtol=0, atol=1e-5)


def test_texts_without_tokens_are_not_packed(model) -> None:
    tokens = TokenTable(np.array([5, 6, 7], dtype=np.int32), np.array([0, 2, 2, 3]), token_types=True)
    forward = make_forward(model, tokens, "fp32")
    assert torch.isfinite(forward.embed(np.array([0, 1, 2]))).all()


def test_modified_models_are_not_packed(model, tokens, tiny_static) -> None:
    assert is_packable(model)
    assert not is_packable(tiny_static)
    bert = model[0].auto_model
    handle = bert.encoder.register_forward_hook(lambda *_: None)
    assert not is_packable(model)
    handle.remove()
    bert.embeddings.requires_grad_(False)
    assert is_packable(model)
    bert.encoder.requires_grad_(False)
    assert not is_packable(model)
    bert.requires_grad_(True)
    for owner, name, other in ((bert.config, "hidden_act", "relu"), (model[1], "pooling_mode", "max")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, other)
            assert not is_packable(model)
    assert is_packable(model)
    bert.encoder.layer[0].output.dense = type("Adapter", (nn.Linear,), {})(64, 32)
    assert not is_packable(model)
    assert not isinstance(make_forward(model, tokens, "fp32"), PackedForward)


@pytest.mark.parametrize("budget", [1, 40, 64, 1000])
def test_micro_batches_partition_the_texts_into_about_equal_tokens(budget) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, size=37)
    pieces = unpadded_micro_batches(lengths, budget)
    assert sorted(np.concatenate(pieces).tolist()) == list(range(37))
    taken = lengths[np.concatenate(pieces)]
    assert (np.diff(taken) <= 0).all()
    assert all(lengths[piece].sum() <= budget + lengths.max() for piece in pieces)
    assert unpadded_micro_batches(lengths[:0], budget) == []


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_size_of_activations_is_estimated(model, tokens, precision, training) -> None:
    model.train(training)
    forward, ids = make_forward(model, tokens, precision), np.arange(len(tokens))
    sizes = []
    for passes in (1, 2):
        with forward.one_pass(), counted_activations(weight for _, weight in forward.named_parameters()) as saved:
            vectors = [forward.embed(ids) for _ in range(passes)]
        sizes.append(sum(saved))
        del vectors
    # the second pass shares the casts of the weights with the first
    assert sizes[1] - sizes[0] == pytest.approx(forward.activation_bytes(tokens.lengths), rel=0.05)
