"""Opening the app and the pages of a run imports no training or mapping library, so that they open quickly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bsc_core.runs import Run
from tests.helpers.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "sentence_transformers", "umap", "faiss", "sklearn")
SCRIPT = """
import sys
from streamlit.testing.v1 import AppTest

for script in ("app", "pages/train", "pages/runs", "pages/embeddings", "pages/retrieval"):
    app = AppTest.from_file(f"{script}.py", default_timeout=float(sys.argv[2]))
    app.session_state["embeddings.method"] = "pca"
    app.query_params["run"] = sys.argv[1]
    app.run()
    assert not app.exception, (script, app.exception)
    loaded = [name for name in sys.argv[3:] if name in sys.modules]
    assert not loaded, (script, loaded)
"""


def test_opening_the_pages_of_a_run_imports_no_heavy_library(finished: Run) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, finished.id, str(PATIENCE_SECONDS), *HEAVY]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
