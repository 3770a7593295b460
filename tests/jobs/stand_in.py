"""Real processes for the tests of jobs: a worker whose experiment behaves as it is told, a supervisor, a launcher.

python stand_in.py perform BEHAVIOUR RUN_FOLDER | supervise|keep BEHAVIOUR SLOTS ROOT | launch BEHAVIOUR RUN_ID ROOT
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from bsc_core.config import DataConfig, RunConfig
from bsc_core.jobs import launch
from bsc_core.jobs.local import start_detached
from bsc_core.jobs.local_backend import LocalBackend
from bsc_core.jobs.supervisor import supervise
from bsc_core.jobs.worker import perform
from bsc_core.runs import Run, RunStore


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def until_asked(run: Run) -> dict[str, Any]:
    while not run.stop_requested():
        threading.Event().wait(0.01)
    return {"state": "stopped"}


def quick(run: Run) -> dict[str, Any]:
    run.append_metrics({"kind": "step", "pid": os.getpid()})
    return {"state": "done", "run": run.id}


def patient(run: Run) -> dict[str, Any]:
    say("waiting to be asked")
    return until_asked(run)


def modelled(run: Run) -> dict[str, Any]:
    """Leaves a model, whenever it is asked to stop."""
    run.model_folder.mkdir()
    return patient(run)


def blind(run: Run) -> dict[str, Any]:
    """Does not look at the flag; SIGTERM breaks it off."""
    say("not looking")
    while True:
        threading.Event().wait(0.01)


def deaf(run: Run) -> dict[str, Any]:
    """Neither looks at the flag nor heeds signals."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("not listening")
    return blind(run)


def chatty(run: Run) -> dict[str, Any]:
    for number in range(60_000):
        say(f"line {number} of very many that nobody reads while the run goes on")
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


BEHAVIOURS = {
    behaviour.__name__: behaviour
    for behaviour in (quick, patient, modelled, blind, deaf, chatty, killed, vanished, environment)
}


def command(*words: str) -> list[str]:
    return [sys.executable, __file__, *words]


def start_supervising(store: RunStore, *, behaviour: str, slots: int = 1) -> None:
    store.root.mkdir(parents=True, exist_ok=True)
    child = start_detached(command("supervise", behaviour, str(slots), str(store.root)), store.root / "log.txt", {})
    threading.Thread(target=child.wait, daemon=True).start()


def main(role: str, behaviour: str, *words: str) -> int:
    if role == "perform":
        return perform(Run(Path(words[0])), lambda config, run: BEHAVIOURS[behaviour](run), heartbeat_seconds=0.05)
    if role in ("supervise", "keep"):
        backends = {"local": LocalBackend(command("perform", behaviour))}
        keep = role == "keep"
        supervise(RunStore(words[1]), slots=int(words[0]), backends=backends, poll_seconds=0.02, keep=keep)
        return 0
    config = RunConfig(data=DataConfig(train="pairs.tsv"))
    launch(RunStore(words[1]), config, words[0], start=partial(start_supervising, behaviour=behaviour))
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
