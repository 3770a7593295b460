"""Experiment trackers that a run reports to: trackio, MLflow, TensorBoard and W&B, through accelerate.

Their environment variables apply (`MLFLOW_TRACKING_URI`, `WANDB_MODE`); their files are written to the run's folder.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bsc_core.errors import ConfigError

PROJECT = "bsc-lab"


def check_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError for a tracker whose package, of the same name, is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(
                f"training.report_to names {name}, which is not installed; run pip install {name}, or leave it out"
            )


class Trackers:
    """The trackers of one run; one that fails is reported in the log and no longer used.

    Args:
        names: Those of `training.report_to`.
        folder: For their files.
        run_id: Name of the run in the trackers.
        settings: Flat settings of the run, reported once.

    Raises:
        ConfigError: A tracker cannot be started.
    """

    def __init__(self, names: Sequence[str], folder: Path, *, run_id: str, settings: Mapping[str, Any]) -> None:
        check_trackers(names)
        self._open: dict[str, Any] = {}
        for name in names:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._open[name] = _start(name, folder, run_id, settings)
            except Exception as error:  # trackers raise exceptions of any kind
                self.finish()
                raise ConfigError(
                    f"training.report_to: {name} could not be started ({_first_line(error)}); correct its settings, "
                    "or leave it out"
                ) from error

    def log(self, values: Mapping[str, float | None], step: int) -> None:
        """Report numbers after a step; None is left out."""
        numbers = {name: value for name, value in values.items() if value is not None}
        for name, tracker in list(self._open.items()):
            try:
                tracker.log(numbers, step=step)
            except Exception as error:
                del self._open[name]
                _say(f"Note: reporting to {name} failed ({_first_line(error)}); the run continues without it")

    def finish(self) -> None:
        """Let the trackers write what they have buffered."""
        while self._open:
            name, tracker = self._open.popitem()
            try:
                tracker.finish()
            except Exception as error:
                _say(f"Note: {name} could not be closed ({_first_line(error)})")


def _start(name: str, folder: Path, run_id: str, settings: Mapping[str, Any]) -> Any:
    from accelerate import tracking

    classes = {
        "trackio": lambda: tracking.TrackioTracker(PROJECT, name=run_id),
        "mlflow": lambda: tracking.MLflowTracker(PROJECT, run_name=run_id),
        "tensorboard": lambda: tracking.TensorBoardTracker(run_id, str(folder)),
        "wandb": lambda: tracking.WandBTracker(PROJECT, name=run_id, dir=str(folder)),
    }
    tracker = classes[name]()
    tracker.start()
    reported = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in settings.items()}
    if name != "tensorboard":  # it would store settings as a separate run
        tracker.store_init_configuration(reported)
    return tracker


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201  (the run's log)
