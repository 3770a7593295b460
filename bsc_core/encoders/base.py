"""What every encoder can do: turn tokenised texts into vectors, and say which weights it holds."""

# U texts in the table, n of them asked for, D dimensions

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bsc_core.encoders.tokens import Ids, TokenTable, token_budget

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Progress = Callable[[int, int], object]
"""Called with (texts done, texts in all)."""


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Dropout off inside the block; every module's own mode is restored after it, whatever happens."""
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
    ids: Ids | Sequence[int] | None = None,
    *,
    micro_tokens: int | None = None,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Encode texts of the table, without gradients and with dropout off.

    ids: (n,) text ids, None for all U. micro_tokens: padded tokens of one forward pass, None for what suits the device.
    Returns (n, D) float32, row i for ids[i], as the model makes them: of length 1 only where the model ends in a
    normalising module.
    """
    rows = np.arange(len(tokens)) if ids is None else np.asarray(ids, dtype=np.int64)
    vectors = np.empty((len(rows), _dimensions(model)), dtype=np.float32)
    done = 0
    with eval_mode(model), torch.inference_mode():
        for positions in tokens.micro_batches(rows, token_budget(model.device, micro_tokens)):
            features = {name: tensor.to(model.device) for name, tensor in tokens.features(rows[positions]).items()}
            vectors[positions] = model(features)["sentence_embedding"].float().cpu().numpy()
            done += len(positions)
            if progress is not None:
                progress(done, len(rows))
    return vectors


def _dimensions(model: SentenceTransformer) -> int:
    dimensions = model.get_embedding_dimension()
    if dimensions is None:
        raise TypeError("the model does not say how many dimensions its sentence vectors have")
    return int(dimensions)


def model_digest(model: SentenceTransformer) -> str:
    """SHA-256 (hex) of everything that decides the model's vectors: modules, weights, tokeniser and longest text."""
    digest = hashlib.sha256()
    for module in model.children():
        digest.update(f"{type(module).__name__} {_settings(module)}\n".encode())
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    digest.update(_tokeniser_text(model).encode())
    digest.update(str(model.max_seq_length).encode())
    return digest.hexdigest()


def _settings(module: nn.Module) -> str:
    describe = getattr(module, "get_config_dict", dict)
    return json.dumps(describe(), sort_keys=True, default=str)


def _tokeniser_text(model: SentenceTransformer) -> str:
    tokenizer = getattr(model.tokenizer, "backend_tokenizer", model.tokenizer)
    if not hasattr(tokenizer, "to_str"):
        return json.dumps(tokenizer.get_vocab(), sort_keys=True)
    settings = json.loads(tokenizer.to_str())
    for changing in ("truncation", "padding"):  # set anew by each call, so no part of what the tokeniser is
        settings.pop(changing, None)
    return json.dumps(settings, sort_keys=True)
