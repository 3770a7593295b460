"""Opening the pages of a run loads no training or mapping library, so that they appear at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bsc_core.runs import Run

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "sentence_transformers", "umap", "faiss", "sklearn")
SCRIPT = """
import sys
from streamlit.testing.v1 import AppTest

for page in ("train", "runs", "embeddings", "retrieval"):
    app = AppTest.from_file(f"pages/{page}.py", default_timeout=60)
    app.session_state["embeddings.method"] = "pca"
    app.query_params["run"] = sys.argv[1]
    app.run()
    assert not app.exception, (page, app.exception)
    loaded = [name for name in sys.argv[2:] if name in sys.modules]
    assert not loaded, (page, loaded)
"""


def test_looking_at_a_run_loads_no_heavy_library(finished: Run) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, finished.id, *HEAVY], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
