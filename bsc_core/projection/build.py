"""Maps stored on disk; slow ones are built in a background task, `python -m bsc_core.projection FOLDER`."""

# N texts of the map, D dimensions

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.background_task import run_task, write_progress
from bsc_core.errors import InputError
from bsc_core.files import file_lock, map_array, save_arrays
from bsc_core.neighbors import unit_rows
from bsc_core.projection.layout import lay_out, neighborhood_preservation
from bsc_core.types import Ids, Vectors


@dataclass(frozen=True)
class VectorFile:
    """Vectors on disk.

    Attributes:
        path: .npy file with one row per text of the table, or per text in `texts`.
        texts: .npy file of ascending text ids; None if `path` covers the whole table.
    """

    path: Path
    texts: Path | None = None

    def vectors(self, ids: Ids) -> Vectors:
        """Return the unit vectors (N, D) of texts (N,).

        Raises:
            InputError: The file lacks one of the texts.
        """
        array = map_array(self.path)
        if self.texts is None:
            return unit_rows(array[ids])
        stored = map_array(self.texts)
        rows = np.minimum(np.searchsorted(stored, ids), len(stored) - 1)
        if not np.array_equal(stored[rows], ids):
            raise InputError(f"{self.path} lacks some texts of the map; map the texts of {self.texts}")
        return unit_rows(array[rows])


def build_map(folder: Path, files: Sequence[VectorFile], *, rows: Ids, method: str = "umap", seed: int = 0) -> Path:
    """Lay out texts by the vectors of each file, all in one frame; an existing map is not rebuilt.

    Args:
        folder: Output folder.
        files: One vector file per model.
        rows: (N,) text ids.
        method: "umap" or "pca".
        seed: Of UMAP.

    Returns:
        Path of `folder`/map.npz, which contains rows (N,), one (N, 2) array per file (`points0`, `points1` ...) and the
        neighborhood preservation of each map (`trust`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    finished = folder / "map.npz"
    with file_lock(folder / "map.lock"):
        if finished.is_file():
            return finished
        arrays = [file.vectors(rows) for file in files]
        steps = len(arrays) + 1

        def report(number: int, share: float) -> None:
            doing = f"laying out {len(rows):,} texts, map {number + 1} of {len(arrays)}"
            write_progress(folder, number + share, steps, doing)

        maps = lay_out(arrays, method, seed=seed, report=report)
        write_progress(folder, len(arrays), steps, "counting how many neighbors the map preserves")
        shares = [neighborhood_preservation(array, points) for array, points in zip(arrays, maps, strict=True)]
        content: dict[str, npt.NDArray[Any]] = {f"points{number}": points for number, points in enumerate(maps)}
        content |= {"rows": rows, "trust": np.array([np.nan if share is None else share for share in shares])}
        save_arrays(finished, content)
    return finished


def perform(folder: Path, request: Any) -> None:
    """Build the map of a request, `{"vectors": [[path, texts or null]], "rows", "method", "seed"}`."""
    files = [VectorFile(Path(path), Path(texts) if texts else None) for path, texts in request["vectors"]]
    rows = np.array(request["rows"], dtype=np.int32)
    build_map(folder, files, rows=rows, method=request["method"], seed=request["seed"])


def main(arguments: Sequence[str]) -> int:
    """Run the request in the folder that is the only argument; see `run_task`."""
    return run_task(perform, arguments)
