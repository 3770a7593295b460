"""Search of mined negatives in a background task: `python -m bsc_core.preparation.mining_task FOLDER`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bsc_core.background_task import run_task, write_progress
from bsc_core.config import DataConfig, EncoderConfig
from bsc_core.encoders import embed
from bsc_core.preparation.experiment import load_experiment
from bsc_core.preparation.mining import MiningSearch
from bsc_core.preparation.plan_task import StageProgress


def search_file(folder: Path) -> Path:
    """Return the path of the finished search, which `MiningSearch.load` reads."""
    return folder / "search.npz"


def search(folder: Path, request: Any) -> None:
    """Search the negatives of a request, `{"data": {...}, "encoder": {...}}`, and save the result in the folder."""
    config = DataConfig.model_validate(request["data"])
    assert config.negatives is not None
    write_progress(folder, 0, 3, "reading the data")
    data = load_experiment(config.model_copy(update={"negatives": None}), seed=0)
    encoder = EncoderConfig.model_validate(request["encoder"])
    vectors = embed(encoder, data.texts, progress=StageProgress(folder, 1, 3, "encoding the texts"))
    write_progress(folder, 2, 3, "searching the nearest documents")
    MiningSearch(data, vectors, config.negatives).save(search_file(folder))
    write_progress(folder, 3, 3, "done")


def main(arguments: Sequence[str]) -> int:
    """Perform the request in the folder given as the only argument; see `run_task`."""
    return run_task(search, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
