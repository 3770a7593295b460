"""Tokenized texts: flat token ids and offsets, padded only for the texts of one forward pass.

Each text is tokenized once, although training encodes it in many epochs. The lengths also determine which texts are
encoded together.
"""

# n texts of one call, T real tokens among them, W tokens of the longest, U texts in the table

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bsc_core.data.dataset import TextTable
from bsc_core.encoders.pretrained import tokenizer_errors
from bsc_core.types import Indices

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TOKENIZER_BATCH = 4096
TOKENIZER_CHARACTERS = 1 << 20  # of the texts that are tokenized at once; a character needs up to 400 bytes
CHARACTERS_PER_TOKEN = 512
"""A text is cut after this many characters per token that the model reads, so that a long one takes little time."""
NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
NORMALIZED_GROWTH = 18  # times that the normal form NFKC of a character is longer, at most (U+FDFA)
BAG_TOKENS = 65_536

TextIds = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class TokenTable:
    """Concatenated token ids of U texts."""

    tokens: NDArray[np.int32]  # shape (sum of lengths,)
    offsets: Indices  # shape (U + 1,); text i is tokens[offsets[i]:offsets[i + 1]]
    padding: int = 0  # token id of padding
    bag: bool = False  # whether the model takes flat ids and offsets (StaticEmbedding)
    token_types: bool = False  # whether the model takes token types; all are 0, since each input is a single text

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Indices:
        """Number of tokens of each text, including special tokens: (U,)."""
        return np.diff(self.offsets)

    def concatenate(self, ids: Indices) -> tuple[Indices, Indices, Indices]:
        """Return the tokens of these texts one after another, (T,), their positions in the texts, and n + 1 bounds."""
        lengths = self.lengths[ids]
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)  # (T,)
        tokens = self.tokens[np.repeat(self.offsets[ids], lengths) + positions].astype(np.int64)
        return tokens, positions, bounds

    def features(self, ids: TextIds | Sequence[int]) -> dict[str, Tensor]:
        """Return the input of the model's forward pass for these texts, (n,); repeats are allowed.

        Returns:
            Int64 tensors on the CPU. For a transformer: input_ids and attention_mask of shape (n, W), and
            token_type_ids if it takes them. For a StaticEmbedding: input_ids (T,) and offsets (n,).
        """
        rows = np.asarray(ids, dtype=np.int64)
        flat, _, bounds = self.concatenate(rows)
        if self.bag:
            return {"input_ids": torch.from_numpy(flat), "offsets": torch.from_numpy(bounds[:-1])}
        lengths = self.lengths[rows]
        mask = np.arange(int(lengths.max(initial=0))) < lengths[:, None]  # (n, W)
        padded = np.full(mask.shape, self.padding, dtype=np.int64)
        padded[mask] = flat
        features = {"input_ids": torch.from_numpy(padded), "attention_mask": torch.from_numpy(mask.astype(np.int64))}
        if self.token_types:
            features["token_type_ids"] = torch.zeros(mask.shape, dtype=torch.int64)
        return features

    def micro_batches(self, ids: TextIds | Sequence[int], budget: int) -> list[Indices]:
        """Split positions in `ids` into micro-batches of texts of similar length; see `micro_batches`.

        A StaticEmbedding gets at least BAG_TOKENS tokens at once: it has no padding, and in training each forward pass
        adds a gradient of the size of its table.
        """
        budget = max(budget, BAG_TOKENS) if self.bag else budget
        return micro_batches(self.lengths[np.asarray(ids, dtype=np.int64)], budget)


def micro_batches(lengths: TextIds, budget: int) -> list[Indices]:
    """Split n texts with these lengths into micro-batches of at most `budget` padded tokens, longest texts first.

    A text longer than that gets a separate micro-batch. Returns arrays of positions, a partition of 0 ... n - 1.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    batches, start = [], 0
    while start < len(order):
        rows = max(1, budget // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def token_budget(device: torch.device, requested: int | None = None) -> int:
    """Return the padded tokens per forward pass: those requested, else a default; 512 fit into a CPU's cache."""
    return requested or (512 if device.type == "cpu" else 16_384)


def tokenize(
    model: SentenceTransformer,
    texts: TextTable | Sequence[str],
    max_seq_length: int,
    *,
    side: Literal["query", "document"] | None = None,
) -> TokenTable:
    """Tokenize texts as the model's `encode` does, truncated to `max_seq_length` tokens.

    Of a text with more than 512 characters per token that the model reads, only the beginning is tokenized.

    Works for transformers and StaticEmbedding models. The model's default prompt is put before each text, or its prompt
    of a side, as `encode_query` and `encode_document` do. A text without tokens (such as one control character) has
    length 0 in a StaticEmbedding and gets a zero vector.

    Args:
        model: The encoder.
        texts: The U texts. Those of a table with separate sides get the prompts of these.
        max_seq_length: Tokens after which a text is truncated, including those of the prompt.
        side: Side of all texts; None for a table, or if they have no side.
    """
    prompts = model.prompts or {}
    default = prompts.get(model.default_prompt_name or "") or ""
    queries = texts.queries if isinstance(texts, TextTable) else None
    texts = texts.texts if isinstance(texts, TextTable) else texts
    if queries is not None:
        counts = {"query": queries, "document": len(texts) - queries}
        prompt_of = [prompts.get(name, default) or "" for name, count in counts.items() for _ in range(count)]
    else:
        prompt_of = [default if side is None else prompts.get(side, default) or ""] * len(texts)
    bag = isinstance(getattr(model[0], "embedding", None), nn.EmbeddingBag)
    tokenize_block = _bag_tokens if bag else _transformer_tokens
    pieces: list[list[int]] = []
    longest = CHARACTERS_PER_TOKEN * max_seq_length
    cut = (_cut(prompt + text, longest) for prompt, text in zip(prompt_of, texts, strict=True))
    for block in _blocks(cut):
        with tokenizer_errors():
            pieces.extend(tokenize_block(model.tokenizer, block, max_seq_length))
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


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield blocks of texts to tokenize at once."""
    block: list[str] = []
    characters = 0
    for text in texts:
        count = _normalized_length(text)
        if block and (len(block) == TOKENIZER_BATCH or characters + count > TOKENIZER_CHARACTERS):
            yield block
            block, characters = [], 0
        block.append(text)
        characters += count
    if block:
        yield block


def _cut(text: str, longest: int) -> str:
    """Cut a text after this many characters, also of its normal form, which the tokenizer of some models reads."""
    text = text[:longest]
    fits = len(text) <= longest // NORMALIZED_GROWTH or _normalized_length(text) <= longest
    return text if fits else text[: longest // NORMALIZED_GROWTH]


def _normalized_length(text: str) -> int:
    """Return an upper bound of the number of characters of a text and of its normal form NFKC."""
    return len(text) + sum(map(_growth, chain.from_iterable(NOT_ASCII.findall(text))))


@lru_cache(maxsize=1 << 17)
def _growth(character: str) -> int:
    """Return how many characters the normal form NFKC of a character has more than one."""
    return max(0, len(unicodedata.normalize("NFKC", character)) - 1)


def _transformer_tokens(tokenizer: Any, texts: list[str], max_seq_length: int) -> list[list[int]]:
    encoded = tokenizer(texts, truncation=True, max_length=max_seq_length, padding=False, return_attention_mask=False)
    # a tokenizer with more special tokens than tokens that are read does not truncate
    return [ids[:max_seq_length] for ids in encoded["input_ids"]]


def _bag_tokens(tokenizer: Any, texts: list[str], max_seq_length: int) -> list[list[int]]:
    return [encoding.ids[:max_seq_length] for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
