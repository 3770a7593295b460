"""From the name in a config to an encoder: the built-in ones, a folder, or a hub id."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bsc_core.config import EncoderConfig
from bsc_core.data.places import check_path
from bsc_core.encoders.bundled import bundled_folder
from bsc_core.encoders.pretrained import check_folder, fetch, load_folder
from bsc_core.encoders.raw import raw_folder
from bsc_core.encoders.static import static_folder
from bsc_core.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ENCODERS: dict[str, Callable[[], Path]] = {
    "bundled": bundled_folder,
    "bundled_raw": raw_folder,
    "static": static_folder,
}

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def encoder_folder(name: str) -> Path:
    """The model folder that an encoder's name means: a built-in one, an existing folder, else a hub id's copy.

    Raises PathError for a folder that may not be read and ModelError where there is no such encoder.
    """
    if name in ENCODERS:
        return ENCODERS[name]()
    if HUB_ID.fullmatch(name) and not Path(name).exists():
        return fetch(name if "/" in name else f"sentence-transformers/{name}")
    if name.startswith("run:"):
        raise ModelError(
            f"{name}: the model of a run, which is only found from its runs folder; give the model's folder"
        )
    folder = check_path(name)
    if not folder.is_dir():
        raise ModelError(f"{name}: a file, not a model folder; give the folder that holds it")
    return folder


def check_encoder(name: str) -> None:
    """Refuse what can be seen at a glance to be no encoder; a hub id is only looked up when it is loaded.

    Raises PathError for a folder that may not be read or is not there, and ModelError where it holds no safe model.
    """
    is_hub_id = HUB_ID.fullmatch(name) is not None and not Path(name).exists()
    if name not in ENCODERS and not is_hub_id:
        check_folder(encoder_folder(name))


def load_encoder(config: EncoderConfig) -> SentenceTransformer:
    """Load the encoder of a config, in evaluation mode, on the best device there is.

    Texts are cut after `config.max_length` tokens. Raises ModelError, PathError or ConfigError, naming the way out.
    """
    return load_folder(encoder_folder(config.name), config.max_length)
