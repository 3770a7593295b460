"""Vectors of a text table, kept on disk: the same encoder never reads the same texts twice.

Torch and the model are loaded only where vectors are missing, so a page that shows known vectors starts at once.
"""

# U distinct texts, D dimensions

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import EncoderConfig
from bsc_core.data.places import cache_folder
from bsc_core.data.texts import TextTable
from bsc_core.encoders.choose import encoder_folder
from bsc_core.encoders.pretrained import load_folder

if TYPE_CHECKING:
    from bsc_core.encoders.base import Progress
    from bsc_core.encoders.forward import Precision

ARRAYS_KEPT = 64
MODEL_FILES = (".safetensors", ".json", ".txt", ".model")


def embed(
    encoder: EncoderConfig | Path | str, texts: TextTable, *, progress: Progress | None = None
) -> NDArray[np.float32]:
    """Vectors of every text: (U, D) float32, row i for text i, from disk where they are known.

    encoder: a config, or an encoder's name or folder with the default length. The file is named by the digests of model
    folder and texts and by the length, and appears whole, so processes may ask at the same time. Raises ModelError,
    PathError or ConfigError as `load_encoder` does.
    """
    config = _config(encoder)

    def read_texts(folder: Path) -> NDArray[np.float32]:
        from bsc_core.encoders.base import encode
        from bsc_core.encoders.tokens import tokenise

        model = load_folder(folder, config.max_length)
        return encode(model, tokenise(model, texts.texts, config.max_length), progress=progress)

    return kept_or_made(config, texts, read_texts)


def kept_or_made(
    config: EncoderConfig,
    texts: TextTable,
    make: Callable[[Path], NDArray[np.float32]],
    *,
    precision: Precision = "fp32",
) -> NDArray[np.float32]:
    """Vectors of every text: (U, D), from disk where they are known; else what `make` returns, which is then kept.

    make: called with the model's folder, to encode the texts in `precision`; `embed` encodes them in float32.
    """
    folder = encoder_folder(config.name)
    path = _place(folder, config, texts, precision)
    vectors = _read(path, len(texts))
    if vectors is None:
        vectors = make(folder)
        _write(path, vectors)
    return vectors


def known_vectors(config: EncoderConfig, texts: TextTable) -> NDArray[np.float32] | None:
    """What `embed` would return where it is on disk, mapped and read-only; None where the texts are to be encoded."""
    return _read(_place(encoder_folder(config.name), config, texts), len(texts), mmap_mode="r")


def keep_vectors(encoder: EncoderConfig | Path | str, texts: TextTable, vectors: NDArray[np.float32]) -> None:
    """Keep what `embed` is to return for these texts. vectors: (U, D), row i for text i."""
    config = _config(encoder)
    path = _place(encoder_folder(config.name), config, texts)
    if not path.is_file():
        _write(path, vectors)


def _config(encoder: EncoderConfig | Path | str) -> EncoderConfig:
    return encoder if isinstance(encoder, EncoderConfig) else EncoderConfig.model_validate({"name": str(encoder)})


def _place(folder: Path, config: EncoderConfig, texts: TextTable, precision: Precision = "fp32") -> Path:
    key = f"{folder_digest(folder)} {texts.digest} {config.max_length}{'' if precision == 'fp32' else f' {precision}'}"
    return cache_folder() / "embeddings" / f"{hashlib.sha256(key.encode()).hexdigest()}.npy"


def folder_digest(folder: Path) -> str:
    """SHA-256 (hex) of a model folder's weights, tokeniser and settings; its card does not count."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in MODEL_FILES and path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _read(path: Path, rows: int, *, mmap_mode: Literal["r"] | None = None) -> NDArray[np.float32] | None:
    try:
        vectors: NDArray[np.float32] = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        os.utime(path)  # the least recently used go first
    except (FileNotFoundError, ValueError, EOFError):  # absent, or damaged and to be made anew
        return None
    sound = isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.ndim == 2
    return vectors if sound and len(vectors) == rows else None


def _write(path: Path, vectors: NDArray[np.float32]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, vectors)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _forget_oldest(path.parent)


def _forget_oldest(folder: Path) -> None:
    ages = []
    for path in folder.glob("*.npy"):
        try:
            ages.append((path.stat().st_mtime, path))
        except FileNotFoundError:  # another process was first
            continue
    for _, path in sorted(ages, reverse=True)[ARRAYS_KEPT:]:
        path.unlink(missing_ok=True)
