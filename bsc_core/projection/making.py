"""A map is made once, by a child process where it takes long, and kept on disk; progress.json says how far it is."""

# N texts drawn

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.errors import InputError
from bsc_core.projection.layout import Floats, lay_out
from bsc_core.projection.neighbours import kept_neighbours, unit_vectors

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class VectorFile:
    """Vectors on disk: `path` (.npy), one row for each text of the table or, with `texts` (.npy of ids, ascending), one
    for each of these."""

    path: Path
    texts: Path | None = None

    def of(self, ids: Rows) -> Floats:
        """The vectors of these texts at length 1: (N, D). Raises InputError for a text that the file lacks."""
        array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        if self.texts is None:
            return unit_vectors(array[ids])
        known = np.load(self.texts, allow_pickle=False)
        places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        if not np.array_equal(known[places], ids):
            raise InputError(f"{self.path}: it does not hold every text of the map; draw the texts of {self.texts}")
        return unit_vectors(array[places])


def make_map(folder: Path, files: Sequence[VectorFile], *, rows: Rows, method: str = "umap", seed: int = 0) -> Path:
    """Lay out the texts `rows` (N,) as each file sees them, all in one frame; the path of `folder`/map.npz.

    Made once, then kept. The archive holds rows (N,), one (N, 2) array for each file (`points0`, `points1` ...) and
    their kept shares (`trust`). progress.json in the folder: {"done", "of", "doing", "pid", "written", "error"}.
    """
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    finished = folder / "map.npz"
    with FileLock(folder / "map.lock"):
        if finished.is_file():
            return finished
        arrays = [file.of(rows) for file in files]
        steps = len(arrays) + 1

        def tell(number: int, share: float) -> None:
            what = f"laying out {len(rows):,} texts, map {number + 1} of {len(arrays)}"
            say(folder, number + share, steps, what)

        maps = lay_out(arrays, method, seed=seed, tell=tell)
        say(folder, len(arrays), steps, "counting how many neighbours the map keeps")
        trust = [kept_neighbours(array, points) for array, points in zip(arrays, maps, strict=True)]
        content: dict[str, npt.NDArray[Any]] = {f"points{number}": points for number, points in enumerate(maps)}
        content |= {"rows": rows, "trust": np.array([np.nan if share is None else share for share in trust])}
        unfinished = finished.with_suffix(f".{os.getpid()}.npz")
        np.savez(unfinished, **content)  # type: ignore[arg-type]  # the stub reads every keyword as allow_pickle
        unfinished.replace(finished)
    return finished


def say(folder: Path, done: float, of: int, doing: str, error: str | None = None) -> None:
    """Write how far the work of this folder is; a reader never sees half a file."""
    report = {"done": done, "of": of, "doing": doing, "pid": os.getpid(), "written": time.time(), "error": error}
    unfinished = folder / f"progress.{os.getpid()}.json"
    unfinished.write_text(json.dumps(report), encoding="utf-8")
    unfinished.replace(folder / "progress.json")


def main(arguments: Sequence[str]) -> int:
    """Make the map that FOLDER/request.json asks for: {"vectors": [[path, texts or null]], "rows", "method",
    "seed"}."""
    folder = Path(arguments[0])
    try:
        request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
        files = [VectorFile(Path(path), Path(texts) if texts else None) for path, texts in request["vectors"]]
        rows = np.array(request["rows"], dtype=np.int32)
        make_map(folder, files, rows=rows, method=request["method"], seed=request["seed"])
    except Exception as error:  # the page reads the reason; the log beside it has the trace
        say(folder, 0, 1, "stopped", error=f"{type(error).__name__}: {error}")
        raise
    return 0
