"""A claim with three settings, reproduced once for all tests."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from bsc_core.encoders.pretrained import static_model
from bsc_core.jobs.worker import perform as work
from bsc_core.jobs.worker import run_pipeline
from bsc_core.reproduction import runs
from bsc_core.reproduction.claims import UNTRAINED, Arm, Claim, Statement
from bsc_core.reproduction.findings import reproduce
from bsc_core.reproduction.runs import Train
from bsc_core.reproduction.subsets import Subset, SubsetSplit
from bsc_core.runs import RunStore


@pytest.fixture(scope="session")
def turns() -> Claim:
    return Claim(
        name="turns",
        title="One after the other",
        paper="bsc",
        table="Table 0",
        claim="Training helps.",
        subsets={
            "stsb": Subset(
                "stsb", {"train": SubsetSplit("train"), "dev": SubsetSplit("dev"), "test": SubsetSplit("test")}
            )
        },
        values={"training": {"max_steps": 2}, "loss": {"name": "bsc", "temperature": 0.1}},
        metrics=("spearman",),
        arms={
            "second": Arm(title="MSE after BSC", values={"loss": {"name": "mse"}}, after="first"),
            "first": Arm(title="BSC"),
            "warm": Arm(title="BSC, tau 1", values={"loss": {"temperature": 1.0}}),
        },
        statements=(
            Statement(better="first", worse=UNTRAINED, metric="spearman", paper=0.1),
            Statement(better=UNTRAINED, worse="second", metric="spearman", split="dev"),
            Statement(better="first", worse="warm", metric="spearman", expects="same", margin=2.0),
        ),
    )


@pytest.fixture(scope="session")
def small_static(tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static encoder with the vocabulary of the tiny one, whose checkpoints are written in no time."""
    tokenizer = Tokenizer.from_file(str(tiny_encoder / "tokenizer.json"))
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 16)).astype(np.float32)
    folder = tmp_path_factory.mktemp("session-static") / "model"
    static_model(tokenizer, vectors).save(str(folder))
    return folder


@pytest.fixture
def one_small_seed(small_static: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the small form train one seed from the encoder that trains in no time."""
    monkeypatch.setattr(runs, "SMALL_SEEDS", (0,))
    monkeypatch.setitem(runs.SMALL, "encoder", runs.SMALL["encoder"] | {"name": str(small_static)})


@pytest.fixture(scope="session")
def train() -> Train:
    return lambda run: work(run, run_pipeline)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return RunStore(tmp_path_factory.mktemp("session-runs"))


@pytest.fixture(scope="session")
def finding(store: RunStore, turns: Claim, train: Train) -> dict[str, Any]:
    return reproduce(turns, store, train, form="small")
