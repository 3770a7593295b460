"""Concatenated texts: vectors and gradients equal those of padded texts, and reasons for padding."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, AutoTokenizer, DistilBertConfig, ModernBertConfig, MPNetConfig, RobertaConfig

from bsc_core.config import TrainingConfig
from bsc_core.encoders import TokenTable, tokenize
from bsc_core.encoders.forward import Forward, make_forward, unpadded
from bsc_core.encoders.forward.plain import counted_activations
from bsc_core.training.loop.device import ActivationMemory
from bsc_core.training.loop.step import GradientCachedEncoder

WORDS = "soup bread salt water garden rose seed soil tent train".split()
COUNTS = (1, 3, 7, 12, 13, 14, 15, 29, 30, 59)
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}


@pytest.fixture
def build_encoder(tiny_encoder, tmp_path):
    """Return a function that builds a tiny encoder of another architecture with the tiny BERT's tokenizer."""

    def build(config) -> SentenceTransformer:
        tokenizer = AutoTokenizer.from_pretrained(tiny_encoder)
        config.vocab_size = len(tokenizer)
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return SentenceTransformer(modules=[Transformer(str(tmp_path), max_seq_length=64), Pooling(32)], device="cpu")

    return build


def table(model: SentenceTransformer) -> TokenTable:
    return tokenize(model, [" ".join(WORDS[number % 10] for number in range(count)) for count in COUNTS], 64)


def vectors_and_gradients(
    model: SentenceTransformer, ids, *, flat: bool
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the vectors, and the gradients of a weighted sum of them."""
    model.zero_grad()
    vectors = Forward(model, table(model), "fp32", flat=flat).embed(np.array(ids))
    (vectors * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(3))).sum().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return vectors.detach(), gradients


def assert_same(model: SentenceTransformer, ids=(7, 0, 9, 3, 3, 1, 8)) -> None:
    (padded, expected), (flat, gradients) = (vectors_and_gradients(model, ids, flat=flat) for flat in (False, True))
    assert torch.allclose(flat, padded, atol=1e-5, rtol=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, atol=1e-5, rtol=1e-5), name


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken", "weightedmean"])
@pytest.mark.parametrize("ids", [[5], [3, 0], [4] * 5, range(10)], ids=["one", "short", "equal", "all"])
def test_vectors_and_gradients_equal_those_of_padded_texts(model, pooling, ids) -> None:
    model[1].pooling_mode = pooling
    assert_same(model, ids)


def test_modules_after_pooling_are_supported(model) -> None:
    assert_same(SentenceTransformer(modules=[model[0], model[1], Dense(32, 8), Normalize()], device="cpu"))


@pytest.mark.parametrize(
    "config",
    [RobertaConfig(**SMALL), DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64, pad_token_id=0)],
    ids=["roberta", "distilbert"],
)
def test_other_architectures_are_supported(build_encoder, config) -> None:
    model = build_encoder(config)
    assert unpadded.first_position(model) == (1 if isinstance(config, RobertaConfig) else 0)
    assert not unpadded.unsupported(model, table(model), half_precision=True)
    assert_same(model.eval())
    assert not failure(model)


def failure(model: SentenceTransformer, tolerance: float = 1e-4) -> str:
    forward = Forward(model, table(model), "fp32")
    with pytest.MonkeyPatch.context() as patch:  # nested tensors warn on a CPU, where nothing uses them
        patch.setattr(
            unpadded, "by_nesting", lambda q, k, v, bounds, longest, p, s: unpadded.by_text(q, k, v, bounds, p, s)
        )
        return unpadded.trial_failure(
            model, table(model), lambda flat, ids: forward._vectors(table(model), ids, flat), tolerance
        )


def test_a_wrong_first_position_is_detected(build_encoder, monkeypatch) -> None:
    monkeypatch.setattr(unpadded, "first_position", lambda model: 0)
    assert failure(build_encoder(RobertaConfig(**SMALL))) == "its vectors differ without padding"


def test_attention_across_texts_is_detected(model, monkeypatch) -> None:
    original = unpadded.by_text
    monkeypatch.setattr(unpadded, "by_text", lambda q, k, v, bounds, p, s: original(q, k, v, bounds[[0, -1]], p, s))
    assert failure(model) == "its vectors differ without padding"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            ModernBertConfig(**SMALL, sep_token_id=3, cls_token_id=2, bos_token_id=2, eos_token_id=3),
            "its attention needs sliding_window",
        ),
        (RobertaConfig(**SMALL, is_decoder=True), "its attention needs causal attention"),
    ],
    ids=["sliding", "causal"],
)
def test_an_unsupported_attention_is_padded(build_encoder, config, reason) -> None:
    assert failure(build_encoder(config)) == reason


def test_a_trial_does_not_change_the_model(model) -> None:
    model.train()
    torch.manual_seed(2)
    expected, before = torch.rand(3), model.transformers_model.config._attn_implementation
    torch.manual_seed(2)
    assert not failure(model)
    assert torch.equal(torch.rand(3), expected)
    assert all(module.training for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())
    assert model.transformers_model.config._attn_implementation == before != unpadded.ATTENTION


def test_an_error_restores_the_attention(model) -> None:
    before = model.transformers_model.config._attn_implementation
    with pytest.raises(ZeroDivisionError), unpadded.attention_within_texts(model):
        raise ZeroDivisionError
    assert model.transformers_model.config._attn_implementation == before


def test_the_reason_for_padding_is_returned(model, tiny_static, build_encoder) -> None:
    def reason(encoder, tokens=None) -> str:
        return unpadded.unsupported(encoder, tokens or table(encoder), half_precision=True)

    assert Forward(model, table(model), "bf16").padding_reason().startswith("only a GPU has fused kernels")
    assert "half precision" in unpadded.unsupported(model, table(model), half_precision=False)
    assert reason(model, TokenTable(np.array([2, 3], dtype=np.int32), np.array([0, 2, 2]))) == "a text has no tokens"
    strange = SentenceTransformer(modules=[model[0], nn.Identity(), model[1]], device="cpu")
    assert "a module after the transformer" in reason(strange)
    assert reason(tiny_static) == "the encoder is not a single transformer"
    custom = build_encoder(MPNetConfig(**SMALL))
    assert "a custom attention" in reason(custom) or failure(custom)
    model.transformers_model.encoder.gradient_checkpointing = True
    assert "gradient checkpointing" in reason(model)


def test_dropout_is_the_same_when_a_pass_is_repeated(model) -> None:
    model.train()
    gradients = []
    for mode in ("always", "never"):
        forward = Forward(model, table(model), "fp32", flat=True)
        config = TrainingConfig(gradient_cache=mode).model_copy(update={"micro_tokens": 64})
        torch.manual_seed(5)
        encoding = GradientCachedEncoder(forward, config, ActivationMemory(2**30, 2**28)).encode(np.arange(10))
        assert len(encoding.pieces) > 1
        encoding.vectors.square().sum().backward()
        encoding.backward()
        gradients.append([weight.grad.clone() for weight in model.parameters() if weight.grad is not None])
        model.zero_grad()
    assert len(gradients[0]) > 30
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("reason", ["", "a text has no tokens"])
def test_the_log_says_why_a_gpu_pads(model, monkeypatch, capsys, reason) -> None:
    monkeypatch.setattr(Forward, "device", torch.device("cuda"))
    monkeypatch.setattr(Forward, "padding_reason", lambda forward: reason)
    forward = make_forward(model, table(model), "fp16", without_padding=True)
    assert forward.flat == (not reason)
    assert capsys.readouterr().err == (f"Texts are padded: {reason}\n" if reason else "")


def test_a_gpu_pads_by_default(model, monkeypatch, capsys) -> None:
    monkeypatch.setattr(Forward, "device", torch.device("cuda"))
    monkeypatch.setattr(Forward, "padding_reason", lambda forward: "")
    assert not make_forward(model, table(model), "fp16").flat
    assert capsys.readouterr().err == ""


def test_micro_batches_have_at_most_budget_tokens(model) -> None:
    tokens = table(model)
    pieces = Forward(model, tokens, "fp32", flat=True).micro_batches(np.arange(10), 80)
    assert sorted(np.concatenate(pieces).tolist()) == list(range(10))
    assert max(int(tokens.lengths[piece].sum()) for piece in pieces) <= 90
    assert len(pieces) < len(Forward(model, tokens, "fp32").micro_batches(np.arange(10), 80))


@pytest.mark.parametrize("ids", [[5], [1, 2, 3], [9] * 7, range(10)], ids=["one", "short", "equal", "many"])
def test_the_size_of_activations_is_estimated(model, ids) -> None:
    model.eval()
    forward = Forward(model, table(model), "fp32", flat=True)
    expected = forward.activation_bytes(table(model).lengths[list(ids)])
    with counted_activations(model.parameters()) as saved:
        forward.embed(np.array(ids))
    assert sum(saved) == pytest.approx(expected, rel=0.15, abs=4096)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_attention_with_nested_tensors_gives_the_same_result(model, monkeypatch) -> None:
    """Simulate a GPU except for the kernel: the graph holds nested tensors, whose bytes are counted too."""
    calls = []

    def nested(query, key, value, bounds, dropout, scale):
        calls.append(dropout)
        longest = int(bounds.diff().max())
        return unpadded.by_nesting(query, key, value, bounds, longest, dropout, scale)

    monkeypatch.setattr(unpadded, "by_text", nested)
    assert_same(model)
    model.train()
    assert Forward(model, table(model), "fp32", flat=True).activation_bytes(np.array([30, 9])) > 10_000
    assert set(calls) == {0.0, 0.1}


class TestKernels:
    BOUNDS = torch.tensor([0, 3, 8, 9], dtype=torch.int32)

    def three(self, device: str = "cpu", dtype=torch.float32) -> list[torch.Tensor]:
        torch.manual_seed(0)
        return [torch.randn(9, 2, 8, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    def test_attention_with_nested_tensors_equals_attention_by_text(self) -> None:
        results = []
        for attend in (unpadded.by_text, lambda q, k, v, b, p, s: unpadded.by_nesting(q, k, v, b, 5, p, s)):
            three = self.three()
            mixed = attend(*three, self.BOUNDS, 0.0, 0.3)
            mixed.square().sum().backward()
            results.append([mixed, *(part.grad for part in three)])
        assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(*results, strict=True))

    @pytest.mark.skipif(unpadded.varlen_attn is None, reason="torch has no varlen_attn")
    @pytest.mark.parametrize("dropout", [0.0, 0.1], ids=["varlen", "nested"])
    def test_the_fused_kernels_accept_the_arguments(self, dropout) -> None:
        """The device `meta` computes shapes only; nested tensors then use FlashAttention."""
        three = [part.detach()[None].transpose(1, 2).requires_grad_() for part in self.three("meta", torch.bfloat16)]
        options = {"cu_seq_lens_q": self.BOUNDS.to("meta"), "max_length_q": 5}
        with FlopCounterMode(display=False):
            mixed, _ = unpadded.attend(SimpleNamespace(is_causal=False), *three, None, dropout, 0.3, **options)
        assert mixed.shape == (1, 9, 2, 8)
        mixed.sum().backward()
        assert all(part.grad.shape == part.shape for part in three)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_gpu_does_not_pad(model, precision) -> None:
    model.to("cuda")
    for layer in model.transformers_model.encoder.layer:
        layer.attention.self.dropout.p = 0.3
    tokens = table(model)
    forward = make_forward(model, tokens, precision, without_padding=True)
    assert forward.padding_reason() == ""
    assert forward.flat
    for training in (False, True):
        model.train(training)
        vectors = forward.embed(np.arange(10))
        vectors.sum().backward()
        assert torch.isfinite(vectors).all()
        assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)
    model.eval()
    padded = Forward(model, tokens, "fp32").embed(np.arange(10))
    torch.testing.assert_close(forward.embed(np.arange(10)), padded, rtol=0, atol=0.02)
