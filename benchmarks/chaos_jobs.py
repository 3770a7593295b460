"""The processes of `chaos.py`: a worker whose experiment is a stand-in, a supervisor of such workers, a launching tab.

python benchmarks/chaos_jobs.py perform RUN_FOLDER | supervise ROOT | launch ROOT RUN_ID
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bsc_core.config import DataConfig, EncoderConfig, RunConfig
from bsc_core.jobs import launch
from bsc_core.jobs.local import start_detached
from bsc_core.jobs.local_backend import LocalBackend
from bsc_core.jobs.supervisor import supervise
from bsc_core.jobs.worker import perform
from bsc_core.runs import Run, RunStore

STEPS = 25
STEP_SECONDS = 0.03
LEDGER = "ledger.txt"


def note(run: Run, word: str) -> None:
    with (run.folder.parent.parent / LEDGER).open("a") as ledger:
        ledger.write(f"{word} {run.id} {os.getpid()}\n")


def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
    """Some steps that look at the flag; a full disk or memory where the run's name says so."""
    note(run, "begin")
    for step in range(1, STEPS + 1):
        if run.stop_requested():
            return {"state": "stopped"}
        time.sleep(STEP_SECONDS)
        run.append_metrics({"kind": "step", "step": step})
        run.update_status(step=step, steps=STEPS)
        if "disk" in run.id and step == STEPS // 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        if "memory" in run.id and step == STEPS // 2:
            raise MemoryError
    run.model_folder.mkdir(exist_ok=True)
    note(run, "end")
    return {"state": "done"}


def start_supervisor(store: RunStore) -> None:
    child = start_detached(command("supervise", str(store.root)), store.root / "supervisor.log", {})
    threading.Thread(target=child.wait, daemon=True).start()


def command(*words: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), *words]


def config(encoder: str = "bundled") -> RunConfig:
    return RunConfig(data=DataConfig(train="pairs.tsv"), encoder=EncoderConfig(name=encoder))


def main(role: str, *words: str) -> int:
    if role == "perform":
        return perform(Run(Path(words[0])), experiment, heartbeat_seconds=0.2)
    store = RunStore(words[0])
    if role == "supervise":
        backends = {"local": LocalBackend(command("perform"))}
        supervise(store, backends=backends, poll_seconds=0.05)
    else:
        launch(store, config(), words[1], start=start_supervisor)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
