"""Ten million rows: seconds and peak memory of `bsc audit` and `bsc convert`. `python benchmarks/data.py` prints them.

The file is generated in a temporary folder, and removed. Each command runs in a process of its own, whose largest
resident memory is told by the system (Linux). `--rows 1000000` takes fewer rows, `--kinds tsv parquet` some formats.
"""

# N rows

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MIB = 1024
BLOCK = 100_000
BAD_EVERY = 100_000  # a row without a document
REPEAT_EVERY = 1_000  # a row that stands twice
KINDS = ("tsv", "jsonl.gz", "parquet")


def write_rows(path: Path, rows: int) -> None:
    """A file of N labelled pairs of about 11 words each, a few of them faulty."""
    generator = np.random.default_rng(0)
    words = np.asarray([f"word{number}" for number in range(20_000)], dtype=object)
    with path.open("w", encoding="utf-8") as file:
        file.write("question_id\tquery\tdocument\tlabel\n")
        for start in range(0, rows, BLOCK):
            size = min(BLOCK, rows - start)
            chosen = words[generator.integers(0, len(words), size=(size, 20))].tolist()
            lines = [
                f"{row // 5}\tquestion {row // 5} {' '.join(picked[:8])}\t{' '.join(picked[8:])}\t{row % 2}\n"
                for row, picked in enumerate(chosen, start)
            ]
            lines[::REPEAT_EVERY] = [lines[0]] * len(lines[::REPEAT_EVERY])
            lines[::BAD_EVERY] = ["1\ta question without an answer\t\t1\n"] * len(lines[::BAD_EVERY])
            file.writelines(lines)


def write_json_lines(table: Path, path: Path) -> None:
    """The same rows as packed JSON lines."""
    import gzip

    with table.open(encoding="utf-8") as rows, gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        names = next(rows).rstrip("\n").split("\t")
        for row in rows:
            file.write(json.dumps(dict(zip(names, row.rstrip("\n").split("\t"), strict=True))) + "\n")


def measured(*words: str) -> tuple[dict[str, object], float, float]:
    """The report of a command, its seconds, and its peak memory in MiB."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bsc_core.cli", *words, "--json"], stdout=output, env=environment
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        output.seek(0)
        report = json.loads(output.read())
    if process.returncode:
        raise SystemExit(f"bsc {' '.join(words)} ended with {process.returncode}")
    return report, seconds, used.ru_maxrss / MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["tsv", "parquet"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "rows.tsv")
        write_rows(table, arguments.rows)
        print(f"{arguments.rows:,} rows, {table.stat().st_size / 1e9:.2f} GB as TSV\n")
        print("| command | format | seconds | peak MiB | rows | rejected | repeated |")
        print("|---|---|---:|---:|---:|---:|---:|")
        parquet = Path(folder, "rows.parquet")
        for kind in ("tsv", "jsonl.gz", "parquet"):
            source = {"tsv": table, "parquet": parquet}.get(kind, Path(folder, "rows.jsonl.gz"))
            if kind == "jsonl.gz" and kind in arguments.kinds:
                write_json_lines(table, source)
            if kind in arguments.kinds:
                _print_row("audit", kind, *measured("audit", str(source)))
            if kind == "tsv":
                _print_row("convert", kind, *measured("convert", str(source), str(parquet)))
    print(f"\nThis process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB:,.0f} MiB.")


def _print_row(command: str, kind: str, report: dict[str, object], seconds: float, mebibytes: float) -> None:
    counts = [report[name] for name in ("rows_kept", "rejected")] + [report.get("repeated_pairs", "")]
    shown = " | ".join(f"{count:,}" if isinstance(count, int) else "" for count in counts)
    print(f"| {command} | {kind} | {seconds:.1f} | {mebibytes:,.0f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
