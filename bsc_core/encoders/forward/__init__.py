"""Forward passes for training: vectors of a micro-batch of texts, with gradients."""

import sys

from sentence_transformers import SentenceTransformer

from bsc_core.encoders.forward.packed import PackedForward, is_packable
from bsc_core.encoders.forward.plain import Forward, Precision, autocast
from bsc_core.encoders.tokens import TokenTable

__all__ = ["Forward", "Precision", "autocast", "make_forward"]


def make_forward(
    model: SentenceTransformer,
    tokens: TokenTable,
    precision: Precision,
    *,
    fixed_tokens: bool = True,
    without_padding: bool = False,
) -> Forward:
    """Return the fastest forward pass for the model's architecture; all give the same vectors and gradients.

    Args:
        model: The encoder.
        tokens: The texts that ids refer to.
        precision: Number format to compute in.
        fixed_tokens: The token table stays the same, so tokens that are in no text need not be trained.
        without_padding: On a GPU, concatenate the texts of a micro-batch instead of padding them, where the
            model allows it (`encoder.unpadded`). Not yet verified on a GPU.
    """
    no_empty = bool((tokens.lengths > 0).all())  # without special tokens, a text may have no tokens
    if precision != "fp16" and no_empty and is_packable(model):
        return PackedForward(model, tokens, precision, fixed_tokens=fixed_tokens)
    forward = Forward(model, tokens, precision)
    if without_padding and forward.device.type == "cuda":
        reason = forward.padding_reason()
        forward.flat = not reason
        if reason:
            print(f"Texts are padded: {reason}", file=sys.stderr, flush=True)  # noqa: T201  (the run's log)
    return forward
