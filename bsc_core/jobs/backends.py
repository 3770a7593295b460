"""The backends by name, and which one performs a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bsc_core.errors import ConfigError
from bsc_core.jobs.backend import Backend
from bsc_core.jobs.local_backend import LocalBackend
from bsc_core.runs import Run


def _ray() -> Backend:
    from bsc_core.jobs.ray_jobs import RayBackend

    return RayBackend()


BACKENDS: Mapping[str, Callable[[], Backend]] = {"local": LocalBackend, "ray": _ray}


def backend_named(name: str) -> Backend:
    """The backend of that name. Raises ConfigError."""
    if name not in BACKENDS:
        raise ConfigError(f"backend is {name!r}; it must be one of {', '.join(BACKENDS)}")
    return BACKENDS[name]()


def backend_of(run: Run) -> Backend:
    """The backend that performs a run, as its status says. Raises ConfigError for a name of another version."""
    return backend_named(run.status().backend)
