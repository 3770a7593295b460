"""Folders of the cache and the app, and the check of paths that may be read."""

import os
from pathlib import Path

from bsc_core.errors import PathError
from bsc_core.formatting import shorten

PACKAGE = Path(__file__).resolve().parent


def cache_folder() -> Path:
    """Return the cache folder: BSC_CACHE, else the system's cache folder. It may not exist yet."""
    if folder := os.environ.get("BSC_CACHE"):
        return expand(folder).resolve()
    from platformdirs import user_cache_path

    return user_cache_path("bsc-lab", appauthor=False)


def app_folder() -> Path:
    """Return the folder of app.py, pages and sample_data: the checkout, or `_app` inside an installed package."""
    checkout = PACKAGE.parent
    return checkout if (checkout / "app.py").is_file() and (checkout / "pages").is_dir() else PACKAGE / "_app"


def sample_data_folder() -> Path:
    """Return the folder of the bundled sample files."""
    return app_folder() / "sample_data"


def allowed_roots() -> tuple[Path, ...]:
    """Return the folders that may be read, from BSC_ROOTS; empty means all that the user may read."""
    parts = os.environ.get("BSC_ROOTS", "").split(os.pathsep)
    return tuple(dict.fromkeys(expand(part).resolve() for part in parts if part.strip()))


def check_path(path: Path | str) -> Path:
    """Resolve a path, following links, and check that it exists and may be read.

    Raises:
        PathError: The path is missing or outside the allowed roots; the latter does not reveal whether it exists.
    """
    if not str(path).strip():
        raise PathError("the path is empty; give the path of a file")
    try:
        resolved = Path(path).expanduser().resolve()
        roots = allowed_roots()
        if roots and not any(resolved.is_relative_to(root) for root in (*roots, sample_data_folder().resolve())):
            names = ", ".join(str(root) for root in roots)
            raise PathError(
                f"{path}: outside the folders that may be read ({names}); "
                "move the file there, or start with its folder in the environment variable BSC_ROOTS"
            )
        exists = resolved.exists()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, an unknown ~user, a zero byte
        raise PathError(
            f"{shorten(str(path), 200)!r}: not a valid path ({shorten(str(error), 200)}); correct it"
        ) from None
    if not exists:
        raise PathError(f"{path}: there is no such file or folder; check its spelling and its folder")
    return resolved


def expand(path: str | Path) -> Path:
    """Return a path with the home folder for `~`.

    Raises:
        PathError: `~name` names no user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise PathError(f"{str(path)!r}: there is no such user; correct the path") from None


def plain_name(name: object) -> str:
    """Return the name of a file of a folder, as given in another file of that folder.

    Raises:
        ValueError: It is no text, or a path that leads to another folder.
    """
    if not isinstance(name, str) or Path(name).name != name or name == "..":
        raise ValueError(f"{name!r} is not the name of a file in this folder")
    return name
