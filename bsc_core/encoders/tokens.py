"""Texts tokenised once: flat token ids and offsets, padded only for the texts of one forward pass.

Training visits a text in many epochs and the tokeniser would cut it the same way each time; the lengths it leaves
behind also tell which texts to encode together.
"""

# n texts asked for, T real tokens among them, W tokens of the longest, U texts in the table

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TOKENISED_AT_ONCE = 4096
BAG_TOKENS = 65_536

Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class TokenTable:
    """Token ids of U texts, one after the other.

    tokens: (sum of lengths,) int32. offsets: (U + 1,) int64; text i is tokens[offsets[i]:offsets[i + 1]].
    padding: id that fills short rows. bag: True for models that take flat ids and offsets (StaticEmbedding).
    token_types: True where the model's tokeniser also names token types; a single text has type 0 throughout.
    """

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    padding: int = 0
    bag: bool = False
    token_types: bool = False

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text, special tokens included: (U,)."""
        return np.diff(self.offsets)

    def features(self, ids: Ids | Sequence[int]) -> dict[str, Tensor]:
        """What the model's forward takes for the texts `ids` (n,), in their order; repeats are allowed.

        Transformer: input_ids and attention_mask, (n, W) int64, W the longest of these texts, and token_type_ids where
        the tokeniser names them. StaticEmbedding: input_ids (T,) and offsets (n,) int64. Tensors are on the CPU.
        """
        rows = np.asarray(ids, dtype=np.int64)
        starts, lengths = self.offsets[rows], self.lengths[rows]
        ends = np.cumsum(lengths)
        firsts = ends - lengths
        flat = self.tokens[np.arange(int(lengths.sum())) + np.repeat(starts - firsts, lengths)].astype(np.int64)  # (T,)
        if self.bag:
            return {"input_ids": torch.from_numpy(flat), "offsets": torch.from_numpy(firsts)}
        mask = np.arange(int(lengths.max(initial=0))) < lengths[:, None]  # (n, W)
        padded = np.full(mask.shape, self.padding, dtype=np.int64)
        padded[mask] = flat
        features = {
            "input_ids": torch.from_numpy(padded),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
        }
        if self.token_types:
            features["token_type_ids"] = torch.zeros(mask.shape, dtype=torch.int64)
        return features

    def micro_batches(self, ids: Ids | Sequence[int], budget: int) -> list[NDArray[np.int64]]:
        """Positions in `ids` cut into micro-batches of texts of like length; see `micro_batches`.

        A StaticEmbedding gets no fewer than BAG_TOKENS at once: it has no padding to save, and in training each further
        pass would add a gradient as large as its whole table.
        """
        budget = max(budget, BAG_TOKENS) if self.bag else budget
        return micro_batches(self.lengths[np.asarray(ids, dtype=np.int64)], budget)


def micro_batches(lengths: Ids, budget: int) -> list[NDArray[np.int64]]:
    """Cut n texts into micro-batches of at most `budget` padded tokens, longest texts first.

    lengths: (n,) tokens of each text. Returns arrays of positions that together hold 0 ... n - 1 once each. A text that
    is longer than the budget stands alone.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    pieces = []
    start = 0
    while start < len(order):
        rows = max(1, budget // max(1, int(lengths[order[start]])))
        pieces.append(order[start : start + rows])
        start += rows
    return pieces


def token_budget(device: torch.device, wanted: int | None = None) -> int:
    """Padded tokens of one forward pass: what is wanted, else what suits the device; 512 stay in a CPU's cache."""
    return wanted or (512 if device.type == "cpu" else 16_384)


def tokenise(model: SentenceTransformer, texts: Sequence[str], max_length: int) -> TokenTable:
    """Tokenise each text once, as the model itself would, keeping at most `max_length` tokens.

    Works for transformer models and for StaticEmbedding models. A model's default prompt, where it has one, is put
    before each text, as its own `encode` does. A text without any token (say, one control character) gets length 0
    from a StaticEmbedding and so a zero vector.
    """
    prompt = (model.prompts or {}).get(model.default_prompt_name or "") or ""
    bag = isinstance(getattr(model[0], "embedding", None), nn.EmbeddingBag)
    cut = _bag_tokens if bag else _transformer_tokens
    pieces: list[list[int]] = []
    for start in range(0, len(texts), TOKENISED_AT_ONCE):
        block = [prompt + text for text in texts[start : start + TOKENISED_AT_ONCE]]
        pieces.extend(cut(model.tokenizer, block, max_length))
    offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    tokens = np.fromiter((token for piece in pieces for token in piece), dtype=np.int32, count=int(offsets[-1]))
    if bag:
        return TokenTable(tokens, offsets, bag=True)
    return TokenTable(
        tokens,
        offsets,
        padding=int(model.tokenizer.pad_token_id or 0),
        token_types="token_type_ids" in model.tokenizer.model_input_names,
    )


def _transformer_tokens(tokenizer: Any, texts: list[str], max_length: int) -> list[list[int]]:
    encoded = tokenizer(texts, truncation=True, max_length=max_length, padding=False, return_attention_mask=False)
    pieces: list[list[int]] = encoded["input_ids"]
    return pieces


def _bag_tokens(tokenizer: Any, texts: list[str], max_length: int) -> list[list[int]]:
    return [encoding.ids[:max_length] for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
