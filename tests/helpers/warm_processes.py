"""Processes that execute Python code, forked from one that has imported the training code.

Importing it takes several seconds of processor time; a fork takes milliseconds.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.context import BaseContext
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from tests.helpers.waiting import PATIENCE_SECONDS

PRELOADED = ["sentence_transformers", "bsc_core.pipeline", "bsc_core.jobs.worker", "bsc_core.cli.run_commands"]


@functools.cache
def _context() -> BaseContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


class WarmProcess:
    """A process started like `python -c CODE ARGUMENTS`, with one thread.

    Args:
        code: Python code.
        arguments: `sys.argv[1:]` of the code.
        output: Stem of the files with the standard output and error, `.out` and `.err`.
        environment: Variables besides those of the calling process.
    """

    def __init__(
        self, code: str, *arguments: object, output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._files = output.with_suffix(".out"), output.with_suffix(".err")
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        files = tuple(map(str, self._files))
        words = ["-c", *map(str, arguments)]
        self._process = _context().Process(target=_execute, args=(code, words, files, variables))
        # Tests of pages leave the script of a page as the main module, which a new process would execute.
        with patch.dict(sys.modules, {"__main__": ModuleType("__main__")}):
            self._process.start()

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit status, the negative number of a signal. Kills it after the timeout."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        return int(self._process.exitcode or 0)

    @property
    def stdout(self) -> str:
        return self._files[0].read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self._files[1].read_text(encoding="utf-8")


def two_processes(
    code: str, arguments: Callable[[int], Iterable[object]], folder: Path, *, status: int = 0
) -> list[WarmProcess]:
    """Execute code in processes of rank 0 and 1, as torchrun starts them; both have to end with this exit status.

    arguments: Returns those of a rank. folder: Gets the outputs.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    processes = [
        WarmProcess(
            code,
            *arguments(rank),
            output=folder / f"rank-{rank}",
            environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    ended = [process.wait(PATIENCE_SECONDS) for process in processes]
    assert ended == [status, status], "\n".join(process.stderr for process in processes)
    return processes


def _execute(code: str, words: list[str], files: tuple[str, str], variables: dict[str, str]) -> None:
    for stream, name in zip((1, 2), files, strict=True):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = words
    exec(compile(code, "<test>", "exec"), {"__name__": "__main__"})
