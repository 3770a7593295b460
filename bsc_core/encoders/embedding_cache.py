"""Disk cache of the vectors of a text table.

Torch and the model are imported only to encode, so a page that shows cached vectors starts fast.
"""

# U distinct texts, D dimensions

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from bsc_core.config import EncoderConfig
from bsc_core.data.dataset import TextTable
from bsc_core.encoders.checks.folder import settings_files, weight_files
from bsc_core.encoders.pretrained import load_folder
from bsc_core.encoders.registry import encoder_folder, set_prompts
from bsc_core.files import atomic_write
from bsc_core.paths import cache_folder
from bsc_core.types import Progress, Vectors

if TYPE_CHECKING:
    from bsc_core.encoders.forward import Precision

MAX_ARRAYS = 64


def embed(encoder: EncoderConfig | Path | str, texts: TextTable, *, progress: Progress | None = None) -> Vectors:
    """Return the vectors of all texts, from the cache if they are there.

    The cache file is named by the digests of model folder and texts and by the maximum length, and is written
    atomically, so several processes may call this at once.

    Args:
        encoder: A config, or the name or folder of an encoder with the default maximum length.
        texts: The texts.
        progress: Called with the number of encoded texts and U.

    Returns:
        (U, D), row i for text i.

    Raises:
        ModelError, PathError, ConfigError: As `load_encoder`.
    """
    config = _config(encoder)

    def encode_texts(folder: Path) -> Vectors:
        from bsc_core.encoders.encoding import encode
        from bsc_core.encoders.tokens import tokenize

        model = load_folder(folder, config.max_seq_length)
        set_prompts(model, config)
        return encode(model, tokenize(model, texts, config.max_seq_length), progress=progress)

    return get_or_compute(config, texts, encode_texts)


def embed_initial(encoder: EncoderConfig, texts: TextTable, seed: int) -> Vectors:
    """Return the vectors of all texts by the encoder that a run with this seed starts from.

    Those of random layers are not cached.

    Returns:
        (U, D), row i for text i.

    Raises:
        ModelError, PathError, ConfigError: As `load_encoder`.
    """
    if not encoder.reinit_layers:
        return embed(encoder, texts)
    from bsc_core.encoders.encoding import encode
    from bsc_core.encoders.layers import load_initial_encoder
    from bsc_core.encoders.tokens import tokenize

    model = load_initial_encoder(encoder, seed)
    return encode(model, tokenize(model, texts, encoder.max_seq_length))


def get_or_compute(
    config: EncoderConfig,
    texts: TextTable,
    compute: Callable[[Path], Vectors],
    *,
    precision: Precision = "fp32",
) -> Vectors:
    """Return the cached vectors of all texts, (U, D), or compute and cache them.

    Args:
        config: The encoder.
        texts: The U texts.
        compute: Encodes the texts; called with the model's folder.
        precision: Precision of `compute`, which is part of the cache key.
    """
    folder = encoder_folder(config.name)
    path = _cache_path(folder, config, texts, precision)
    vectors = _read(path, len(texts))
    if vectors is None:
        vectors = compute(folder)
        _write(path, vectors)
    return vectors


def cached_vectors(config: EncoderConfig, texts: TextTable) -> Vectors | None:
    """Return the cached vectors that `embed` would return, memory-mapped and read-only; None if there are none."""
    return _read(_cache_path(encoder_folder(config.name), config, texts), len(texts), mmap_mode="r")


def store_vectors(encoder: EncoderConfig | Path | str, texts: TextTable, vectors: Vectors) -> None:
    """Cache vectors, shape (U, D), for `embed` to return for these texts."""
    config = _config(encoder)
    path = _cache_path(encoder_folder(config.name), config, texts)
    if not path.is_file():
        _write(path, vectors)


def _config(encoder: EncoderConfig | Path | str) -> EncoderConfig:
    return encoder if isinstance(encoder, EncoderConfig) else EncoderConfig.model_validate({"name": str(encoder)})


def _cache_path(folder: Path, config: EncoderConfig, texts: TextTable, precision: Precision = "fp32") -> Path:
    suffix = "" if precision == "fp32" else f" {precision}"
    suffix += f" {config.query_prompt!r} {config.document_prompt!r}" if config.has_prompts else ""
    key = f"{folder_digest(folder)} {texts.digest} {config.max_seq_length}{suffix}"
    return cache_folder() / "embeddings" / f"{hashlib.sha256(key.encode()).hexdigest()}.npy"


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 (hex) of a model folder's loaded weights, tokenizer and settings, without its model card.

    Raises:
        ModelError: The files are too many or too large, or a list of modules or weights is damaged.
    """
    digest = hashlib.sha256()
    folder = folder.resolve()
    for path in sorted([*settings_files(folder), *weight_files(folder)]):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _read(path: Path, rows: int, *, mmap_mode: Literal["r"] | None = None) -> Vectors | None:
    try:
        vectors: Vectors = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        os.utime(path)  # the least recently used files are removed first
    except (FileNotFoundError, ValueError, EOFError):  # missing or damaged
        return None
    is_valid = isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.ndim == 2
    return vectors if is_valid and len(vectors) == rows else None


def _write(path: Path, vectors: Vectors) -> None:
    atomic_write(path, lambda file: np.save(file, vectors))
    _remove_oldest(path.parent)


def _remove_oldest(folder: Path) -> None:
    ages = []
    for path in folder.glob("*.npy"):
        try:
            ages.append((path.stat().st_mtime, path))
        except FileNotFoundError:  # another process removed it
            continue
    for _, path in sorted(ages, reverse=True)[MAX_ARRAYS:]:
        path.unlink(missing_ok=True)
