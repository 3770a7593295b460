"""Evaluation of an encoder on MTEB tasks (Muennighoff et al., 2023); needs the extra `bsc-lab[mteb]`."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from bsc_core.config import EncoderConfig
from bsc_core.encoders import load_encoder
from bsc_core.errors import InputError

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

BATCH_SIZE = 32
DEPRECATED_METHOD = "The `get_sentence_embedding_dimension` method"  # mteb 2 calls it in sentence-transformers 6


def run_mteb(encoder: EncoderConfig, task: str | AbsTask) -> dict[str, Any]:
    """Evaluate an encoder on an MTEB task.

    mteb downloads the data of a named task from the hub unless they are cached. Its cache of results is not used.

    Args:
        encoder: The encoder, such as the model of a run.
        task: A name such as `STSBenchmark`, or a custom task object.

    Returns:
        `model`, `task`, `type`, `main_metric` (its name) and `metrics`: split -> metric -> value, or for a task with
        several subsets split/subset -> metric -> value; None if a metric is undefined.

    Raises:
        InputError: mteb is not installed, does not know the task, or cannot load its data.
        ModelError: As `load_encoder`.
    """
    try:
        import mteb
    except ImportError:
        raise InputError(f"task {task}: mteb is not installed; install it with `pip install 'bsc-lab[mteb]'`") from None
    task = _task_by_name(task) if isinstance(task, str) else task
    _load_data(task)
    model = load_encoder(encoder)
    kwargs: Any = {"batch_size": BATCH_SIZE, "show_progress_bar": False}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", DEPRECATED_METHOD, FutureWarning)
        results = mteb.evaluate(
            model, task, cache=None, co2_tracker=False, encode_kwargs=kwargs, show_progress_bar=False
        ).task_results
    return {
        "model": encoder.name,
        "task": task.metadata.name,
        "type": task.metadata.type,
        "main_metric": task.metadata.main_score,
        "metrics": _metrics(results[0].scores),
    }


def _task_by_name(name: str) -> AbsTask:
    import mteb

    try:
        return mteb.get_task(name)
    except KeyError as error:
        hint = str(error).partition("Did you mean: ")[2].partition("?")[0]
        suggestion = f"did you mean {hint}?" if hint else "`mteb available-tasks` lists them"
        raise InputError(f"mteb has no task {name!r}; {suggestion}") from None


def _load_data(task: AbsTask) -> None:
    try:
        task.load_data()
    except (OSError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"mteb task {task.metadata.name}: its data cannot be loaded ({reason}); mteb downloads them from the "
            "Hugging Face hub, so connect this machine or copy them into its cache"
        ) from None


def _metrics(scores: Any) -> dict[str, dict[str, float | None]]:
    """Return the numeric scores by split and, if there are several, subset."""
    metrics = {}
    for split, subsets in scores.items():
        for subset in subsets:
            name = split if len(subsets) == 1 else f"{split}/{subset['hf_subset']}"
            numbers = {key: float(value) for key, value in subset.items() if type(value) in (int, float)}
            metrics[name] = {key: value if math.isfinite(value) else None for key, value in numbers.items()}
    return metrics
