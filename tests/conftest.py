"""Shared fixtures: sample files, real data, and an encoder small enough to train in a second."""

from __future__ import annotations

import atexit
import gc
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: spinning threads starve other processes
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the test processes use the cores; a run sets its own number of threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # tests run on the CPU; set it to 0 for `-k gpu`
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # child processes import compiled modules
os.environ |= {  # Ray reads these once in a process
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # all on loopback
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_worker_niceness": "0",  # by default 15, with which a worker hardly computes on a busy machine
    "RAY_num_workers_soft_limit": "8",  # processes that wait for the next task instead of being started anew
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
}

import pytest
from hypothesis import settings

settings.register_profile("any_machine", deadline=None)  # examples may be slow on a busy machine
settings.load_profile("any_machine")

ROOT = Path(__file__).resolve().parents[1]
SESSION = "session-"
"""Prefix of the temporary folders that live until the session ends."""
WORDS = (
    "the a of to in is how do i my why when can you what for on with soup bread salt water garden rose seed soil "
    "tent train ticket bank money loan sleep tea cat dog bike wheel brake guitar song book exam rain storm wind "
    "phone screen battery clean cook boil bake plant grow fix paint wall door window save pay borrow rest wake feed "
    "walk ride tune play read learn test snow cold hot dry wet charge lock open close break good bad new old slow "
    "fast more less first"
).split()


MEMORY = Path("/dev/shm")  # a file system in memory
MEMORY_BYTES = 8 * 2**30  # free there, of which the tests use at most half


def pytest_configure() -> None:
    """Write temporary files to memory where there is enough, since waiting for a disk takes much of the time."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        folder = tempfile.mkdtemp(prefix="bsc-tests-", dir=MEMORY)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)  # after multiprocessing has removed its folder


def pytest_collection() -> None:
    """Do not search the imported modules and the collected tests for garbage, now and in each later collection."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _session_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Use a temporary cache folder that all processes of the session share, unless BSC_CACHE is set."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ.setdefault("BSC_CACHE", str(folder / f"{SESSION}cache"))


@pytest.fixture(scope="module", autouse=True)
def _no_leftovers(_session_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the temporary folders of a test module, which may hold trained models, when it ends."""
    yield
    for folder in tmp_path_factory.getbasetemp().iterdir():
        if folder.is_dir() and not folder.name.startswith((SESSION, "popen-")):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for one test."""
    monkeypatch.setenv("BSC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def sample_pairs() -> Path:
    return ROOT / "sample_data" / "pairs.tsv"


@pytest.fixture(scope="session")
def sample_corpus() -> Path:
    return ROOT / "sample_data" / "corpus.tsv"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real datasets; tests that need it are skipped only if it does not exist."""
    folder = Path(os.environ.get("BSC_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real data not found: {folder} (set BSC_TEST_DATA)")
    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of 2 layers and 32 dimensions in a plain sentence-transformers folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp(f"{SESSION}tiny")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(WORDS))]
    pieces += [letter for letter in "abcdefghijklmnopqrstuvwxyz" if letter not in pieces]
    pieces += ["##" + letter for letter in "abcdefghijklmnopqrstuvwxyz"]
    bert = folder / "bert"
    bert.mkdir()
    (bert / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    BertModel(shape).save_pretrained(bert)
    BertTokenizerFast(vocab=str(bert / "vocab.txt")).save_pretrained(bert)
    transformer = Transformer(str(bert), max_seq_length=64)
    model = SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


@pytest.fixture
def small_pairs(tmp_path: Path) -> Path:
    """Forty labeled pairs over ten queries, each query with one positive and three negatives."""
    import random

    generator = random.Random(7)
    lines = []
    for query in range(10):
        topic = generator.sample(WORDS, 6)
        question = " ".join(["how", "do", "i", *topic[:3]])
        for candidate in range(4):
            words = topic[1:4] if candidate == 0 else generator.sample(WORDS, 4)
            answer = " ".join([*words, WORDS[query * 4 + candidate]])
            label = 1.0 if candidate == 0 else 0.2
            lines.append({"query_id": f"q{query}", "query": question, "document": answer, "label": label})
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def small_config(small_pairs: Path, tiny_encoder: Path):
    """One epoch of BSC from the tiny encoder on the small pairs."""
    from bsc_core.config import make_config

    return make_config(
        {
            "data": {"train": str(small_pairs), "dev_size": 0.3},
            "encoder": {"name": str(tiny_encoder), "max_seq_length": 32},
            "batching": {"strategy": "random"},
            "training": {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "threads": 1, "precision": "fp32"},
        }
    )
