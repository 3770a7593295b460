"""Read every file of a folder with both readers and write the outcome of each as JSON: python read_files.py FOLDER."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

import pyarrow.parquet  # noqa: F401  (imported before the memory is measured)

from bsc_core.data.io.tables import read_chunks, read_table
from bsc_core.errors import BscError


def outcome(path: str, *, in_chunks: bool) -> str:
    """Return the error of reading a file, or the numbers of its rows and of its rejected rows."""
    try:
        tables = list(read_chunks(path, rows=1000)) if in_chunks else [read_table(path)]
    except BscError as error:
        return str(error)
    except BaseException:
        return traceback.format_exc()
    return f"{sum(map(len, tables))} rows, {sum(len(table.rejected) for table in tables)} rejected"


def peak_bytes() -> int:
    """Return the peak memory of this process; `ru_maxrss` would include that of the process which started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    start = peak_bytes()
    results, seconds = {}, {}
    for path in sorted(Path(sys.argv[1]).iterdir()):
        before = time.process_time()
        results[path.name] = [outcome(str(path), in_chunks=in_chunks) for in_chunks in (False, True)]
        seconds[path.name] = time.process_time() - before
        sys.stderr.write(f"{path}: {peak_bytes() - start:,} bytes\n")
    sys.stdout.write(json.dumps({"outcomes": results, "bytes": peak_bytes() - start, "seconds": seconds}))


if __name__ == "__main__":
    main()
