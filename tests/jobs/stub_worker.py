"""Processes for the tests of jobs and the stress test: a worker with a stub experiment, a supervisor, a launcher.

python stub_worker.py perform BEHAVIOR RUN_FOLDER
python stub_worker.py supervise|keep BEHAVIOR SLOTS ROOT
python stub_worker.py launch|wait BEHAVIOR RUN_ID ROOT
python stub_worker.py reconcile BEHAVIOR STALE_SECONDS ROOT
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bsc_core.config import DataConfig, RunConfig
from bsc_core.errors import BscError
from bsc_core.jobs import launch, reconcile
from bsc_core.jobs.local.backend import LocalBackend
from bsc_core.jobs.local.processes import start_supervisor
from bsc_core.jobs.supervisor import supervise
from bsc_core.jobs.worker import perform
from bsc_core.runs import Run, RunStore

LEDGER = "ledger.txt"
RECONCILIATIONS = 20
STEPS = 25
STEP_SECONDS = 0.03
INTERVALS = {"steps": (0.25, 0.2)}  # of heartbeats and of the scheduler in the stress test, which has many processes
LONG_STEPS = 1_000_000  # of a run with "long" in its id


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def wait_for_stop(run: Run) -> dict[str, Any]:
    while not run.stop_requested():
        threading.Event().wait(0.01)
    return {"state": "stopped"}


def quick(run: Run) -> dict[str, Any]:
    run.append_metrics({"kind": "step", "step": 0, "pid": os.getpid()})
    return {"state": "done", "run": run.id}


def patient(run: Run) -> dict[str, Any]:
    say("waiting for a stop request")
    return wait_for_stop(run)


def modeled(run: Run) -> dict[str, Any]:
    """Leave a model after a stop request."""
    run.model_folder.mkdir()
    return patient(run)


def blind(run: Run) -> dict[str, Any]:
    """Ignore the stop flag, but not SIGTERM."""
    say("ignoring the flag")
    while True:
        threading.Event().wait(0.01)


def deaf(run: Run) -> dict[str, Any]:
    """Ignore the stop flag and SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("ignoring signals")
    return blind(run)


def chatty(run: Run) -> dict[str, Any]:
    for number in range(60_000):
        say(f"line {number} of very many that nobody reads while the run is active")
    return {"state": "done"}


def killed(run: Run) -> dict[str, Any]:
    say("step 3 of 9")
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def vanished(run: Run) -> dict[str, Any]:
    say("step 4 of 9")
    os._exit(3)


def environment(run: Run) -> dict[str, Any]:
    names = ("TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    loaded = [name for name in ("torch", "transformers") if name in sys.modules]
    return {"state": "done", "environment": {name: os.environ.get(name) for name in names}, "loaded": loaded}


def steps(run: Run) -> dict[str, Any]:
    """Take some steps that check the stop flag; fail with a full disk or memory if the run's id says so."""
    record(run, "start")
    before = last_step(run) - STEPS
    if before:
        with run.metrics_file.open("ab") as file:
            file.writelines(b'{"kind": "step", "step": %d}\n' % step for step in range(1, before + 1))
    for step in range(before + 1, before + STEPS + 1):
        if run.stop_requested():
            return {"state": "stopped"}
        time.sleep(STEP_SECONDS)
        run.append_metrics({"kind": "step", "step": step})
        run.update_status(step=step, steps=last_step(run))
        if "disk" in run.id and step == before + STEPS // 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        if "memory" in run.id and step == before + STEPS // 2:
            raise MemoryError
    run.model_folder.mkdir(exist_ok=True)
    record(run, "end")
    return {"state": "done"}


def last_step(run: Run) -> int:
    return STEPS + (LONG_STEPS if "long" in run.id else 0)


def record(run: Run, event: str) -> None:
    """Append an event to the ledger next to the runs folder."""
    with (run.folder.parent.parent / LEDGER).open("a") as ledger:
        ledger.write(f"{event} {run.id} {os.getpid()}\n")


BEHAVIORS = {
    behavior.__name__: behavior
    for behavior in (quick, patient, modeled, blind, deaf, chatty, killed, vanished, environment, steps)
}


def command(*words: str) -> list[str]:
    return [sys.executable, __file__, *words]


def start_supervising(store: RunStore, *, behavior: str, slots: int = 1) -> None:
    store.root.mkdir(parents=True, exist_ok=True)
    start_supervisor(store, command("supervise", behavior, str(slots), str(store.root)))


def main(role: str, behavior: str, *words: str) -> int:
    heartbeat, poll = INTERVALS.get(behavior, (0.05, 0.02))
    if role == "perform":
        return perform(Run(Path(words[0])), lambda config, run: BEHAVIORS[behavior](run), heartbeat_seconds=heartbeat)
    if role in ("supervise", "keep"):
        backends = {"local": LocalBackend(command("perform", behavior))}
        keep = role == "keep"
        supervise(RunStore(words[1]), slots=int(words[0]), backends=backends, poll_seconds=poll, keep=keep)
        return 0
    if role == "reconcile":
        store, start = RunStore(words[1]), partial(start_supervising, behavior=behavior)
        for _ in range(RECONCILIATIONS):
            with suppress(BscError):  # such as a locked queue; a page shows the message and tries again
                reconcile(store, stale_seconds=float(words[0]), start=start)
            time.sleep(0.05)
        return 0
    config = RunConfig(data=DataConfig(train="pairs.tsv"))
    launch(RunStore(words[1]), config, words[0], start=partial(start_supervising, behavior=behavior))
    if role == "wait":
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
