"""Faults thrown at runs, their supervisor and their queue; prints what was done and what was lost, which is to be none.

Real supervisors, workers, ladders and launching processes; the experiment is a stand-in of some steps that writes down
when it begins and ends. Beside them an app looks after the runs as a page does. A run that no fault has ended must be
done, each run is begun at most once, and no run is left in a state that is not true.

    python benchmarks/chaos.py [--faults 200] [--seed 0] [--folder DIR]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from chaos_faults import FAULTS, SLOTS, Chaos
from chaos_jobs import LEDGER

from bsc_core.errors import RunNotFoundError
from bsc_core.jobs import set_slots
from bsc_core.jobs.identity import wait_until
from bsc_core.runs import chain_of

DRAIN_SECONDS = 240.0
WORDS = {"lost": "LOST: ended by no fault", "begun twice": "BEGUN TWICE", "in an untrue state": "IN AN UNTRUE STATE"}
CAUSES = {"disk": "the disk took no more", "memory": "out of memory"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the runs are made (default: a temporary folder)")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="bsc-chaos-"))
    began = time.monotonic()
    chaos = Chaos(folder / "runs", arguments.seed)
    set_slots(chaos.store, SLOTS)
    done = throw(chaos, arguments.faults, random.Random(arguments.seed))
    drained = wait_until(lambda: quiet(chaos), DRAIN_SECONDS, poll_seconds=0.3)
    faults = verdicts(chaos)
    for word, times in done.items():
        print(f"{word:<36}{times:>6}")
    print(f"{'faults in all':<36}{sum(done.values()):>6}\n")
    for word, number in (counts(chaos) | {"refused in one sentence, tried again": sum(chaos.refused.values())}).items():
        print(f"{word:<36}{number:>6}")
    for word in WORDS:
        print(f"{WORDS[word]:<36}{sum(kind == word for kind, _ in faults):>6}")
    print(f"\n{time.monotonic() - began:.0f} s, seed {arguments.seed}, runs in {folder}")
    for kind, sentence in faults:
        sys.stderr.write(f"{kind}: {sentence}\n")
    return 0 if drained and not faults else 1


def throw(chaos: Chaos, number: int, draw: random.Random) -> Counter[str]:
    """Throw faults drawn at random, each kind about as often, while runs are launched and looked after."""
    names = [list(FAULTS)[place % len(FAULTS)] for place in range(number)]
    draw.shuffle(names)
    for name in names:
        chaos.top_up()
        FAULTS[name](chaos)
        for _ in range(draw.randrange(1, 4)):
            chaos.look()
            time.sleep(draw.uniform(0.05, 0.3))
    return Counter({name: names.count(name) for name in FAULTS})


def quiet(chaos: Chaos) -> bool:
    """True when every run has ended and no process is left."""
    chaos.look()
    statuses = [run.status() for run in chaos.store.list()]
    return all(status.is_finished and status.is_readable for status in statuses) and not chaos.processes("perform")


def ledger(chaos: Chaos, word: str) -> Counter[str]:
    path = chaos.store.root.parent / LEDGER
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return Counter(run_id for said, run_id, _ in lines if said == word)


def counts(chaos: Chaos) -> dict[str, int]:
    states = Counter(run.status().state for run in chaos.store.list())
    launched = {"runs launched": len(chaos.launched)}
    gone = {"of them deleted by a fault": len(chaos.launched) - sum(states.values())}
    return launched | gone | {f"of them {state}": number for state, number in sorted(states.items())}


def verdicts(chaos: Chaos) -> list[tuple[str, str]]:
    """What should not be: each as its kind and a sentence."""
    begun = ledger(chaos, "begin")
    found = [("begun twice", f"{run_id} was begun {times} times") for run_id, times in begun.items() if times > 1]
    for run_id in chaos.launched:
        fault = verdict(chaos, run_id)
        found += [fault] if fault else []
    return found


def verdict(chaos: Chaos, run_id: str) -> tuple[str, str] | None:
    """What is wrong with the end of a run, given what was done to it; None when nothing is."""
    harm = chaos.harmed.get(run_id, set())
    kind = run_id.partition("-")[0]
    try:
        run = chaos.store.get(run_id)
        status, parent = run.status(), chain_of(run.config().encoder.name)
    except RunNotFoundError:
        return None if "deleted" in harm or kind == "cut" else ("lost", f"{run_id} has no folder")
    told = f"{run_id} is {status.state} after {sorted(harm) or 'nothing'} ({status.error or status.message})"
    if not status.is_finished:
        return ("in an untrue state", told)
    if status.state == "done":
        return None if ledger(chaos, "end")[run_id] else ("in an untrue state", told)
    if status.state in ("failed", "lost") and not status.error:
        return ("in an untrue state", f"{told}, without a cause")
    explained = (
        (status.state == "stopped" and "stopped" in harm)
        or (status.state in ("lost", "failed") and "killed" in harm)
        or (status.state == "failed" and CAUSES.get(kind, "\0") in (status.error or ""))
        or (status.state == "failed" and parent is not None and _left_no_model(chaos, parent))
        or (status.state == "lost" and kind == "cut" and "cut off" in (status.error or ""))
    )
    return None if explained else ("lost", told)


def _left_no_model(chaos: Chaos, run_id: str) -> bool:
    try:
        run = chaos.store.get(run_id)
    except RunNotFoundError:
        return True
    return run.status().state != "done"


if __name__ == "__main__":
    raise SystemExit(main())
