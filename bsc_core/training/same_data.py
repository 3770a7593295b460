"""That a run which goes on reads what it began with: its own copy of the marks, and a digest of its rows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from bsc_core.config import DataConfig, RunConfig
from bsc_core.data import ExperimentData, PairDataset
from bsc_core.data.places import check_path
from bsc_core.errors import DataError, PathError
from bsc_core.files import write_whole

if TYPE_CHECKING:
    from bsc_core.runs import Run
    from bsc_core.training.checkpoint import Checkpoint
    from bsc_core.training.ranks import Ranks
    from bsc_core.training.streamed import PairStream

MARKS = "marks"
"""The folder within a run's for the false negatives as they were marked when it began."""


def with_own_marks(config: RunConfig, run: Run, ranks: Ranks) -> RunConfig:
    """The config with the run's own copy of the marked false negatives, made now where there is none yet.

    So what is marked later concerns later runs alone. A file that may not be read, or none, is left to who reads it.
    """
    if config.data.false_negatives is None:
        return config
    kept = ranks.share(ranks.is_main and _is_kept(config.data.false_negatives, _own_marks(config.data, run)))
    return config.model_copy(update={"data": own_data(config.data, run)}) if kept else config


def own_data(config: DataConfig, run: Run) -> DataConfig:
    """What a run with these data reads: the marks from its own copy, where it has one."""
    if config.false_negatives is None or not _own_marks(config, run).is_file():
        return config
    return config.model_copy(update={"false_negatives": str(_own_marks(config, run))})


def _own_marks(config: DataConfig, run: Run) -> Path:
    assert config.false_negatives is not None
    return run.folder / MARKS / Path(config.false_negatives).name


def _is_kept(source: str, own: Path) -> bool:
    """Whether a run has its own copy of the marks and may read it, as BSC_ROOTS allows."""
    try:
        check_path(own.parents[1])
        if not own.is_file() and check_path(source).is_file():
            write_whole(own, check_path(source).read_bytes())
    except PathError:
        return False
    return own.is_file()


def digest_of(data: ExperimentData, train: PairDataset, stream: PairStream | None = None) -> str:
    """SHA-256 (hex) of all rows of a run as it trains on and measures them: texts, labels, classes, negatives, marks.

    train: the rows that the loss trains on. stream: of the pairs that are streamed, of which `train` is a sample; their
    shards are told by their sizes.
    """
    digest = hashlib.sha256(train.digest.encode())
    for name, part in {**data.parts, "corpus": data.corpus}.items():
        if part is not None and name != "train":
            digest.update(f"{name} {part.digest}".encode())
    if stream is not None:
        digest.update(stream.told.encode())
    return digest.hexdigest()


def check_same_data(config: RunConfig, checkpoint: Checkpoint | None, digest: str) -> None:
    """Refuse to go on from a checkpoint with other rows. Raises DataError; a checkpoint that tells none may be used."""
    if checkpoint is None or not checkpoint.data or checkpoint.data == digest:
        return
    made = config.data.examples is not None or config.data.negatives is not None
    where = ", on the kind of device that it began on" if made else ""  # whose vectors the rows were made from
    raise DataError(
        f"{config.data.train}: the rows that this run reads are not those that it trained on until step "
        f"{checkpoint.start.step:,}; bring its data files back as they were and resume it again{where}, or launch it "
        "anew"
    )
