"""Tasks of MTEB (Muennighoff et al., 2023) on an encoder or a run's model; an optional extra, `bsc-lab[mteb]`."""

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
OLD_NAME = "The `get_sentence_embedding_dimension` method"  # by which mteb 2 still calls sentence-transformers 6
NOT_SCORES = ("hf_subset", "languages")


def run_mteb(encoder: EncoderConfig, task: str | AbsTask) -> dict[str, Any]:
    """Measure an encoder on a task, given by its name such as `STSBenchmark` or as an object of one's own.

    encoder: by name or folder, such as a run's model. mteb fetches the data of a named task from the hub unless the
    machine has them; its cache of results is neither read nor written. Returns model, task, type, main_metric (its
    name) and metrics: split -> metric -> value, of a task with several subsets split/subset -> metric -> value; None
    where one is not defined. Raises InputError without mteb, for a name it does not know, and for data that cannot be
    had; ModelError as `load_encoder` does.
    """
    try:
        import mteb
    except ImportError:
        raise InputError(f"task {task}: mteb is not installed; install it with `pip install bsc-lab[mteb]`") from None
    found = _named(task) if isinstance(task, str) else task
    _fetch(found)
    model = load_encoder(encoder)
    kwargs: Any = {"batch_size": BATCH_SIZE, "show_progress_bar": False}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", OLD_NAME, FutureWarning)
        results = mteb.evaluate(
            model, found, cache=None, co2_tracker=False, encode_kwargs=kwargs, show_progress_bar=False
        ).task_results
    return {
        "model": encoder.name,
        "task": found.metadata.name,
        "type": found.metadata.type,
        "main_metric": found.metadata.main_score,
        "metrics": _metrics(results[0].scores),
    }


def _named(name: str) -> AbsTask:
    import mteb

    try:
        return mteb.get_task(name)
    except KeyError as fault:
        hint = str(fault).partition("Did you mean: ")[2].partition("?")[0]
        way = f"did you mean {hint}?" if hint else "`mteb available-tasks` lists them"
        raise InputError(f"mteb has no task {name!r}; {way}") from None


def _fetch(task: AbsTask) -> None:
    try:
        task.load_data()
    except (OSError, RuntimeError, ValueError) as fault:
        reason = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise InputError(
            f"mteb task {task.metadata.name}: its data cannot be had ({reason}); mteb fetches them from the "
            "Hugging Face hub, so connect this machine or bring them into its cache"
        ) from None


def _metrics(scores: Any) -> dict[str, dict[str, float | None]]:
    """Scores by split, a list of subsets each, as numbers alone."""
    found = {}
    for split, subsets in scores.items():
        for one in subsets:
            name = split if len(subsets) == 1 else f"{split}/{one['hf_subset']}"
            found[name] = {key: _number(value) for key, value in one.items() if _is_score(key, value)}
    return found


def _is_score(name: str, value: Any) -> bool:
    return name not in NOT_SCORES and isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
