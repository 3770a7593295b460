"""Where things lie: the cache, the app's own files, and which folders may be read."""

from __future__ import annotations

import os
from pathlib import Path

from bsc_core.errors import PathError

PACKAGE = Path(__file__).resolve().parents[1]


def cache_folder() -> Path:
    """Folder for what can be made again: BSC_CACHE, else the system's cache folder. It may not exist yet."""
    given = os.environ.get("BSC_CACHE")
    if given:
        return Path(given).expanduser().resolve()
    from platformdirs import user_cache_path

    return user_cache_path("bsc-lab", appauthor=False)


def app_folder() -> Path:
    """Folder that holds app.py, pages and sample_data: the checkout, or `_app` inside an installed package."""
    checkout = PACKAGE.parent
    installed = PACKAGE / "_app"
    return checkout if (checkout / "app.py").is_file() and (checkout / "pages").is_dir() else installed


def sample_data_folder() -> Path:
    """Folder of the sample files that come with the app."""
    return app_folder() / "sample_data"


def allowed_roots() -> tuple[Path, ...]:
    """Folders this process may read, from BSC_ROOTS; empty means no limit beyond the user's own rights."""
    parts = os.environ.get("BSC_ROOTS", "").split(os.pathsep)
    return tuple(dict.fromkeys(Path(part).expanduser().resolve() for part in parts if part.strip()))


def check_path(path: Path | str) -> Path:
    """The resolved path (links followed) of a file or folder that exists and may be read.

    Raises PathError when it is missing, or lies outside the allowed roots; then nothing is told about what is there.
    """
    if not str(path).strip():
        raise PathError("the path is empty; give the path of a file")
    try:
        resolved = Path(path).expanduser().resolve()
        roots = allowed_roots()
        if roots and not any(resolved.is_relative_to(root) for root in roots):
            names = ", ".join(str(root) for root in roots)
            raise PathError(
                f"{path}: outside the folders that may be read ({names}); "
                "move the file there, or name its folder in BSC_ROOTS"
            )
        found = resolved.exists()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, an unknown ~user, a zero byte
        raise PathError(f"{str(path)!r}: not a path that can be opened ({error}); correct it") from None
    if not found:
        raise PathError(f"{path}: there is no such file or folder; check its spelling and its folder")
    return resolved
