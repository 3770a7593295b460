"""Connection to a Ray cluster: an existing one, or one on this machine that ends with the block."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from bsc_core.errors import BscError, InputError, RunError

ANSWER_SECONDS = 5.0
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
SETTINGS_FRAME = 4  # with which each HTTP/2 server, and so each Ray head, answers


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Connect to Ray for the block, and yield the module `ray`; an existing connection is used and not closed.

    Args:
        address: HOST:PORT of a head, "auto" for the head on this machine, or None to start a cluster.

    Raises:
        InputError: Ray is not installed, or no head answers at the address within some seconds.
        BscError: A task raised it.
        RunError: A task failed in another way.
    """
    if address is None:  # listen on this machine only; Ray reads this when it is first imported
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    ray = _ray()
    with ExitStack() as stack:
        if not ray.is_initialized():
            _connect(ray, address, stack)
        with _quiet(ray):
            yield ray


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Switch off Ray's progress bars and logs, and translate its errors."""
    context = ray.data.DataContext.get_current()
    progress_bars = context.enable_progress_bars
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    context.enable_progress_bars = False
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    except ray.exceptions.RayError as error:
        raise _translate(error) from error
    finally:
        context.enable_progress_bars = progress_bars
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
    """Join or start a cluster; `stack` disconnects from it or ends it."""
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
            f"address {address}: the Ray cluster there refuses this process ({_first_line(error)}); check its "
            "token and its versions of Ray and Python"
        ) from None


def check_answer(address: str, seconds: float = ANSWER_SECONDS) -> None:
    """Raise InputError if no Ray head answers at HOST:PORT in time; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        raise InputError(f"address {address}: give HOST:PORT of a Ray head, such as 10.0.0.1:6379, or auto")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as connection:
            if os.environ.get("RAY_USE_TLS") != "1":
                connection.sendall(HTTP2_PREFACE)
                answer = connection.recv(9)
                if len(answer) < 4 or answer[3] != SETTINGS_FRAME:
                    raise InputError(f"address {address}: the server there is not a Ray head; correct the address")
    except (OSError, OverflowError) as error:
        raise InputError(
            f"address {address}: no Ray head answers there within {seconds:.0f} s ({_first_line(error)}); "
            "start one with `ray start --head`, or correct the address"
        ) from None


def _translate(error: BaseException) -> BscError:
    """Return the BscError that a task raised, or a RunError with the cause in one line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BscError) and not hasattr(cause, "cause"):  # Ray's copy of an error holds it as cause
            return type(cause)(_first_line(cause))  # the other lines are Ray's advice on retries
        last, cause = cause, getattr(cause, "cause", None) or cause.__cause__
    return RunError(f"Ray could not finish the plan ({_first_line(last)})")


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
