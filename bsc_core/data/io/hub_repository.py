"""Files of a repository on the Hugging Face Hub: their list, and their download to the cache of `huggingface_hub`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bsc_core.errors import InputError

MAX_DOWNLOAD_GB = "BSC_MAX_DOWNLOAD_GB"
"""Environment variable: maximum total size of the files of one download, in gigabytes."""
DEFAULT_DOWNLOAD_GB = 5.0


@dataclass(frozen=True)
class Repository:
    """A repository at one commit, or the part of it that is in the cache.

    Attributes:
        name: owner/name.
        kind: What it contains.
        revision: The commit; None if the Hub was not asked.
        sizes: Size in bytes by path; of a cached file 0.
    """

    name: str
    kind: Literal["model", "dataset"]
    revision: str | None
    sizes: dict[str, int]

    def download(self, paths: Iterable[str]) -> Path:
        """Return the folder of the cache that has these files, downloading them if needed.

        Raises:
            InputError: They are larger than the limit.
        """
        from huggingface_hub import hf_hub_download

        paths = list(paths)
        limit = float(os.environ.get(MAX_DOWNLOAD_GB) or DEFAULT_DOWNLOAD_GB)
        size = sum(self.sizes[path] for path in paths) / 1e9
        if size > limit:
            raise InputError(
                f"{self.name}: the files have {size:.1f} GB, more than {limit:g}; choose a smaller {self.kind}, or set "
                f"{MAX_DOWNLOAD_GB}"
            )
        files = [
            hf_hub_download(
                self.name,
                path,
                repo_type=self.kind,
                revision=self.revision,
                local_files_only=self.revision is None,
            )
            for path in paths
        ]
        return Path(files[0]).parents[paths[0].count("/")]


def open_repository(name: str, kind: Literal["model", "dataset"]) -> Repository:
    """Return the files of a repository; those in the cache if the Hub cannot be reached or must not be asked.

    Raises:
        Exception: That of `huggingface_hub`, if neither the Hub nor the cache has the repository.
    """
    from huggingface_hub import HfApi, snapshot_download

    try:
        info = HfApi().repo_info(name, repo_type=kind, files_metadata=True)
    except Exception:  # whatever the network raises
        try:
            folder = Path(snapshot_download(name, repo_type=kind, local_files_only=True))
        except (OSError, ValueError):
            folder = None
        if folder is None:
            raise
        files = [path for path in folder.rglob("*") if path.is_file()]
        return Repository(name, kind, None, {path.relative_to(folder).as_posix(): 0 for path in files})
    sizes = {file.rfilename: file.size or 0 for file in getattr(info, "siblings", None) or ()}
    return Repository(name, kind, info.sha, {path: size for path, size in sizes.items() if ".." not in path.split("/")})
