"""Experiment trackers that a run reports to: trackio, MLflow, TensorBoard and W&B, each by its own package.

How each is spoken to is accelerate's business. Their own environment variables hold (`MLFLOW_TRACKING_URI`,
`WANDB_MODE`); what they keep in files goes into the run's folder.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bsc_core.errors import ConfigError

PROJECT = "bsc-lab"
PACKAGES = {"trackio": "trackio", "mlflow": "mlflow", "tensorboard": "tensorboard", "wandb": "wandb"}


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker whose package is not installed. Raises ConfigError."""
    for name in names:
        if find_spec(PACKAGES[name]) is None:
            raise ConfigError(
                f"training.report_to names {name}, which is not installed; run pip install {PACKAGES[name]}, "
                "or leave it out"
            )


class Trackers:
    """The trackers of one run. One that fails is named in the log and told no more; the run goes on.

    names: of `training.report_to`. folder: for their files. run_id: what the run is called there. settings: flat, told
    once. Raises ConfigError for one that cannot be started.
    """

    def __init__(self, names: Sequence[str], folder: Path, *, run_id: str, settings: Mapping[str, Any]) -> None:
        check_trackers(names)
        self._open: dict[str, Any] = {}
        for name in names:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._open[name] = _started(name, folder, run_id, settings)
            except Exception as error:  # theirs, of any kind
                self.finish()
                raise ConfigError(
                    f"training.report_to: {name} could not be started ({_first_line(error)}); correct its settings, "
                    "or leave it out"
                ) from error

    def log(self, values: Mapping[str, float | None], step: int) -> None:
        """Tell numbers after a step; None is left out."""
        numbers = {name: value for name, value in values.items() if value is not None}
        for name, tracker in list(self._open.items()):
            try:
                tracker.log(numbers, step=step)
            except Exception as error:  # theirs, of any kind
                del self._open[name]
                _say(f"Note: {name} takes no more ({_first_line(error)}); the run goes on without it")

    def finish(self) -> None:
        """Let them write what they still hold."""
        while self._open:
            name, tracker = self._open.popitem()
            try:
                tracker.finish()
            except Exception as error:  # theirs, of any kind
                _say(f"Note: {name} could not be closed ({_first_line(error)})")


def _started(name: str, folder: Path, run_id: str, settings: Mapping[str, Any]) -> Any:
    from accelerate import tracking

    classes = {
        "trackio": lambda: tracking.TrackioTracker(PROJECT, name=run_id),
        "mlflow": lambda: tracking.MLflowTracker(PROJECT, run_name=run_id),
        "tensorboard": lambda: tracking.TensorBoardTracker(run_id, str(folder)),
        "wandb": lambda: tracking.WandBTracker(PROJECT, name=run_id, dir=str(folder)),
    }
    tracker = classes[name]()
    tracker.start()
    told = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in settings.items()}
    if name != "tensorboard":  # whose form for settings is a run of its own
        tracker.store_init_configuration(told)
    return tracker


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201  (the run's log)
