"""Read every file of a folder with both readers and write the outcome of each as JSON: python read_files.py FOLDER."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow.parquet  # noqa: F401  (imported before the memory is measured)

from bsc_core.data.io.tables import read_chunks, read_table
from tests.hostile.outcomes import outcome, write_outcomes


def rows(path: Path, *, in_chunks: bool) -> str:
    """Return the numbers of the rows of a file and of its rejected rows."""
    tables = list(read_chunks(str(path), rows=1000)) if in_chunks else [read_table(str(path))]
    return f"{sum(map(len, tables))} rows, {sum(len(table.rejected) for table in tables)} rejected"


if __name__ == "__main__":
    write_outcomes(*(lambda path, how=how: outcome(partial(rows, path, in_chunks=how)) for how in (False, True)))
