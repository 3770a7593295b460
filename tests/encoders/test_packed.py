"""Real tokens only: the vectors and gradients of the model itself, and where the packed pass may stand for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn

from bsc_core.config import EncoderConfig
from bsc_core.encoders import TokenTable, load_encoder, tokenise
from bsc_core.encoders.forward import PlainForward, make_forward
from bsc_core.encoders.layout import cut
from bsc_core.encoders.packed import PackedForward, is_packable
from bsc_core.encoders.packed_layer import Dropout

WORDS = "soup bread salt water garden rose seed soil tent train".split()


@pytest.fixture
def model(tiny_encoder):
    return load_encoder(EncoderConfig(name=str(tiny_encoder), max_length=64))


@pytest.fixture
def tokens(model) -> TokenTable:
    texts = [" ".join(WORDS[number % 10] for number in range(count)) for count in (1, 3, 7, 12, 13, 14, 15, 29, 30, 59)]
    return tokenise(model, [*texts, "soup [PAD] soup", ""], 64)


def gradients(forward, ids, weights) -> dict[str, torch.Tensor]:
    """Of the weighted sum of the vectors, micro-batch by micro-batch, for every weight of the model."""
    for positions in forward.micro_batches(ids, 64):
        with forward.one_pass():
            vectors = forward.embed(ids[positions])
        (vectors * weights[positions]).sum().backward()
    found = {name: parameter.grad for name, parameter in forward.named_parameters() if parameter.grad is not None}
    if isinstance(forward, PackedForward):
        name = next(name for name in found if "word_embeddings" in name)
        whole = torch.zeros_like(dict(forward.model.named_parameters())[name])
        whole[np.unique(forward.tokens.tokens)] = found[name]
        found[name] = whole
    return found


def both(model, tokens, ids, precision="fp32"):
    weights = torch.randn(len(ids), 32, generator=torch.Generator().manual_seed(3))
    plain = gradients(PlainForward(model, tokens, "fp32"), ids, weights)
    model.zero_grad()
    packed = gradients(make_forward(model, tokens, precision), ids, weights)
    return plain, packed


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(
    "ids", [[5], [11, 0], [4] * 5, [7, 0, 10, 3, 9, 9, 1, 8, 11]], ids=["one", "short", "equal", "all"]
)
def test_vectors_and_gradients_are_the_models_own(model, tokens, pooling, normalised, ids) -> None:
    model[1].pooling_mode = pooling
    if normalised:
        model.append(Normalize())
    ids = np.array(ids)
    assert isinstance(make_forward(model, tokens, "fp32"), PackedForward)
    expected = PlainForward(model, tokens, "fp32").embed(ids)
    found = make_forward(model, tokens, "fp32").embed(ids)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    plain, packed = both(model, tokens, ids)
    assert plain.keys() == packed.keys()
    for name, gradient in plain.items():
        largest = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(packed[name], gradient, rtol=0, atol=1e-5 * largest, msg=name)


def test_bf16_is_as_near_to_float32_as_autocast_is(model, tokens) -> None:
    ids = np.arange(len(tokens))
    weights = torch.randn(len(ids), 32, generator=torch.Generator().manual_seed(3))
    exact, packed = both(model, tokens, ids, "bf16")
    model.zero_grad()
    cast = gradients(PlainForward(model, tokens, "bf16"), ids, weights)

    def error(found) -> float:
        return float(sum((found[name] - exact[name]).square().sum() for name in exact) ** 0.5)

    assert 0 < error(packed) < 1.5 * error(cast)


def test_vectors_without_gradients_are_those_with(model, tokens) -> None:
    forward = make_forward(model, tokens, "bf16")
    ids = np.array([3, 8, 1])
    with torch.no_grad():
        found = forward.embed(ids)
    assert not found.requires_grad
    assert torch.equal(found, forward.embed(ids).detach())


def test_equal_random_states_give_equal_dropout_and_others_other(model, tokens) -> None:
    model.train()
    forward, ids = make_forward(model, tokens, "bf16"), np.array([3, 8, 1])
    seen = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        seen.append(forward.embed(ids).detach())
    assert torch.equal(seen[0], seen[1])
    assert not torch.allclose(seen[0], seen[2], atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_its_share_and_keeps_the_mean(dtype) -> None:
    torch.manual_seed(0)
    module = nn.Dropout(0.1)
    x = torch.ones(301, 997, dtype=dtype)
    y, kept = Dropout(module).forward(x)
    assert abs(float((y == 0).float().mean()) - 0.1) < 0.003
    assert abs(float(y.float().mean()) - 1) < 0.006
    assert torch.equal(Dropout(module).backward(kept, x), y)
    assert Dropout(module.eval()).forward(x)[0] is x


def test_gradients_with_dropout_are_those_of_finite_differences(model, tokens) -> None:
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


def test_gradients_begin_anew_once_the_optimiser_has_let_go_of_them(model, tokens) -> None:
    forward, ids = make_forward(model, tokens, "fp32"), np.array([2, 3])
    parameters = dict(forward.named_parameters())
    forward.embed(ids)[:, 0].sum().backward()
    once = {name: parameter.grad.clone() for name, parameter in parameters.items()}
    forward.embed(ids)[:, 0].sum().backward()
    twice = {name: parameter.grad.clone() for name, parameter in parameters.items()}
    for parameter in parameters.values():
        parameter.grad = None
    forward.embed(ids)[:, 0].sum().backward()
    for name, parameter in parameters.items():
        assert torch.equal(parameter.grad, once[name])
        torch.testing.assert_close(twice[name], 2 * once[name])


def test_a_graph_cannot_be_gone_back_through_twice(model, tokens) -> None:
    total = make_forward(model, tokens, "fp32").embed(np.array([2, 3]))[:, 0].sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward"):
        total.backward()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_model_holds_what_was_trained_once_it_is_written_back(model, tokens, precision) -> None:
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
    torch.testing.assert_close(PlainForward(model, tokens, precision).embed(ids).detach(), trained, rtol=0, atol=0.02)
    words = next(name for name in before if "word_embeddings" in name)
    held = np.unique(tokens.tokens)
    others = np.setdiff1d(np.arange(len(before[words])), held)
    after = model.state_dict()
    assert torch.equal(after[words][others], before[words][others])
    assert not torch.equal(after[words][held], before[words][held])


def test_texts_of_another_table_need_all_word_pieces(model, tokens) -> None:
    other = tokenise(model, ["how do i fix my bike", "grow tea"], 64)
    with pytest.raises(ValueError, match="fixed_tokens"):
        make_forward(model, tokens, "fp32").use_tokens(other)
    forward = make_forward(model, tokens, "fp32", fixed_tokens=False)
    forward.use_tokens(other)
    expected = PlainForward(model, other, "fp32").embed(np.array([1, 0]))
    torch.testing.assert_close(forward.embed(np.array([1, 0])), expected, rtol=0, atol=1e-5)


def test_texts_of_which_no_token_is_left_are_left_to_the_model(model) -> None:
    tokens = TokenTable(np.array([5, 6, 7], dtype=np.int32), np.array([0, 2, 2, 3]), token_types=True)
    forward = make_forward(model, tokens, "fp32")
    assert torch.isfinite(forward.embed(np.array([0, 1, 2]))).all()


def test_models_that_are_changed_are_not_packed(model, tokens, tiny_static) -> None:
    assert is_packable(model)
    assert not is_packable(tiny_static)
    bert = model[0].auto_model
    handle = bert.encoder.register_forward_hook(lambda *_: None)
    assert not is_packable(model)
    handle.remove()
    bert.embeddings.requires_grad_(False)
    assert not is_packable(model)
    bert.embeddings.requires_grad_(True)
    bert.config.hidden_act = "relu"
    assert not is_packable(model)
    bert.config.hidden_act = "gelu"
    model[1].pooling_mode = "max"
    assert not is_packable(model)
    model[1].pooling_mode = "mean"
    assert is_packable(model)
    bert.encoder.layer[0].output.dense = type("Adapter", (nn.Linear,), {})(64, 32)
    assert not is_packable(model)
    assert isinstance(make_forward(model, tokens, "fp32"), PlainForward)


@pytest.mark.parametrize("budget", [1, 40, 64, 1000])
def test_micro_batches_hold_every_text_once_and_about_equal_tokens(budget) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, size=37)
    pieces = cut(lengths, budget)
    assert sorted(np.concatenate(pieces).tolist()) == list(range(37))
    taken = lengths[np.concatenate(pieces)]
    assert (np.diff(taken) <= 0).all()
    assert all(lengths[piece].sum() <= budget + lengths.max() for piece in pieces)
    assert cut(lengths[:0], budget) == []


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_bytes_that_backward_keeps_are_known_before(model, tokens, precision, training) -> None:
    model.train(training)
    forward, ids = make_forward(model, tokens, precision), np.arange(len(tokens))
    node = forward.embed(ids).grad_fn
    while type(node).__name__ != "_EncodedBackward":
        node = next(one for one, _ in node.next_functions if one is not None)
    kept = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors(node.kept)}
    assert sum(kept.values()) == pytest.approx(forward.activation_bytes(tokens.lengths), rel=0.15)


def tensors(kept):
    for part in kept:
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, list | tuple):
            yield from tensors(part)
