"""Encoders by name: the built-in ones, a model folder, or a hub id."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bsc_core.config import EncoderConfig
from bsc_core.encoders.bundled import bundled_folder, unnormalized_folder
from bsc_core.encoders.checks.folder import check_folder
from bsc_core.encoders.pretrained import fetch, load_folder
from bsc_core.encoders.static import is_distilled, static_folder
from bsc_core.errors import ConfigError, ModelError
from bsc_core.paths import check_path

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ENCODERS: dict[str, Callable[[], Path]] = {
    "bundled": bundled_folder,
    "bundled_raw": unnormalized_folder,
    "static": static_folder,
}

PROMPT_NAME = re.compile(r"[\w-]+")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
MAX_HUB_ID = 200  # characters


def encoder_folder(name: str) -> Path:
    """Return the model folder of an encoder: a built-in one, an existing folder, or a download of a hub id.

    Raises:
        PathError: The folder is missing or may not be read.
        ModelError: There is no such encoder.
    """
    if name in ENCODERS:
        return ENCODERS[name]()
    if _is_hub_id(name):
        return fetch(_full_hub_id(name))
    if name.startswith("run:"):
        raise ModelError(f"{name}: the model of a run can only be resolved in its runs folder; give the model's folder")
    folder = check_path(name)
    if not folder.is_dir():
        raise ModelError(f"{name}: a file, not a model folder; give the folder that contains it")
    return folder


def check_encoder(name: str) -> None:
    """Check a name without loading a model; a hub id is looked up only when it is loaded.

    Raises:
        PathError: The folder is missing or may not be read.
        ModelError: The folder contains no model that is safe to load.
    """
    if name not in ENCODERS and not _is_hub_id(name):
        check_folder(encoder_folder(name))


def build_encoder(name: str, say: Callable[[str], object]) -> None:
    """Build the static encoder if it is not in the cache yet; other encoders need not be built.

    Raises:
        ModelError: As `static_folder`.
    """
    if name == "static" and not is_distilled():
        say("Building the static encoder from the bundled one, once on each machine")
        static_folder()


def load_encoder(config: EncoderConfig) -> SentenceTransformer:
    """Load the encoder of a config in evaluation mode on the best available device.

    Texts are truncated to `config.max_seq_length` tokens.

    Raises:
        ModelError: There is no such model, or it is not safe to load.
        PathError: The folder is missing or may not be read.
        ConfigError: The model cannot read texts of that length.
    """
    model = load_folder(encoder_folder(config.name), config.max_seq_length)
    set_prompts(model, config)
    return model


def set_prompts(model: SentenceTransformer, config: EncoderConfig) -> None:
    """Set the model's prompts `query` and `document` to those of the config, which are saved with the model.

    A prompt of word characters only is the name of one of the model's prompts; any other is the text itself.

    Raises:
        ConfigError: The model has no prompt of that name, or leaves prompts out of its pooling.
    """
    known = {name: text for name, text in (model.prompts or {}).items() if text}
    default = known.get(model.default_prompt_name or "", "")
    if (config.has_prompts or default) and any(getattr(module, "include_prompt", True) is False for module in model):
        advice = "choose another model" if default else "remove encoder.query_prompt and encoder.document_prompt"
        problem = "leaves prompts out of its pooling (include_prompt = false), which is not supported"
        raise ConfigError(f"{config.name} {problem}; {advice}")
    if not config.has_prompts:
        return
    for side in ("query", "document"):
        prompt = getattr(config, f"{side}_prompt")
        if prompt is not None and PROMPT_NAME.fullmatch(prompt) and prompt not in known:
            names = f"its prompts are {', '.join(known)}" if known else "it has no prompts"
            raise ConfigError(
                f"encoder.{side}_prompt is {prompt!r}, which is not a prompt of {config.name} ({names}); give one of "
                f'its names, or the text itself with a colon or a space, such as "{prompt}: "'
            )
        model.prompts[side] = default if prompt is None else known.get(prompt, prompt)


def needs_download(name: str) -> bool:
    """Return whether an encoder is a model of the Hub that is not in the local cache."""
    if name in ENCODERS or not _is_hub_id(name):
        return False
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(_full_hub_id(name), local_files_only=True)
    except (OSError, ValueError):
        return True
    return False


def _full_hub_id(name: str) -> str:
    return name if "/" in name else f"sentence-transformers/{name}"


def _is_hub_id(name: str) -> bool:
    return len(name) <= MAX_HUB_ID and HUB_ID.fullmatch(name) is not None and not Path(name).exists()
