"""Timing, memory, child processes and Markdown tables, shared by the benchmarks."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MIN_ROUNDS = 4


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser described by the first line of a module docstring."""
    return argparse.ArgumentParser(description=(doc or "").splitlines()[0])


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_header(*names: str) -> None:
    print_row(*names)
    print_row(*["---"] * len(names))


def clock() -> np.ndarray:
    """Return wall time and processor time of all threads, in seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def take_turns(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    setup: Mapping[str, Callable[[], object]] | None = None,
    limit: float = float("inf"),
) -> dict[str, np.ndarray]:
    """Time functions in turns, in alternating order, after a warmup round.

    Args:
        calls: functions by name.
        rounds: number of timed rounds.
        setup: called before the function of the same name; not timed.
        limit: seconds after which no round starts, once there are MIN_ROUNDS.

    Returns:
        Per function (rounds, 2) wall and processor seconds.
    """
    times: dict[str, list[np.ndarray]] = {name: [] for name in calls}
    started = time.perf_counter()
    for number in range(rounds + 1):
        for name in list(calls)[:: 1 if number % 2 else -1]:
            if setup is not None:
                setup[name]()
            before = clock()
            calls[name]()
            if number:
                times[name].append(clock() - before)
        if number >= MIN_ROUNDS and time.perf_counter() - started > limit:
            break
    return {name: np.stack(values) for name, values in times.items()}


def resident_mib(name: str) -> float:
    """Return memory of this process in MiB (Linux). name: VmRSS for now, VmHWM for the peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def reset_peak() -> None:
    """Let VmHWM start again from the present memory (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


@dataclass(frozen=True)
class Child:
    """A finished child process: its standard output, wall seconds, and peak memory in MiB."""

    output: str
    seconds: float
    peak_mib: float


def run_python(*arguments: object, cwd: Path = ROOT, stderr: int | None = None, **environment: object) -> Child:
    """Run Python with these arguments and environment variables; ends this program if the child fails."""
    command = [sys.executable, *map(str, arguments)]
    variables = {**os.environ, "PYTHONPATH": str(cwd)} | {name: str(value) for name, value in environment.items()}
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=stderr, cwd=cwd, env=variables)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with exit status {process.returncode}")
        output.seek(0)
        return Child(output.read().decode(), seconds, used.ru_maxrss / 1024)
