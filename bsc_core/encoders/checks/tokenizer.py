"""Check of tokenizer.json: steps and vocabularies that make a text or its analysis very long are refused.

The library `tokenizers` ends the process if it runs out of memory.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

MAX_STEPS = 50
MAX_GROWTH = 4  # times that all replacements can make a text longer
MAX_PREFIX = 16  # characters that all steps put before a text, a word or the part between two added tokens
MAX_MARK = 4  # characters that mark the parts of a word, as in ##ing
MAX_PIECE = 64  # characters of a piece of a unigram model, which compares all pieces at each position
MAX_VOCABULARY = 2_500_000  # characters of all pieces, each of which needs 300 bytes
MAX_TOKEN, MAX_ADDED = 1_000, 1_000_000  # characters of an added token, and of all of them
MAX_ADDED_TOKENS = 30_000
MAX_WORD = 100  # characters of a word that is divided into pieces, in time that grows with its square or more
MAX_MAPPED = 64  # bytes that stand for one character
MAX_IDS = 8  # ids of a special token
MAX_REPEATED = {"ByteLevel": 2, "Metaspace": 2, "Precompiled": 1, "BertNormalizer": 1}  # steps that lengthen a text
MAX_REPEATED |= dict.fromkeys(("TemplateProcessing", "BertProcessing", "RobertaProcessing"), 1)  # as these do
REGULAR_EXPRESSIONS = frozenset(  # others can need seconds for a text of a hundred characters
    [
        " {2,}",  # T5, XLM-RoBERTa
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
        *(
            rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
            for number in (r"\p{N}", r"\p{N}{1,3}")  # Qwen, Llama 3
        ),
    ]
)
TYPES = frozenset(  # of steps; the library reads another one, or none, by the names of its settings
    [
        *("Sequence", "BertNormalizer", "Strip", "StripNormalizer", "StripAccents", "NFC", "NFD", "NFKC", "NFKD"),
        *("Lowercase", "Nmt", "Precompiled", "Replace", "Prepend", "ByteLevel", "BertPreTokenizer"),
        *("CharDelimiterSplit", "Metaspace", "Whitespace", "Split", "Punctuation", "WhitespaceSplit", "Digits"),
        *("UnicodeScripts", "FixedLength", "BertProcessing", "RobertaProcessing", "TemplateProcessing"),
        *("BPEDecoder", "WordPiece", "CTC", "Fuse", "ByteFallback"),
    ]
)
MAX_PIECES = 8  # parts of a template of special tokens around a text, or a pair of texts


def tokenizer_problem(tokenizer: dict[str, Any]) -> str | None:
    """Return what in the content of a tokenizer.json can need much memory or time; None if nothing does."""
    steps = list(_steps(tokenizer))
    if len(steps) > MAX_STEPS:
        return f"{len(steps)} steps, more than {MAX_STEPS}"
    if any(str(step.get("type")) not in TYPES for step in steps):
        return "a step of an unknown type"
    if math.prod(map(_growth, steps)) > MAX_GROWTH:
        return "replacements that make texts much longer"
    kinds = Counter(str(step.get("type")) for step in steps)
    for kind, limit in MAX_REPEATED.items():
        if kinds[kind] > limit:
            return f"{kinds[kind]} steps {kind}"
    prefixes = [str(step.get(name) or "") for step in steps for name in ("prepend", "replacement", "prefix")]
    if sum(map(len, prefixes)) > MAX_PREFIX:
        return "a long prefix of texts"
    for step in steps:
        pattern = step.get("pattern")
        if isinstance(pattern, dict) and pattern.get("Regex", " {2,}") not in REGULAR_EXPRESSIONS:
            return "a regular expression that no supported architecture uses"
        if any(len(step.get(name) or ()) > MAX_PIECES for name in ("single", "pair")):
            return "a template that makes texts much longer"
        if _longest_mapped(step) > MAX_MAPPED:
            return "characters that are replaced by long texts"
        tokens = step.get("special_tokens")
        if isinstance(tokens, dict) and any(len(token.get("ids") or ()) > MAX_IDS for token in tokens.values()):
            return "special tokens with many ids"
    lengths = [len(str(token.get("content") or "")) for token in tokenizer.get("added_tokens") or ()]
    if max(lengths, default=0) > MAX_TOKEN or sum(lengths) > MAX_ADDED:
        return f"added tokens of more than {MAX_TOKEN} characters, or {MAX_ADDED:,} together"
    if len(lengths) > MAX_ADDED_TOKENS:
        return f"{len(lengths):,} added tokens, more than {MAX_ADDED_TOKENS:,}"
    model = tokenizer["model"]
    if model.get("dropout"):
        return "random tokens (dropout), so that a text has other vectors each time"
    vocabulary = model.get("vocab") or ()
    pieces = [len(piece[0]) for piece in vocabulary] if isinstance(vocabulary, list) else []
    if max(pieces, default=0) > MAX_PIECE or sum(pieces) > MAX_VOCABULARY:
        return f"pieces of more than {MAX_PIECE} characters, or {MAX_VOCABULARY:,} together"
    if any(len(str(model.get(name) or "")) > MAX_MARK for name in ("continuing_subword_prefix", "end_of_word_suffix")):
        return "a long prefix or suffix of the parts of words"
    word = model.get("max_input_chars_per_word", 100)
    return None if isinstance(word, int) and word <= MAX_WORD else f"words of more than {MAX_WORD} characters"


def _steps(tokenizer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the steps before and after the vocabulary, those of sequences one by one.

    A step that is no object is yielded without settings, since the library also reads the fields of a step from a list.
    """
    names = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    left = [tokenizer[name] for name in names if tokenizer.get(name) is not None]
    while left:
        step = left.pop()
        settings = step if isinstance(step, dict) else {}
        yield settings
        for name in ("normalizers", "pretokenizers", "processors", "decoders"):
            left += settings.get(name) or []


def _growth(step: dict[str, Any]) -> float:
    """Return how many times longer a replacement can make a text; a regular expression matches a character or more."""
    if step.get("type") != "Replace":
        return 1.0
    pattern = step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else None
    replaced = len(text) if isinstance(text, str) else 1
    return max(1.0, len(str(step.get("content"))) / replaced) if replaced else 2.0 * MAX_GROWTH  # an empty text


def _longest_mapped(step: dict[str, Any]) -> int:
    """Return the longest text in a map of characters: a trie, after its size in four bytes, and texts that end in 0."""
    encoded = step.get("precompiled_charsmap")
    if not encoded:
        return 0
    content = base64.b64decode(encoded)
    return max(map(len, content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")))
