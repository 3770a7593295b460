"""Load every model of a folder and write the outcome of each as JSON: python read_models.py FOLDER."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

import sentence_transformers  # noqa: F401  (imported before the memory is measured)

from bsc_core.config import EncoderConfig
from bsc_core.encoders import load_encoder
from bsc_core.errors import BscError
from tests.hostile.read_files import peak_bytes


def outcome(path: Path) -> str:
    """Return the error of loading a model, or the number of its dimensions."""
    try:
        model = load_encoder(EncoderConfig(name=str(path), max_seq_length=16))
    except BscError as error:
        return str(error)
    except BaseException:
        return traceback.format_exc()
    return f"{model.get_embedding_dimension()} dimensions"


def main() -> None:
    start = peak_bytes()
    results, seconds = {}, {}
    for path in sorted(Path(sys.argv[1]).iterdir()):
        before = time.process_time()
        results[path.name] = outcome(path / "model")
        seconds[path.name] = time.process_time() - before
        sys.stderr.write(f"{path}: {peak_bytes() - start:,} bytes\n")
    sys.stdout.write(json.dumps({"outcomes": results, "bytes": peak_bytes() - start, "seconds": seconds}))


if __name__ == "__main__":
    main()
