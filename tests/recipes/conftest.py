"""A recipe of three settings that is reproduced once for all tests of recipes."""

from typing import Any

import pytest

from bsc_core.jobs.worker import perform as work
from bsc_core.jobs.worker import run_pipeline
from bsc_core.recipes.claims import UNTRAINED, Arm, Recipe, Statement
from bsc_core.recipes.findings import reproduce
from bsc_core.recipes.reproducing import Perform
from bsc_core.recipes.subsets import Part, Subset
from bsc_core.runs import RunStore


@pytest.fixture(scope="session")
def turns() -> Recipe:
    return Recipe(
        name="turns",
        title="One after the other",
        paper="bsc",
        table="Table 0",
        claim="Training helps.",
        subsets={"stsb": Subset("stsb", {"train": Part("train"), "dev": Part("dev"), "test": Part("test")})},
        values={"training": {"steps": 2}, "loss": {"name": "bsc", "temperature": 0.1}},
        metrics=("spearman",),
        arms={
            "second": Arm("MSE after BSC", {"loss": {"name": "mse"}}, after="first"),
            "first": Arm("BSC"),
            "warm": Arm("BSC, tau 1", {"loss": {"temperature": 1.0}}),
        },
        statements=(
            Statement("first", UNTRAINED, "spearman", paper=0.1),
            Statement(UNTRAINED, "second", "spearman", split="dev"),
            Statement("first", "warm", "spearman", expects="same", margin=2.0),
        ),
    )


@pytest.fixture(scope="session")
def train() -> Perform:
    return lambda run: work(run, run_pipeline)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return RunStore(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def finding(store: RunStore, turns: Recipe, train: Perform) -> dict[str, Any]:
    return reproduce(turns, store, train, form="small")
