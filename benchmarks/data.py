"""Seconds and peak memory of `bsc audit` and `bsc convert` on ten million rows: `python benchmarks/data.py`.

The file is generated in a temporary folder. Each command runs in its own process, whose peak resident memory the
system reports (Linux). `--rows 1000000` sets the number of rows, `--formats tsv parquet` the formats.
"""

# N rows

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
from measure import parser, print_header, print_row, resident_mib, run_python

BLOCK = 100_000
INVALID_EVERY = 100_000  # a row without a document
DUPLICATE_EVERY = 1_000  # a duplicate row
FORMATS = ("tsv", "jsonl.gz", "parquet")


def write_rows(path: Path, rows: int) -> None:
    """Write N labeled pairs of about 11 words each, a few of them invalid."""
    generator = np.random.default_rng(0)
    words = np.asarray([f"word{number}" for number in range(20_000)], dtype=object)
    with path.open("w", encoding="utf-8") as file:
        file.write("question_id\tquery\tdocument\tlabel\n")
        for start in range(0, rows, BLOCK):
            size = min(BLOCK, rows - start)
            texts = words[generator.integers(0, len(words), size=(size, 20))].tolist()
            lines = [
                f"{row // 5}\tquestion {row // 5} {' '.join(text[:8])}\t{' '.join(text[8:])}\t{row % 2}\n"
                for row, text in enumerate(texts, start)
            ]
            lines[::DUPLICATE_EVERY] = [lines[0]] * len(lines[::DUPLICATE_EVERY])
            lines[::INVALID_EVERY] = ["1\ta question without an answer\t\t1\n"] * len(lines[::INVALID_EVERY])
            file.writelines(lines)


def write_json_lines(table: Path, path: Path) -> None:
    """Write the same rows as compressed JSON lines."""
    with table.open(encoding="utf-8") as rows, gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        names = next(rows).rstrip("\n").split("\t")
        for row in rows:
            file.write(json.dumps(dict(zip(names, row.rstrip("\n").split("\t"), strict=True))) + "\n")


def measure(command: str, name: str, *paths: Path) -> None:
    """Run a command and print its row of the table."""
    child = run_python("-m", "bsc_core.cli", command, *paths, "--json")
    report = json.loads(child.output)
    counts = [report["rows_valid"], report["rejected"], report.get("repeated_pairs")]
    cells = ["" if count is None else f"{count:,}" for count in counts]
    print_row(command, name, f"{child.seconds:.1f}", f"{child.peak_mib:,.0f}", *cells)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--formats", nargs="+", choices=FORMATS, default=["tsv", "parquet"])
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder, f"rows.{name}") for name in FORMATS}
        write_rows(paths["tsv"], arguments.rows)
        print(f"{arguments.rows:,} rows, {paths['tsv'].stat().st_size / 1e9:.2f} GB as TSV\n")
        print_header("command", "format", "seconds", "peak MiB", "rows", "rejected", "duplicates")
        for name, path in paths.items():
            if name == "jsonl.gz" and name in arguments.formats:
                write_json_lines(paths["tsv"], path)
            if name in arguments.formats:
                measure("audit", name, path)
            if name == "tsv":
                measure("convert", name, path, paths["parquet"])
    print(f"\nThis process: {resident_mib('VmHWM'):,.0f} MiB.")


if __name__ == "__main__":
    main()
