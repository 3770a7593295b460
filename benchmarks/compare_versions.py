"""Speed of two checkouts of this project, measured alternately: training, a batch plan, and opening two pages.

    python benchmarks/compare_versions.py OLD NEW [--rounds 5]

Times are CPU seconds of a child process; each cell is the median over the rounds.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import parser, print_header, print_row, run_python

CONFIG = """
[data]
train = "{root}/sample_data/pairs.tsv"
corpus = "{root}/sample_data/corpus.tsv"

[encoder]
name = "{encoder}"

[batching]
strategy = "examples"

[training]
steps = {steps}
batch_size = 32
threads = 1
"""  # old names of the keys, which both versions read
PLAN = """
import numpy as np
from bsc_core.batching import build_plan
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset

generator = np.random.default_rng(0)
queries = [f"query {number}" for number in generator.integers(4000, size=40_000)]
pairs = PairDataset.from_pairs(queries, [f"document {number}" for number in range(40_000)])
vectors = generator.standard_normal((len(pairs.texts), 128)).astype(np.float32)
for epoch in range(3):
    build_plan(BatchingConfig(), pairs, vectors, seed=0, epoch=epoch)
"""
PAGE = """
from streamlit.testing.v1 import AppTest
app = AppTest.from_file("app.py", default_timeout=600).run()
app.switch_page("pages/{page}.py").run()
assert not app.exception
"""


def commands(folder: Path, tree: Path) -> dict[str, list[str]]:
    """Return the Python arguments of the measured commands by name."""
    result = {}
    for encoder, steps in (("static", 200), ("bundled", 12)):
        path = folder / f"{encoder}.toml"
        path.write_text(CONFIG.format(root=tree, encoder=encoder, steps=steps), encoding="utf-8")
        train = ["-m", "bsc_core.cli", "train", str(path), "--runs", str(folder / "runs"), "--json"]
        result[f"train, {encoder}, {steps} steps"] = train
    pages = {f"open the page {page}": ["-c", PAGE.format(page=page)] for page in ("batches", "runs")}
    return {**result, "plan, 40,000 rows, three epochs": ["-c", PLAN], **pages}


def cpu_seconds(tree: Path, command: list[str], cache: Path) -> float:
    """Run a command in a checkout and return its CPU seconds."""
    folders = {"BSC_CACHE": cache, "BSC_RUNS": cache / "runs"}
    return run_python(*command, cwd=tree, stderr=subprocess.DEVNULL, OMP_NUM_THREADS=1, **folders).cpu_seconds


def main() -> None:
    options = parser(__doc__)
    options.add_argument("old", type=Path)
    options.add_argument("new", type=Path)
    options.add_argument("--rounds", type=int, default=5)
    arguments = options.parse_args()
    trees = [arguments.old.resolve(), arguments.new.resolve()]
    print_header("case", "old, CPU s", "new, CPU s", "new / old")
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        folders = [Path(old), Path(new)]
        versions = [commands(folder, tree) for folder, tree in zip(folders, trees, strict=True)]
        for case in versions[0]:
            rounds = []
            for number in range(arguments.rounds + 1):
                sides = zip(trees, versions, folders, strict=True)
                rounds.append([cpu_seconds(tree, version[case], folder) for tree, version, folder in sides])
                print(f"{case}, round {number}: {rounds[-1]}", file=sys.stderr)
            counted = rounds[1:]  # the first fills caches
            before, after = (statistics.median(side) for side in zip(*counted, strict=True))
            print_row(case, f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}")


if __name__ == "__main__":
    main()
