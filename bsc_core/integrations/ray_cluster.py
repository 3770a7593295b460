"""A Ray cluster for one piece of work: one that answers at an address, or one on this machine that ends with it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from bsc_core.errors import BscError, InputError, RunError

ANSWER_SECONDS = 5.0
HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
SETTINGS = 4  # the type of the frame with which each HTTP/2 server, and so each Ray head, answers


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected for the block: as the process already is, to `address`, or to a cluster started on this machine.

    address: HOST:PORT of a head, "auto" for the one that runs here, or None. A failure of a task is raised as what
    it was. Raises InputError when Ray is not installed or the address does not answer within some seconds.
    """
    if address is None:  # then nothing listens beyond this machine; Ray reads this when it is first imported
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    ray = _ray()
    with ExitStack() as stack:
        if not ray.is_initialized():
            _connect(ray, address, stack)
        with _quiet(ray):
            yield ray


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Inside the block Ray draws no progress bars, and what fails in a task is raised as what it was there."""
    context = ray.data.DataContext.get_current()
    told = context.enable_progress_bars
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    context.enable_progress_bars = False
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    except ray.exceptions.RayError as error:
        raise _as_told(error) from error
    finally:
        context.enable_progress_bars = told
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError("Ray is not installed; install it with `pip install 'bsc-lab[ray]'`") from None
    return ray


def _connect(ray: Any, address: str | None, stack: ExitStack) -> None:
    """Join or start a cluster, which `stack` leaves or ends."""
    quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        folder = stack.enter_context(TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
        stack.callback(ray.shutdown)
        ray.init(address="local", include_dashboard=False, _temp_dir=folder, **quiet)
        return
    if address != "auto":
        check_answer(address)
    stack.callback(ray.shutdown)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise InputError(
            f"address {address}: no Ray cluster can be joined there ({_first_line(error)}); check its token and its "
            "versions of Ray and Python"
        ) from None


def check_answer(address: str, seconds: float = ANSWER_SECONDS) -> None:
    """Raise InputError when no Ray head answers at HOST:PORT in time; joining one that is silent would wait minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        raise InputError(f"address {address}: write it as HOST:PORT of a Ray head, such as 10.0.0.1:6379, or as auto")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as connection:
            if os.environ.get("RAY_USE_TLS") != "1":
                connection.sendall(HTTP2_HELLO)
                answer = connection.recv(9)
                if len(answer) < 4 or answer[3] != SETTINGS:
                    raise InputError(f"address {address}: what answers there is no Ray head; correct the address")
    except (OSError, OverflowError) as error:
        raise InputError(
            f"address {address}: no Ray head answers there within {seconds:.0f} s ({_first_line(error)}); "
            "start one with `ray start --head`, or correct the address"
        ) from None


def _as_told(error: BaseException) -> BscError:
    """What a task raised on purpose, or a sentence about what went wrong in it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BscError) and not hasattr(cause, "cause"):  # Ray's copies of an error hold it as cause
            return type(cause)(_first_line(cause))  # below it stands Ray's advice on retries
        last, cause = cause, getattr(cause, "cause", None) or cause.__cause__
    return RunError(f"Ray could not finish the plan ({_first_line(last)})")


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
