"""Stress test of jobs: random faults in runs, supervisor and queue; prints the faults and the runs lost (must be none).

Supervisors, workers, escalations and launching processes are real; the experiment is a stub that records its start and
end. A run that no fault has ended must be done, each run starts at most once, and every final state must be true. Not
part of the test suite:

    python tests/stress/chaos.py [--faults 200] [--seed 0] [--finished-runs 0] [--folder DIR]

As root on Linux, the runs folder is on a file system of its own, which loses what was not synced when the power is cut.
BSC_TEST_PATIENCE is the deadline in seconds. SIGTERM ends the injection; the faults until then are reported.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path

from faults import FAULTS, Chaos
from machine import Disk, set_clock, start_with_clock

from bsc_core.errors import RunNotFoundError
from bsc_core.jobs.local.processes import wait_until
from bsc_core.jobs.supervisor import stop_on_signals
from bsc_core.runs import Run
from bsc_core.runs.ids import parent_run_id
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.jobs.stub_worker import LEDGER, last_step

FAILURES = {"lost": "LOST WITHOUT A FAULT", "started twice": "STARTED TWICE", "wrong state": "WRONG STATE"}
MAX_TRIES = 3  # of a fault without effect
CAUSES = {"disk": "the disk is full", "memory": "out of memory"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--finished-runs", type=int, default=0, help="runs in the folder that have finished before")
    parser.add_argument("--folder", type=Path, help="folder of the runs (default: a temporary folder)")
    arguments = parser.parse_args()
    if arguments.folder is None:
        arguments.folder = Path(tempfile.mkdtemp(prefix="bsc-chaos-"))
        sys.argv += ["--folder", str(arguments.folder)]
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    start_with_clock(folder / "clock")
    set_clock(0.0)
    start = time.monotonic()
    disk = make_disk(folder)
    chaos = Chaos(folder / "runs", arguments.seed, disk)
    if arguments.finished_runs:
        chaos.add_finished(arguments.finished_runs)
    done, missed = inject(chaos, arguments.faults, random.Random(arguments.seed))
    drained = wait_until(lambda: quiet(chaos), PATIENCE_SECONDS, poll_seconds=0.3)
    failures = find_failures(chaos)
    for word, times in done.items():
        print(f"{word:<36}{times:>6}")
    print(f"{'total faults':<36}{sum(done.values()):>6}\n")
    if missed:
        print(f"not counted, without effect: {', '.join(f'{word}, {n}' for word, n in sorted(missed.items()))}\n")
    for word, number in (counts(chaos) | {"errors, retried": sum(chaos.refused.values())}).items():
        print(f"{word:<36}{number:>6}")
    print(f"{'runs that had finished before':<36}{len(chaos.finished):>6}")
    for name in FAILURES:
        print(f"{FAILURES[name]:<36}{sum(kind == name for kind, _ in failures):>6}")
    print(f"\n{time.monotonic() - start:.0f} s, seed {arguments.seed}, runs in {folder}")
    for kind, sentence in failures:
        sys.stderr.write(f"{kind}: {sentence}\n")
    if not drained or failures:
        return 1
    if disk is not None:
        disk.unmount()
    return 0


def make_disk(folder: Path) -> Disk | None:
    """Return a disk mounted at the runs folder; None without the right to mount one."""
    try:
        return Disk(folder / "disk.ext4", folder / "runs")
    except (OSError, subprocess.CalledProcessError):
        return None


def inject(chaos: Chaos, number: int, generator: random.Random) -> tuple[Counter[str], Counter[str]]:
    """Inject faults in random order, each kind about equally often, while runs are launched and reconciled.

    A fault that finds nothing to act on is tried again later, up to MAX_TRIES times. SIGTERM ends it after the current
    fault.

    Returns:
        The number of faults of each kind that had an effect, and of those without one.
    """
    names = list(islice(cycle(FAULTS), number))
    generator.shuffle(names)
    done, missed = Counter(dict.fromkeys(FAULTS, 0)), Counter[str]()
    with stop_on_signals() as stopped:
        for name in names:  # grows while faults have no effect
            if stopped.is_set():
                break
            chaos.top_up()
            chaos.has_missed = False
            FAULTS[name](chaos)
            (missed if chaos.has_missed else done)[name] += 1
            if chaos.has_missed and missed[name] < MAX_TRIES * number / len(FAULTS):
                names.append(name)
            for _ in range(generator.randrange(1, 4)):
                chaos.reconcile()
                time.sleep(generator.uniform(0.05, 0.3))
    return done, missed


def quiet(chaos: Chaos) -> bool:
    """True when every run has ended and no process is left."""
    chaos.reconcile()
    statuses = [run.status() for run in chaos.runs()]
    return all(status.is_finished and status.is_readable for status in statuses) and not chaos.processes("perform")


def ledger(chaos: Chaos, word: str) -> Counter[str]:
    path = chaos.store.root.parent / LEDGER
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return Counter(run_id for event, run_id, _ in lines if event == word)


def counts(chaos: Chaos) -> dict[str, int]:
    states = Counter(run.status().state for run in chaos.runs())
    launched = {"runs launched": len(chaos.launched)}
    gone = {"of them refused or deleted by a fault": len(chaos.launched) - sum(states.values())}
    return launched | gone | {f"of them {state}": number for state, number in sorted(states.items())}


def find_failures(chaos: Chaos) -> list[tuple[str, str]]:
    """Return the kind and a message of each failure."""
    starts = ledger(chaos, "start")
    result = [*chaos.failures]
    result += [("lost", f"{run_id} had finished") for run_id in chaos.finished if not is_done(chaos, run_id)]
    result += [("started twice", f"{run_id} started {times} times") for run_id, times in starts.items() if times > 1]
    for run_id in chaos.launched:
        failure = check_end(chaos, run_id)
        result += [failure] if failure else []
    return result


def is_done(chaos: Chaos, run_id: str) -> bool:
    return Run(chaos.store.root / run_id).status().state == "done"


def check_end(chaos: Chaos, run_id: str) -> tuple[str, str] | None:
    """Return what is wrong with the final state of a run, given its faults; None if nothing is."""
    harm = chaos.harmed.get(run_id, set())
    kind = run_id.partition("-")[0]
    try:
        run = chaos.store.get(run_id)
        status, parent = run.status(), parent_run_id(run.config().encoder.name)
    except RunNotFoundError:
        is_expected = "deleted" in harm or kind in ("interrupted", "unlocked")
        return None if is_expected else ("lost", f"{run_id} has no folder")
    message = f"{run_id} is {status.state} after {sorted(harm) or 'nothing'} ({status.error or status.message})"
    if not status.is_finished:
        return ("wrong state", message)
    if kind == "unlocked" or (run_id in chaos.reported_done and status.state != "done"):
        return ("wrong state", message)
    if status.state == "done":
        is_complete = ledger(chaos, "end")[run_id] and count_steps(run) == last_step(run)
        return None if is_complete else ("wrong state", message)
    if status.state in ("failed", "lost") and not status.error:
        return ("wrong state", f"{message}, without a cause")
    explained = (
        (status.state == "stopped" and "stopped" in harm)
        or (status.state in ("lost", "failed") and harm & {"killed", "read-only", "suspended", "power"})
        or (status.state == "failed" and CAUSES.get(kind, "\0") in (status.error or ""))
        or (
            status.state == "failed"
            and parent is not None
            and (_has_no_model(chaos, parent) or "suspended" in chaos.harmed.get(parent, ()))
        )
        or (status.state == "lost" and kind == "interrupted" and "interrupted" in (status.error or ""))
    )
    return None if explained else ("lost", message)


def count_steps(run: Run) -> int:
    """Return the number of steps in the metrics, which are read as by a page."""
    _, end = run.metrics(max_steps=2_000)
    return run.metrics_file.read_bytes().count(b"\n") if end == run.metrics_file.stat().st_size else 0


def _has_no_model(chaos: Chaos, run_id: str) -> bool:
    try:
        run = chaos.store.get(run_id)
    except RunNotFoundError:
        return True
    return run.status().state != "done"


if __name__ == "__main__":
    raise SystemExit(main())
