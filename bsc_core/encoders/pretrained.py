"""Encoders as sentence-transformers folders: fetched, checked, loaded and saved. Only here is that library imported.

Every encoder becomes a folder first, a hub id too, so one check covers them all: weights are safetensors, modules are
the library's own, no code from a model's folder ever runs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsc_core.errors import ConfigError, ModelError
from bsc_core.files import sync

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "README.md"]
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def fetch(hub_id: str) -> Path:
    """Folder of a hub model in the local hub cache, downloaded first where it may be. Raises ModelError."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no details'}"
        raise ModelError(
            f"{hub_id}: no such folder, and the hub did not give such a model ({reason}); "
            "give the path of a sentence-transformers folder, bundled or static"
        ) from error


def load_folder(folder: Path, max_length: int) -> SentenceTransformer:
    """Load a sentence-transformers folder on the best device there is, in evaluation mode.

    max_length: tokens kept of a text. Raises ModelError where the folder is no such model or is not safe to load, and
    ConfigError where the model cannot read texts of that length.
    """
    from sentence_transformers import SentenceTransformer

    check_folder(folder)
    try:
        with _no_progress_bars():
            model = SentenceTransformer(
                str(folder),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )
    except MemoryError:
        raise
    except Exception as error:  # tokenizers raises it plainly
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{folder}: cannot be loaded as a sentence-transformers model ({reason})") from error
    check_tokenizer(model, folder)
    limit_length(model, max_length)
    return model.eval()


def check_folder(folder: Path) -> None:
    """Refuse a folder that is no model, holds pickled weights only, or names modules from outside the library; also one
    whose tokeniser was cut short.

    Raises ModelError with the file at fault.
    """
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise ModelError(f"{folder}: not a model folder (no modules.json and no config.json); give a saved encoder")
    for pattern in PICKLED:
        for path in folder.rglob(pattern):
            if path.name != "training_args.bin" and not _has_safe_twin(path):
                raise ModelError(
                    f"{path}: pickled weights can run code, so they are not loaded; save them as safetensors"
                )
    for module in _modules(folder):
        kind = str(module.get("type", "")) if isinstance(module, dict) else ""
        if not kind.startswith("sentence_transformers."):
            raise ModelError(
                f"{folder}: modules.json names {kind or module!r}, code from outside sentence-transformers"
            )
        part = (folder / str(module.get("path", ""))).resolve()
        if not part.is_relative_to(folder.resolve()):
            raise ModelError(f"{folder}: modules.json points to {part}, outside the model's folder")
        _check_tokenizer_file(part / "tokenizer.json", is_needed=kind.endswith(".StaticEmbedding"))


def _has_safe_twin(pickled: Path) -> bool:
    """Whether the same weights lie beside as safetensors, which are then the ones that are loaded."""
    names = ("model.safetensors", "model.safetensors.index.json", f"{pickled.stem}.safetensors")
    return any((pickled.parent / name).is_file() for name in names)


def _check_tokenizer_file(path: Path, *, is_needed: bool) -> None:
    """is_needed: by its module, which reads no other; a transformer's may lie in files of other names."""
    if path.is_file():
        _json_of(path)
    elif is_needed:
        raise ModelError(
            f"{path.parent}: no tokeniser lies beside the weights ({path.name}); save the encoder again with it"
        )


def _modules(folder: Path) -> list[Any]:
    """The modules that a folder names; a transformer alone, which names none, is one."""
    path = folder / "modules.json"
    if not path.is_file():
        return [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    modules = _json_of(path)
    if not isinstance(modules, list):
        raise ModelError(f"{path}: not a list of modules; save the encoder again")
    return modules


def _json_of(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path}: not JSON ({error}); save the encoder again") from error


def check_tokenizer(model: SentenceTransformer, folder: Path) -> None:
    """Refuse a model whose tokeniser knows no words: where its files are missing, one is made up of the special tokens.

    Raises ModelError.
    """
    special = getattr(model.tokenizer, "all_special_tokens", None)
    if special is not None and len(model.tokenizer) <= len(special):
        raise ModelError(
            f"{folder}: no tokeniser lies beside the weights (such as tokenizer.json); save the encoder again with it"
        )


def limit_length(model: SentenceTransformer, max_length: int) -> None:
    """Let the model itself cut texts after `max_length` tokens. Raises ConfigError above what it was built for."""
    tokenizer = model.tokenizer
    if hasattr(tokenizer, "enable_truncation"):  # StaticEmbedding: a bare tokeniser, and no positions to run out of
        tokenizer.enable_truncation(max_length)
        return
    positions = _positions(model.transformers_model)
    if positions is not None and positions < max_length:
        raise ConfigError(f"encoder.max_length is {max_length}; this encoder reads at most {positions} tokens")
    model.max_seq_length = max_length


def _positions(inner: Any) -> int | None:
    """The most tokens that a transformer has positions for; None where it has no such limit.

    RoBERTa and its kin number positions after the padding token's id, so the first ones stay unused.
    """
    positions = getattr(getattr(inner, "config", None), "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    table = getattr(getattr(inner, "embeddings", None), "position_embeddings", None)
    unused = getattr(table, "padding_idx", None)
    return positions if unused is None else positions - unused - 1


def save_model(model: SentenceTransformer, folder: Path | str, card: str) -> Path:
    """Save the model as a plain sentence-transformers folder: safetensors, tokeniser, and `card` as README.md.

    Low-rank matrices are merged into the weights. The folder appears whole or not at all, and on the disk; one that is
    already there is replaced. Returns the folder.
    """
    from bsc_core.encoders.lora import merged

    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "new"
        with _no_progress_bars(), merged(model):
            model.save_pretrained(str(fresh), create_model_card=False, safe_serialization=True)
        (fresh / "README.md").write_text(card, encoding="utf-8")
        for path in (*fresh.rglob("*"), fresh):
            sync(path)
        old = Path(scratch) / "old"
        if folder.exists():
            folder.rename(old)
        try:
            fresh.rename(folder)
        finally:
            if not folder.exists():  # broken off between the two: the old one stays
                old.rename(folder)
    return folder


def static_model(tokenizer: Tokenizer, vectors: NDArray[np.float32]) -> SentenceTransformer:
    """A model that averages one vector for each token. vectors: (V, D), row v for token id v."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)]).eval()


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
