"""Cost measurement of a run: a few steps with its data, encoder, loss and trainer."""

# B rows of a batch, N rows, U distinct texts, D dimensions

import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from bsc_core.background_task import OnProgress
from bsc_core.batching import NEED_VECTORS, build_plan, plan_collisions, plan_warnings
from bsc_core.config import BatchingConfig, RunConfig
from bsc_core.encoders import TokenTable, encode, tokenize
from bsc_core.encoders.compiled import compile_encoder
from bsc_core.encoders.forward import autocast
from bsc_core.files import folder_bytes
from bsc_core.pipeline import guide_vectors, init_loss, load_model, load_training_data, validate
from bsc_core.preflight.report import Preflight
from bsc_core.runs import RunStore
from bsc_core.training.callbacks import OnStep
from bsc_core.training.checkpoint import save_checkpoint
from bsc_core.training.data import TrainingData
from bsc_core.training.loop.device import device_name, peak_memory_bytes, seed_everything, set_threads
from bsc_core.training.loop.trainer import StepReport, Trainer
from bsc_core.training.sampler import CustomSampler
from bsc_core.types import Ids

STAGES = 6
TEXTS_TIMED = 256
ROWS_PLANNED = 20_000
"""Maximum number of rows for timing a plan; for more rows, the time is extrapolated."""
TRUNCATED_SHARE, COLLISION_SHARE, REJECTED_SHARE = 0.05, 0.01, 0.01
"""Shares of texts, in-batch pairs and rows above which there is a warning."""
FREE_SHARE = 0.9
GIB = 2.0**30
SAVINGS = {
    "memory": "lower training.activation_memory or encoder.max_seq_length, or close other programs",
    "disk": "lower training.save_total_limit, or delete runs",
}


def measure(config: RunConfig, steps: int, store: RunStore, on_progress: OnProgress) -> Preflight:
    """Measure the cost of one run of a config, from loading the data to writing a checkpoint; see `preflight`."""
    training = config.training.model_copy(update={"seeds": ()})
    config = config.model_copy(update={"training": training})
    took: dict[str, float] = {}
    set_threads(training.threads)
    seed_everything(training.seed)
    with _timed(took, "start"):
        on_progress(0, STAGES, "reading the data")
        validate(config)
        encoder, chain_notes = store.available_encoder(config.encoder)
        notes = list(chain_notes)
        data = load_training_data(config)
        on_progress(1, STAGES, "loading the encoder")
        model = load_model(config.model_copy(update={"encoder": encoder}), store)
        loss = init_loss(config, model, say=notes.append)
        tokens = tokenize(model, data.splits.texts, encoder.max_seq_length)
        if training.compile:
            on_progress(1, STAGES, "compiling the encoder")
            compile_encoder(model, tokens)
    guide = guide_vectors(config, data, store)
    batches = _batches(config, data, tokens, steps)
    repeated = [rows for rows in batches for _ in range(training.gradient_accumulation_steps)]
    shape = (len(tokens), int(model.get_embedding_dimension() or 1))
    memory = np.zeros(shape, dtype=np.float32) if config.batching.refresh == "reuse" else None
    trainer = Trainer(
        model,
        loss,
        CustomSampler(data.train, tokens, lambda epoch: repeated, memory, guide),
        training.model_copy(update={"max_steps": steps + 1}),
        without_padding=config.encoder.unpadded,
    )
    on_progress(2, STAGES, "timing the encoder")
    with autocast(trainer.precision, model.device):
        took["encode"] = _time_encoding(model, tokens)
    on_progress(3, STAGES, "planning an epoch")
    steps_per_epoch, took["plan"] = _time_plan(config, data, shape)
    steps_per_epoch = math.ceil(steps_per_epoch / training.gradient_accumulation_steps)
    total = training.max_steps or training.epochs * steps_per_epoch
    epochs = math.ceil(total / steps_per_epoch)
    on_progress(4, STAGES, f"taking {steps} steps")
    reports: list[StepReport] = []

    def store_report(report: StepReport) -> None:
        reports.append(report)
        done = 400 + 100 * report.step // (steps + 1)
        on_progress(done, 100 * STAGES, f"step {report.step} of {steps + 1}")

    trainer.fit([OnStep(store_report)])
    took["step"] = statistics.median(report.seconds for report in reports[1:])  # the first step warms up
    on_progress(5, STAGES, "writing a checkpoint")
    last, device = reports[-1], trainer.accelerator.device
    store.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".preflight-", dir=store.root) as folder, _timed(took, "checkpoint"):
        checkpoint = folder_bytes(save_checkpoint(Path(folder), trainer, last))
    used = peak_memory_bytes(device)
    free, disk_free = _free_memory(device, used), shutil.disk_usage(store.root).free
    disk = _disk_bytes(config, data, model, checkpoint, epochs)
    space = {"memory": (used, free), "disk": (disk + checkpoint, disk_free)}  # a checkpoint before one is deleted
    return Preflight(
        rows=data.row_count,
        texts=len(data.splits.texts),
        tokens=int(tokens.lengths.sum()),
        steps=total,
        epochs=epochs,
        steps_timed=len(reports) - 1,
        step_seconds=took["step"],
        pairs_per_second=last.pairs / took["step"],
        seconds=_seconds(config, took, total, epochs),
        memory_bytes=used,
        memory_free_bytes=free,
        disk_bytes=disk,
        disk_free_bytes=disk_free,
        device=device_name(device),
        precision=trainer.precision,
        loss=last.loss,
        warnings=(*notes, *run_warnings(config, data, tokens.lengths, batches, space=space, store=store)),
    )


def run_warnings(
    config: RunConfig,
    data: TrainingData,
    lengths: NDArray[np.int64],
    batches: Sequence[Ids],
    *,
    space: Mapping[str, tuple[int, int]],
    store: RunStore,
) -> list[str]:
    """Return one sentence for each likely problem of a run; most runs have none.

    Args:
        config: The experiment.
        data: The training data.
        lengths: (U,) tokens of each text after truncation.
        batches: Rows of each batch.
        space: Bytes needed and bytes free, of memory and disk.
        store: The other runs.
    """
    sentences = [
        f"The run needs {needed / GIB:.1f} GiB of {kind} and {free / GIB:.1f} GiB are free: {SAVINGS[kind]}."
        for kind, (needed, free) in space.items()
        if needed > FREE_SHARE * free
    ]
    longest = config.encoder.max_seq_length
    truncated = float((lengths >= longest).mean())
    if truncated > TRUNCATED_SHARE:
        sentences.append(
            f"{truncated:.0%} of the texts reach {longest} tokens and may be truncated; see encoder.max_seq_length."
        )
    crossed, collisions = plan_collisions(data.train, batches)
    if crossed and collisions / crossed > COLLISION_SHARE:
        sentences.append(
            f"{collisions / crossed:.1%} of the in-batch pairs of random batches are collisions (false negatives): "
            "batching.no_duplicates avoids them."
        )
    sentences += [
        f"{report.source}: {len(report.rejected):,} of {report.rows_read:,} rows are rejected; see the Data page."
        for report in data.splits.reports
        if len(report.rejected) > REJECTED_SHARE * report.rows_read
    ]
    if any(run.status().state in ("running", "stopping") for run in store.list()):
        sentences.append("Another run was running at the same time, so this run alone is faster than estimated.")
    batching = BatchingConfig(**config.batching.model_dump(exclude_defaults=True))  # no notes on defaults
    return sentences + [f"{note[0].upper()}{note[1:]}." for note in plan_warnings(batching, data.train)]


def _batches(config: RunConfig, data: TrainingData, tokens: TokenTable, steps: int) -> list[Ids]:
    """Return a batch of the longest rows and `steps` random ones, (B,) each."""
    size, train = config.training.batch_size, data.train
    lengths = sum(tokens.lengths[column] for column in train.text_columns)
    longest = np.argsort(-np.asarray(lengths), kind="stable")[:size].astype(np.int32)
    rng = np.random.default_rng(config.training.seed)
    return [longest, *(rng.permutation(len(train))[:size].astype(np.int32) for _ in range(steps))]


def _time_encoding(model: SentenceTransformer, tokens: TokenTable) -> float:
    """Return the seconds to encode every distinct text, from a random sample of them."""
    sample = np.random.default_rng(0).choice(len(tokens), min(TEXTS_TIMED, len(tokens)), replace=False)
    encode(model, tokens, sample[:8])  # warms up casts and threads
    started = time.perf_counter()
    encode(model, tokens, sample)
    share = tokens.lengths.sum() / max(1, tokens.lengths[sample].sum())
    return float((time.perf_counter() - started) * share)


def _time_plan(config: RunConfig, data: TrainingData, shape: tuple[int, int]) -> tuple[int, float]:
    """Return the batches of an epoch, and the seconds to plan them from random vectors of this shape, (U, D)."""
    batching = config.batching.model_copy(update={"single_source": False})  # the first rows may be of one file
    train = data.train
    rows = train.take(np.arange(min(len(train), ROWS_PLANNED), dtype=np.int32))
    needs_vectors = batching.strategy in NEED_VECTORS
    vectors = np.random.default_rng(0).standard_normal(shape, dtype=np.float32) if needs_vectors else None
    started = time.perf_counter()
    plan = build_plan(batching, rows, vectors, seed=config.training.seed, epoch=0)
    batches = plan.batches(config.training.batch_size)
    factor = data.row_count / len(rows)
    seconds = (time.perf_counter() - started) * (factor**2 if needs_vectors else factor)
    return max(1, round(len(batches) * factor)), seconds


def _seconds(config: RunConfig, took: Mapping[str, float], total: int, epochs: int) -> dict[str, float]:
    """Return the expected time of each part of the run, from the measured times of its actions."""
    batching, each_epoch = config.batching, config.evaluation.each_epoch
    encodings = 1 + (epochs if each_epoch else 1)
    if batching.strategy in NEED_VECTORS and batching.refresh == "encode" and not each_epoch:
        encodings += (epochs - 1) // batching.refresh_epochs  # only to build a plan
    saved = epochs + total // (config.training.save_steps or total + 1)
    return {
        "start": took["start"],
        "encode": took["encode"] * encodings,
        "plan": took["plan"] * math.ceil(epochs / batching.refresh_epochs),
        "train": took["step"] * total,
        "checkpoint": took["checkpoint"] * saved,
    }


def _disk_bytes(config: RunConfig, data: TrainingData, model: SentenceTransformer, checkpoint: int, epochs: int) -> int:
    """Return the size of checkpoints, best model, vectors (before, after, per epoch) and plans."""
    weights = sum(parameter.nbytes for parameter in model.parameters())
    texts, evaluation = len(data.splits.texts), config.evaluation
    per_epoch = 2 * epochs * min(texts, evaluation.epoch_texts) if evaluation.each_epoch else 0
    vectors = (2 * 4 * texts + per_epoch) * int(model.get_embedding_dimension() or 1)
    return checkpoint * min(config.training.save_total_limit, epochs) + weights + vectors + 8 * data.row_count * epochs


def _free_memory(device: torch.device, used: int) -> int:
    """Return the memory available to the run, including the memory that this process uses."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + used
    return int(psutil.virtual_memory().available + psutil.Process().memory_info().rss)


@contextmanager
def _timed(took: dict[str, float], part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    took[part] = time.perf_counter() - started
