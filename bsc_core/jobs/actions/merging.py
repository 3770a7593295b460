"""Merged models of trained runs: a run with its start, its last checkpoints, or runs that differ only in their seed.

As a background task: `python -m bsc_core.jobs.actions.merging FOLDER`. The request `{"run": folder}` writes the report
of `merge_curve` to result.json; `{"run": folder, "alpha": number}` saves the merged model in the run folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bsc_core.background_task import OnProgress, no_progress, run_task, write_progress, write_result
from bsc_core.config import EncoderConfig, RunConfig, flatten
from bsc_core.encoders import encode, load_encoder, model_card, save_model, tokenize
from bsc_core.encoders.forward import autocast
from bsc_core.encoders.merging import Weights, average_weights, copy_weights, interpolate, set_weights
from bsc_core.errors import ConfigError, InputError
from bsc_core.evaluation import Evaluator
from bsc_core.evaluation.general import GeneralSuite
from bsc_core.files import folder_bytes
from bsc_core.run_results import run_data
from bsc_core.runs import Run
from bsc_core.runs.documents import GENERAL_SCORE, RESULT
from bsc_core.training.checkpoint import checkpoints
from bsc_core.users.quotas import admit_run_files, check_run_disk

if TYPE_CHECKING:
    from bsc_core.data.dataset import TextTable
    from bsc_core.types import Vectors

ALPHAS = tuple(step / 10 for step in range(11))
TOLERANCE = 0.005
"""Loss of the general score that the suggested alpha may have."""
ROUNDING = 1e-9
FREE = ("name", "training.seed", "training.seeds", "training.threads", "training.save_total_limit")
"""Settings that may differ between averaged runs."""

Point = dict[str, Any]


class Candidates:
    """Models of one architecture, evaluated as a run evaluates its model: on dev, test and the general suite.

    Args:
        run: The run whose encoder, data and metric are used.

    Raises:
        InputError: The encoder or the data cannot be read.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.config = run, run.config()
        self.store = run.store
        self.data = run_data(run)
        self.evaluator = Evaluator(self.data, self.config.evaluation)
        self.model = load_encoder(self._encoder(run.model_folder))
        self.tokens = tokenize(self.model, self.data.texts, self.config.encoder.max_seq_length)
        self.precision = (run.read_json(RESULT) or {}).get("precision", "fp32")
        try:
            suite = GeneralSuite.load(used=self.data.texts.texts, separate_sides=self.config.encoder.has_prompts)
        except ConfigError:  # the data contain its texts
            suite = None
        self.suite = suite
        self.metric, _ = self.evaluator.main_metric(run.evaluation("before"))

    @cached_property
    def start(self) -> Weights:
        """The weights before training."""
        return copy_weights(load_encoder(self.store.resolve_encoder(self.config.encoder)))

    @cached_property
    def trained(self) -> Weights:
        """The weights of the run's model."""
        return copy_weights(self.model)

    def weights_of(self, folder: Path) -> Weights:
        """Return the weights of a saved model."""
        return copy_weights(load_encoder(self._encoder(folder)))

    def evaluate(self, weights: Weights) -> Point:
        """Return the metrics of the model with these weights: `metrics` by split, dev, test and general score."""
        self.use(weights)
        vectors = np.zeros((len(self.tokens), self.model.get_embedding_dimension() or 0), dtype=np.float32)
        texts = self.evaluator.text_ids
        with autocast(self.precision, self.model.device):
            vectors[texts] = encode(self.model, self.tokens, texts)
            general = self._general_score()
        metrics = self.evaluator.evaluate(vectors)
        scores = {split: values.get(self.metric) for split, values in metrics.items()}
        return {**scores, GENERAL_SCORE: general, "metrics": metrics}

    def general_score(self, weights: Weights) -> float | None:
        """Return the general score of the model with these weights; None where the data contain its texts."""
        self.use(weights)
        with autocast(self.precision, self.model.device):
            return self._general_score()

    def _general_score(self) -> float | None:
        return None if self.suite is None else self.suite.evaluate(self._encode_table)[GENERAL_SCORE]

    def save(self, weights: Weights, folder: Path, title: str, about: Mapping[str, object], point: Point) -> None:
        """Save the model with these weights as a sentence-transformers folder.

        Raises:
            InputError: The run was deleted, and its folder is not created again, or the disk quota of its owner is
                used up.
        """
        if not self.run.exists:
            raise InputError(f"run {self.run.id} was deleted; restore it, then save the model again")
        self.use(weights)
        card = model_card(
            title,
            base=self.config.encoder.name,
            settings=about,
            before=self.run.evaluation("before"),
            after=point["metrics"],
        )
        with admit_run_files(self.run, folder_bytes(self.run.model_folder)):
            save_model(self.model, folder, card)

    def use(self, weights: Weights) -> None:
        """Set the weights of the model; those of the run are kept in `trained`."""
        _ = self.trained
        set_weights(self.model, weights)

    def _encoder(self, folder: Path) -> EncoderConfig:
        return self.config.encoder.model_copy(update={"name": str(folder)})

    def _encode_table(self, texts: TextTable) -> Vectors:
        return encode(self.model, tokenize(self.model, texts, self.config.encoder.max_seq_length))


def merge_curve(
    runs: Sequence[Run],
    alphas: Sequence[float] = ALPHAS,
    *,
    last: int | None = None,
    alpha: float | None = None,
    tolerance: float = TOLERANCE,
    output: Path | None = None,
    on_progress: OnProgress = no_progress,
) -> dict[str, Any]:
    """Evaluate (1 - alpha) * start + alpha * trained for each alpha (WiSE-FT, Wortsman et al. 2021).

    alpha = 0 is the start, alpha = 1 the model of the run, or the average of several models (model soup). Without
    `alpha`, the value halfway between the suggested one of `alphas` and the next is also evaluated.

    Args:
        runs: A run with a model, or several that differ only in their seed and are averaged.
        alphas: Values from 0 to 1.
        last: Number of the newest checkpoints of one run to average.
        alpha: The one of the alphas to save; None: the suggested one, see `suggest`.
        tolerance: Loss of the general score that the suggested alpha may have.
        output: Folder in which the merged model is saved; None: nothing is saved.
        on_progress: Called with the progress.

    Returns:
        run (the first), models, metric, `points` with alpha, `dev`, `test` (if the run has one) and `general_score`
        (None where the data contain the texts of the general suite), `suggested` alpha, and `merge_with_start` of the
        run.

    Raises:
        ConfigError: The run started from re-initialized layers.
        InputError: As of `average_models`.
    """
    check_mergeable(runs[0].config())
    on_progress(0, len(alphas) + 2, "loading the models")
    folders = _models(runs, last)
    candidates = Candidates(runs[0])
    averaged = len(folders) > 1 or last is not None
    shares = [1 / len(folders)] * len(folders)
    trained = average_weights(map(candidates.weights_of, folders.values()), shares) if averaged else candidates.trained

    def point(value: float) -> Point:
        on_progress(len(points) + 1, len(alphas) + 2, f"evaluating alpha = {value:g}")
        return {"alpha": value, **candidates.evaluate(interpolate(candidates.start, trained, value))}

    points: list[Point] = []
    for value in sorted(alphas):
        points.append(point(value))
    suggested = suggest(points, tolerance)
    above = [value for value in alphas if value > suggested["alpha"]]
    if alpha is None and above:
        points.append(point(round((suggested["alpha"] + min(above)) / 2, 4)))
        points.sort(key=lambda one: one["alpha"])
        suggested = suggest(points, tolerance)
    chosen = suggested if alpha is None else next(one for one in points if one["alpha"] == alpha)
    if output is not None:
        merged = interpolate(candidates.start, trained, chosen["alpha"])
        about = {"run": ", ".join(folders), "merged with": candidates.config.encoder.name, "alpha": chosen["alpha"]}
        candidates.save(merged, output, f"bsc-lab {runs[0].id} merged with its start", about, chosen)
    return {
        "run": runs[0].id,
        "models": list(folders),
        "metric": candidates.metric,
        "points": [{name: value for name, value in point.items() if name != "metrics"} for point in points],
        "suggested": suggested["alpha"],
        "tolerance": tolerance,
        "merge_with_start": candidates.config.training.merge_with_start,
        "model": None if output is None else str(output),
    }


def suggest(points: Sequence[Point], tolerance: float) -> Point:
    """Return the point with the best dev metric whose general score is at most `tolerance` below the lowest alpha's.

    Of equal points, the one closest to the start. Where there is no general score, every point may be chosen.
    """
    start = points[0][GENERAL_SCORE]
    most = tolerance + ROUNDING
    allowed = [point for point in points if start is None or start - point[GENERAL_SCORE] <= most]
    return max(allowed, key=lambda point: (point["dev"], -point["alpha"]))


def average_models(
    runs: Sequence[Run], *, last: int | None = None, output: Path | None = None, on_progress: OnProgress = no_progress
) -> dict[str, Any]:
    """Average the models of runs that differ only in their seed, or the last checkpoints of one run.

    Model soup: Wortsman et al. 2022, arXiv 2203.05482.

    Args:
        runs: Runs with models; one run with `last`.
        last: Number of the newest checkpoints to average.
        output: Folder in which the average is saved; None: nothing is saved.
        on_progress: Called with the progress.

    Returns:
        metric, `points` of each model and of the average, as in `merge_curve` with `model` instead of alpha.

    Raises:
        InputError: The runs differ in more than their seed, there are too few checkpoints, a run has no model, or data
            or encoder cannot be read.
    """
    folders = _models(runs, last)
    on_progress(0, len(folders) + 2, "loading the models")
    candidates, points = Candidates(runs[0]), []

    def evaluated() -> Iterator[Weights]:
        for number, (name, folder) in enumerate(folders.items(), start=1):
            on_progress(number, len(folders) + 2, f"evaluating {name}")
            weights = candidates.weights_of(folder)
            points.append({"model": name, **candidates.evaluate(weights)})
            yield weights

    average = average_weights(evaluated(), [1 / len(folders)] * len(folders))
    on_progress(len(folders) + 1, len(folders) + 2, "evaluating the average")
    points.append({"model": "average", **candidates.evaluate(average)})
    if output is not None:
        about = {"averaged models": ", ".join(folders)}
        candidates.save(average, output, f"bsc-lab average of {len(folders)} models", about, points[-1])
    return {
        "metric": candidates.metric,
        "points": [{name: value for name, value in point.items() if name != "metrics"} for point in points],
        "model": None if output is None else str(output),
    }


def check_mergeable(config: RunConfig) -> None:
    """Raise ConfigError if the start of a run has random layers."""
    if config.encoder.reinit_layers:
        raise ConfigError(
            f"encoder.reinit_layers of this run is {config.encoder.reinit_layers}, so its start has random layers; "
            "merge a run without re-initialized layers"
        )


def merged_folder(run: Run, alpha: float) -> Path:
    """Return the folder in the run folder in which the merged model of an alpha is saved."""
    return run.merged_folder / f"alpha-{alpha:g}"


def _models(runs: Sequence[Run], last: int | None) -> dict[str, Path]:
    """Return the model folders to average, by name."""
    if last is not None:
        folders = checkpoints(runs[0].checkpoints_folder)[-last:]
        if len(folders) < last:
            raise InputError(
                f"run {runs[0].id} has {len(folders)} checkpoints, and {last} are to be averaged; average fewer, or "
                "train with a higher training.save_total_limit"
            )
        return {folder.name: folder / "model" for folder in folders}
    first = _settings(runs[0])
    for run in runs[1:]:
        other = _settings(run)
        names = [name for name in {**first, **other} if first.get(name) != other.get(name)]
        if names:
            raise InputError(
                f"runs {runs[0].id} and {run.id} differ in {', '.join(names)}; average runs that differ only in their "
                "seed"
            )
    return {run.id: run.model_folder for run in runs}


def _settings(run: Run) -> dict[str, Any]:
    return {name: value for name, value in flatten(run.config()).items() if name not in FREE}


def perform(folder: Path, request: Any) -> None:
    """Compute the curve of a run, or save the merged model of one alpha."""
    write_progress(folder, 0, 1, "loading the libraries")
    run, on_progress = Run(Path(request["run"])), partial(write_progress, folder)
    alpha = request.get("alpha")
    if alpha is None:
        report = merge_curve([run], on_progress=on_progress)
    else:
        check_run_disk(run, folder_bytes(run.model_folder))
        output = merged_folder(run, alpha)
        report = merge_curve([run], (alpha,), alpha=alpha, output=output, on_progress=on_progress)
    write_result(folder, report)


if __name__ == "__main__":
    sys.exit(run_task(perform, sys.argv[1:]))
