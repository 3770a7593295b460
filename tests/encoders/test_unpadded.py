"""Texts one after the other: the vectors and gradients of padded texts, and when there is a reason to pad."""

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

from bsc_core.config import EncoderConfig, TrainingConfig
from bsc_core.encoders import TokenTable, load_encoder, tokenise, unpadded
from bsc_core.encoders.forward import PlainForward, counted_activations, make_forward
from bsc_core.training.cache import CachedEncoder
from bsc_core.training.memory import Room

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
def bert(tiny_encoder) -> SentenceTransformer:
    return load_encoder(EncoderConfig(name=str(tiny_encoder), max_length=64))


@pytest.fixture
def made(tiny_encoder, tmp_path):
    """Makes a tiny encoder of another architecture, with the tiny BERT's tokeniser."""

    def make(config) -> SentenceTransformer:
        tokenizer = AutoTokenizer.from_pretrained(tiny_encoder)
        config.vocab_size = len(tokenizer)
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return SentenceTransformer(modules=[Transformer(str(tmp_path), max_seq_length=64), Pooling(32)], device="cpu")

    return make


def table(model: SentenceTransformer) -> TokenTable:
    return tokenise(model, [" ".join(WORDS[number % 10] for number in range(count)) for count in COUNTS], 64)


def found(model: SentenceTransformer, ids, *, flat: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Vectors of the texts, and every weight's gradient of a weighted sum of theirs."""
    model.zero_grad()
    vectors = PlainForward(model, table(model), "fp32", flat=flat).embed(np.array(ids))
    (vectors * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(3))).sum().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return vectors.detach(), gradients


def assert_same(model: SentenceTransformer, ids=(7, 0, 9, 3, 3, 1, 8)) -> None:
    (padded, expected), (flat, gradients) = (found(model, ids, flat=flat) for flat in (False, True))
    assert torch.allclose(flat, padded, atol=1e-5, rtol=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, atol=1e-5, rtol=1e-5), name


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken", "weightedmean"])
@pytest.mark.parametrize("ids", [[5], [3, 0], [4] * 5, range(10)], ids=["one", "short", "equal", "all"])
def test_vectors_and_gradients_are_those_of_padded_texts(bert, pooling, ids) -> None:
    bert[1].pooling_mode = pooling
    assert_same(bert, ids)


def test_modules_after_the_pooling_see_its_vectors(bert) -> None:
    assert_same(SentenceTransformer(modules=[bert[0], bert[1], Dense(32, 8), Normalize()], device="cpu"))


@pytest.mark.parametrize(
    "config",
    [RobertaConfig(**SMALL), DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64, pad_token_id=0)],
    ids=["roberta", "distilbert"],
)
def test_other_architectures_without_padding_are_the_same(made, config) -> None:
    model = made(config)
    assert unpadded.first_position(model) == (1 if isinstance(config, RobertaConfig) else 0)
    assert not unpadded.unfit(model, table(model), half=True)
    assert_same(model.eval())
    assert not tried(model)


def tried(model: SentenceTransformer, tolerance: float = 1e-4) -> str:
    forward = PlainForward(model, table(model), "fp32")
    with pytest.MonkeyPatch.context() as patch:  # nested tensors warn on a processor, where nothing uses them
        patch.setattr(
            unpadded, "by_nesting", lambda q, k, v, bounds, longest, p, s: unpadded.by_text(q, k, v, bounds, p, s)
        )
        return unpadded.disagreement(
            model, table(model), lambda flat, ids: forward._vectors(table(model), ids, flat), tolerance
        )


def test_a_wrong_first_position_is_found_out(made, monkeypatch) -> None:
    monkeypatch.setattr(unpadded, "first_position", lambda model: 0)
    assert tried(made(RobertaConfig(**SMALL))) == "without padding its vectors differ"


def test_attention_across_texts_is_found_out(bert, monkeypatch) -> None:
    whole = unpadded.by_text
    monkeypatch.setattr(unpadded, "by_text", lambda q, k, v, bounds, p, s: whole(q, k, v, bounds[[0, -1]], p, s))
    assert tried(bert) == "without padding its vectors differ"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            ModernBertConfig(**SMALL, sep_token_id=3, cls_token_id=2, bos_token_id=2, eos_token_id=3),
            "its attention asks for sliding_window",
        ),
        (RobertaConfig(**SMALL, is_decoder=True), "its attention asks for causal attention"),
    ],
    ids=["sliding", "causal"],
)
def test_an_attention_that_asks_for_more_is_padded(made, config, reason) -> None:
    assert tried(made(config)) == reason


def test_trying_leaves_the_model_as_it_is(bert) -> None:
    bert.train()
    torch.manual_seed(2)
    expected, before = torch.rand(3), bert.transformers_model.config._attn_implementation
    torch.manual_seed(2)
    assert not tried(bert)
    assert torch.equal(torch.rand(3), expected)
    assert all(module.training for module in bert.modules())
    assert all(weight.grad is None for weight in bert.parameters())
    assert bert.transformers_model.config._attn_implementation == before != unpadded.ATTENTION


def test_a_pass_that_fails_leaves_the_attention_as_it_was(bert) -> None:
    before = bert.transformers_model.config._attn_implementation
    with pytest.raises(ZeroDivisionError), unpadded.attention_within_texts(bert):
        raise ZeroDivisionError
    assert bert.transformers_model.config._attn_implementation == before


class TestReasons:
    def test_a_processor_pads(self, bert) -> None:
        assert PlainForward(bert, table(bert), "bf16").why_padded().startswith("only a GPU has fused kernels")

    def test_float32_pads(self, bert) -> None:
        assert "half precision" in unpadded.unfit(bert, table(bert), half=False)

    def test_an_empty_text_pads(self, bert) -> None:
        tokens = TokenTable(np.array([2, 3], dtype=np.int32), np.array([0, 2, 2]))
        assert unpadded.unfit(bert, tokens, half=True) == "a text has no tokens"

    def test_a_module_that_reads_tokens_pads(self, bert) -> None:
        strange = SentenceTransformer(modules=[bert[0], nn.Identity(), bert[1]], device="cpu")
        assert "a module after the transformer" in unpadded.unfit(strange, table(bert), half=True)

    def test_a_static_encoder_pads(self, tiny_static) -> None:
        assert unpadded.unfit(tiny_static, table(tiny_static), half=True) == "the encoder is no transformer alone"

    def test_layers_computed_anew_pad(self, bert) -> None:
        bert.transformers_model.encoder.gradient_checkpointing = True
        assert "anew in backward" in unpadded.unfit(bert, table(bert), half=True)

    def test_an_attention_of_its_own_pads(self, made) -> None:
        model = made(MPNetConfig(**SMALL))
        assert "an attention of its own" in unpadded.unfit(model, table(model), half=True) or tried(model)


def test_dropout_is_drawn_alike_when_a_pass_is_computed_again(bert) -> None:
    bert.train()
    gradients = []
    for mode in ("always", "never"):
        forward = PlainForward(bert, table(bert), "fp32", flat=True)
        config = TrainingConfig(gradient_cache=mode).model_copy(update={"micro_tokens": 64})
        torch.manual_seed(5)
        encoding = CachedEncoder(forward, config, Room(2**30, 2**28)).encode(np.arange(10))
        assert len(encoding.pieces) > 1
        encoding.vectors.square().sum().backward()
        encoding.backward()
        gradients.append([weight.grad.clone() for weight in bert.parameters() if weight.grad is not None])
        bert.zero_grad()
    assert len(gradients[0]) > 30
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("reason", ["", "a text has no tokens"])
def test_a_gpu_is_asked_and_the_log_says_why_it_pads(bert, monkeypatch, capsys, reason) -> None:
    monkeypatch.setattr(PlainForward, "device", torch.device("cuda"))
    monkeypatch.setattr(PlainForward, "why_padded", lambda forward: reason)
    forward = make_forward(bert, table(bert), "fp16")
    assert forward.flat == (not reason)
    assert capsys.readouterr().err == (f"Texts are padded: {reason}\n" if reason else "")


def test_micro_batches_hold_real_tokens_up_to_the_budget(bert) -> None:
    tokens = table(bert)
    pieces = PlainForward(bert, tokens, "fp32", flat=True).micro_batches(np.arange(10), 80)
    assert sorted(np.concatenate(pieces).tolist()) == list(range(10))
    assert max(int(tokens.lengths[piece].sum()) for piece in pieces) <= 90
    assert len(pieces) < len(PlainForward(bert, tokens, "fp32").micro_batches(np.arange(10), 80))


@pytest.mark.parametrize("ids", [[5], [1, 2, 3], [9] * 7, range(10)], ids=["one", "short", "equal", "many"])
def test_the_bytes_that_backward_keeps_are_known_before(bert, ids) -> None:
    bert.eval()
    forward = PlainForward(bert, table(bert), "fp32", flat=True)
    expected = forward.activation_bytes(table(bert).lengths[list(ids)])
    with counted_activations(bert.parameters()) as count:
        forward.embed(np.array(ids))
    assert count.bytes == pytest.approx(expected, rel=0.15, abs=4096)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_model_that_attends_in_nested_tensors_is_the_same(bert, monkeypatch) -> None:
    """As on a GPU, but for the kernel: the graph then holds nested tensors, whose bytes are counted too."""
    calls = []

    def nested(query, key, value, bounds, dropout, scale):
        calls.append(dropout)
        longest = int(bounds.diff().max())
        return unpadded.by_nesting(query, key, value, bounds, longest, dropout, scale)

    monkeypatch.setattr(unpadded, "by_text", nested)
    assert_same(bert)
    bert.train()
    assert PlainForward(bert, table(bert), "fp32", flat=True).activation_bytes(np.array([30, 9])) > 10_000
    assert set(calls) == {0.0, 0.1}


class TestKernels:
    BOUNDS = torch.tensor([0, 3, 8, 9], dtype=torch.int32)

    def three(self, device: str = "cpu", dtype=torch.float32) -> list[torch.Tensor]:
        torch.manual_seed(0)
        return [torch.randn(9, 2, 8, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    def test_a_nested_tensor_attends_text_by_text(self) -> None:
        results = []
        for attend in (unpadded.by_text, lambda q, k, v, b, p, s: unpadded.by_nesting(q, k, v, b, 5, p, s)):
            three = self.three()
            mixed = attend(*three, self.BOUNDS, 0.0, 0.3)
            mixed.square().sum().backward()
            results.append([mixed, *(part.grad for part in three)])
        assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(*results, strict=True))

    @pytest.mark.skipif(unpadded.varlen_attn is None, reason="torch has no varlen_attn")
    @pytest.mark.parametrize("dropout", [0.0, 0.1], ids=["varlen", "nested"])
    def test_the_fused_kernels_are_called_as_they_want(self, dropout) -> None:
        """On the device `meta` only shapes are computed; while they are counted, nested tensors take FlashAttention."""
        three = [part.detach()[None].transpose(1, 2).requires_grad_() for part in self.three("meta", torch.bfloat16)]
        told = {"cu_seq_lens_q": self.BOUNDS.to("meta"), "max_length_q": 5}
        with FlopCounterMode(display=False):
            mixed, _ = unpadded.attend(SimpleNamespace(is_causal=False), *three, None, dropout, 0.3, **told)
        assert mixed.shape == (1, 9, 2, 8)
        mixed.sum().backward()
        assert all(part.grad.shape == part.shape for part in three)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_gpu_does_not_pad(bert, precision) -> None:
    bert.to("cuda")
    for layer in bert.transformers_model.encoder.layer:
        layer.attention.self.dropout.p = 0.3
    tokens = table(bert)
    forward = make_forward(bert, tokens, precision)
    assert isinstance(forward, PlainForward)
    assert forward.why_padded() == ""
    assert forward.flat
    for training in (False, True):
        bert.train(training)
        vectors = forward.embed(np.arange(10))
        vectors.sum().backward()
        assert torch.isfinite(vectors).all()
        assert all(torch.isfinite(weight.grad).all() for weight in bert.parameters() if weight.grad is not None)
    bert.eval()
    padded = PlainForward(bert, tokens, "fp32").embed(np.arange(10))
    torch.testing.assert_close(forward.embed(np.arange(10)), padded, rtol=0, atol=0.02)
