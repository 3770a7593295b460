"""A run of several processes in a Ray cluster: `python -m bsc_core.ray.jobs.worker_ranks ARGUMENTS`.

Ray Train starts the processes on the nodes and connects them; each performs its rank. The run's folder has the same
path on all nodes.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

from bsc_core.errors import JobError
from bsc_core.ray.jobs.settings import Resources
from bsc_core.runs import Run

_TRAIN_FOLDER = ".ray-train"  # Ray Train's files, on the shared disk


def train_together(folder: Path, workers: int, each: Resources) -> int:
    """Perform the run in `folder` with `workers` processes of these resources. Returns the exit status."""
    from ray.train import RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer

    resources = {"CPU": each.cpus, "memory": float(each.memory)} | ({"GPU": each.gpus} if each.gpus else {})
    trainer = TorchTrainer(
        perform_rank,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(
            num_workers=workers,
            use_gpu=bool(each.gpus),
            resources_per_worker={name: value for name, value in resources.items() if value},
        ),
        run_config=RunConfig(name="ranks", storage_path=str(folder / _TRAIN_FOLDER)),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        sys.stderr.write(f"{error}\n")
    finally:
        shutil.rmtree(folder / _TRAIN_FOLDER, ignore_errors=True)
    code = Run(folder).status().exit_code
    return 1 if code is None else code


def perform_rank(settings: dict[str, Any]) -> None:
    """Perform one rank of a run on the node where Ray started it. Rank 0 writes into the run's folder.

    Raises:
        JobError: The rank failed, so that Ray ends the processes that wait for it.
    """
    from bsc_core.jobs.worker import main, run_pipeline
    from bsc_core.jobs.worker_ranks import follow, launched_rank

    run, rank = Run(Path(settings["folder"])), launched_rank()
    code = follow(run, run_pipeline) if rank else main(run.folder)
    if code and (rank or run.status().state != "stopped"):
        raise JobError(f"process {rank} ended with exit status {code}; see the log of run {run.id}")


if __name__ == "__main__":
    count, cpus, gpus, memory, path = sys.argv[1:]
    raise SystemExit(train_together(Path(path), int(count), Resources(float(cpus), float(gpus), int(memory))))
