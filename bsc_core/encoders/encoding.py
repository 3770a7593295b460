"""Encoding of tokenized texts, without gradients."""

# U texts in the table, n of them encoded, D dimensions

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from bsc_core.encoders.tokens import TextIds, TokenTable, token_budget
from bsc_core.errors import ModelError
from bsc_core.files import error_reason
from bsc_core.types import Progress, Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block, then restore the mode of each module."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def encode(
    model: SentenceTransformer,
    tokens: TokenTable,
    ids: TextIds | Sequence[int] | None = None,
    *,
    micro_tokens: int | None = None,
    progress: Progress | None = None,
) -> Vectors:
    """Encode texts of the table, without gradients and with dropout off.

    Args:
        model: The encoder.
        tokens: The tokenized texts.
        ids: Text ids, (n,); all U texts by default.
        micro_tokens: Padded tokens in one forward pass; by default a number that suits the device.
        progress: Called with the number of encoded texts and n.

    Returns:
        (n, D), row i for ids[i]. Rows have length 1 only if the model ends in a normalizing module.

    Raises:
        ModelError: The model does not fit the texts, such as one with fewer positions than a text has tokens.
    """
    rows = np.arange(len(tokens)) if ids is None else np.asarray(ids, dtype=np.int64)
    dimensions = model.get_embedding_dimension()
    if dimensions is None:
        raise TypeError("the dimension of the model's sentence vectors is unknown; add a pooling module")
    vectors = np.empty((len(rows), dimensions), dtype=np.float32)
    done = 0
    with eval_mode(model), torch.inference_mode():
        for positions in tokens.micro_batches(rows, token_budget(model.device, micro_tokens)):
            features = {name: tensor.to(model.device) for name, tensor in tokens.features(rows[positions]).items()}
            try:
                output = model(features)["sentence_embedding"]
            except (ValueError, IndexError, RuntimeError) as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                raise ModelError(f"the encoder fails on a text ({error_reason(error)}); choose another one") from error
            vectors[positions] = output.float().cpu().numpy()
            done += len(positions)
            if progress is not None:
                progress(done, len(rows))
    return vectors
