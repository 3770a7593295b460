"""Stress test of jobs: random faults in runs, supervisor and queue; prints the faults and the runs lost (must be none).

Supervisors, workers, escalations and launching processes are real; the experiment is a stub that records its start and
end. A run that no fault has ended must be done, each run starts at most once, and every final state must be true. Not
part of the test suite:

    python tests/stress/chaos.py [--faults 200] [--seed 0] [--folder DIR]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path

from faults import FAULTS, Chaos

from bsc_core.errors import RunNotFoundError
from bsc_core.jobs.local.processes import wait_until
from bsc_core.runs import parent_run_id
from tests.jobs.stub_worker import LEDGER

DRAIN_SECONDS = 240.0
FAILURES = {"lost": "LOST WITHOUT A FAULT", "started twice": "STARTED TWICE", "wrong state": "WRONG STATE"}
CAUSES = {"disk": "the disk is full", "memory": "out of memory"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="folder of the runs (default: a temporary folder)")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="bsc-chaos-"))
    start = time.monotonic()
    chaos = Chaos(folder / "runs", arguments.seed)
    done = inject(chaos, arguments.faults, random.Random(arguments.seed))
    drained = wait_until(lambda: quiet(chaos), DRAIN_SECONDS, poll_seconds=0.3)
    failures = find_failures(chaos)
    for word, times in done.items():
        print(f"{word:<36}{times:>6}")
    print(f"{'total faults':<36}{sum(done.values()):>6}\n")
    if chaos.unavailable:
        print(f"not possible here: {', '.join(sorted(chaos.unavailable))}\n")
    for word, number in (counts(chaos) | {"errors, retried": sum(chaos.refused.values())}).items():
        print(f"{word:<36}{number:>6}")
    for name in FAILURES:
        print(f"{FAILURES[name]:<36}{sum(kind == name for kind, _ in failures):>6}")
    print(f"\n{time.monotonic() - start:.0f} s, seed {arguments.seed}, runs in {folder}")
    for kind, sentence in failures:
        sys.stderr.write(f"{kind}: {sentence}\n")
    return 0 if drained and not failures else 1


def inject(chaos: Chaos, number: int, generator: random.Random) -> Counter[str]:
    """Inject faults in random order, each kind about equally often, while runs are launched and reconciled."""
    names = list(islice(cycle(FAULTS), number))
    generator.shuffle(names)
    for name in names:
        chaos.top_up()
        FAULTS[name](chaos)
        for _ in range(generator.randrange(1, 4)):
            chaos.reconcile()
            time.sleep(generator.uniform(0.05, 0.3))
    return Counter({name: names.count(name) for name in FAULTS})


def quiet(chaos: Chaos) -> bool:
    """True when every run has ended and no process is left."""
    chaos.reconcile()
    statuses = [run.status() for run in chaos.store.list()]
    return all(status.is_finished and status.is_readable for status in statuses) and not chaos.processes("perform")


def ledger(chaos: Chaos, word: str) -> Counter[str]:
    path = chaos.store.root.parent / LEDGER
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return Counter(run_id for event, run_id, _ in lines if event == word)


def counts(chaos: Chaos) -> dict[str, int]:
    states = Counter(run.status().state for run in chaos.store.list())
    launched = {"runs launched": len(chaos.launched)}
    gone = {"of them deleted by a fault": len(chaos.launched) - sum(states.values())}
    return launched | gone | {f"of them {state}": number for state, number in sorted(states.items())}


def find_failures(chaos: Chaos) -> list[tuple[str, str]]:
    """Return the kind and a message of each failure."""
    starts = ledger(chaos, "start")
    result = [("started twice", f"{run_id} started {times} times") for run_id, times in starts.items() if times > 1]
    for run_id in chaos.launched:
        failure = check_end(chaos, run_id)
        result += [failure] if failure else []
    return result


def check_end(chaos: Chaos, run_id: str) -> tuple[str, str] | None:
    """Return what is wrong with the final state of a run, given its faults; None if nothing is."""
    harm = chaos.harmed.get(run_id, set())
    kind = run_id.partition("-")[0]
    try:
        run = chaos.store.get(run_id)
        status, parent = run.status(), parent_run_id(run.config().encoder.name)
    except RunNotFoundError:
        return None if "deleted" in harm or kind == "interrupted" else ("lost", f"{run_id} has no folder")
    message = f"{run_id} is {status.state} after {sorted(harm) or 'nothing'} ({status.error or status.message})"
    if not status.is_finished:
        return ("wrong state", message)
    if status.state == "done":
        return None if ledger(chaos, "end")[run_id] else ("wrong state", message)
    if status.state in ("failed", "lost") and not status.error:
        return ("wrong state", f"{message}, without a cause")
    explained = (
        (status.state == "stopped" and "stopped" in harm)
        or (status.state in ("lost", "failed") and harm & {"killed", "read-only", "suspended"})
        or (status.state == "failed" and CAUSES.get(kind, "\0") in (status.error or ""))
        or (
            status.state == "failed"
            and parent is not None
            and (_has_no_model(chaos, parent) or "suspended" in chaos.harmed.get(parent, ()))
        )
        or (status.state == "lost" and kind == "interrupted" and "interrupted" in (status.error or ""))
    )
    return None if explained else ("lost", message)


def _has_no_model(chaos: Chaos, run_id: str) -> bool:
    try:
        run = chaos.store.get(run_id)
    except RunNotFoundError:
        return True
    return run.status().state != "done"


if __name__ == "__main__":
    raise SystemExit(main())
