"""Fixtures of the tests of jobs, for runs that a Ray cluster performs."""

from pathlib import Path

import fsspec
import pytest

from bsc_core.ray.jobs.storage import Storage
from tests.jobs.conftest import config, store, until

__all__ = ["config", "store", "until"]


@pytest.fixture(params=["memory", "file"])
def storage(request, tmp_path):
    """An empty folder in each kind of storage."""
    if request.param == "file":
        yield Storage(f"file://{tmp_path}/stored")
        return
    yield Storage("memory://stored")
    system = fsspec.filesystem("memory")
    if system.exists("/stored"):
        system.rm("/stored", recursive=True)


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
