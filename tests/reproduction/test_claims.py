"""Claim files: their schema and the errors on files that do not follow it."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from bsc_core.reproduction.claims import UNTRAINED, read_claims

FILE = """
paper = "bsc"
citation = "A paper"

[tasks.stsb]
metrics = ["spearman"]
budget = "2 steps"
values.training.max_steps = 2
subsets.all = { folder = "stsb", parts = { train = { split = "train" }, dev = { split = "dev", rows = 60 } } }
subsets.other = { folder = "stsb", parts = { train = { split = "dev" } } }
arms.bsc.title = "BSC"
arms.mse = { title = "MSE", values = { loss = { name = "mse" } } }

[[claims]]
name = "better"
task = "stsb"
title = "Better"
table = "Table 1"
claim = "BSC is better."
arms = ["mse", "bsc"]
subsets = ["all"]
statements = [{ better = "bsc", worse = "untrained", metric = "spearman", paper = 0.1 }]
"""


def read(folder: Path, text: str = FILE) -> dict:
    (folder / "paper.toml").write_text(text)
    return read_claims(folder / "paper.toml")[1]


def test_a_claim_gets_the_named_arms_and_subsets_of_its_task(tmp_path: Path) -> None:
    claim = read(tmp_path)["better"]
    assert list(claim.arms) == ["mse", "bsc"]
    assert list(claim.subsets) == ["all"]
    assert claim.subsets["all"].parts["dev"].rows == 60
    assert claim.arms["mse"].values == {"loss": {"name": "mse"}}
    assert (claim.paper, claim.budget, claim.values) == ("bsc", "2 steps", {"training": {"max_steps": 2}})
    assert (claim.statements[0].worse, claim.statements[0].split, claim.statements[0].paper) == (UNTRAINED, "test", 0.1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('arms = ["mse", "bsc"]', 'arms = ["lost"]', "claim better names 'lost', which is not in the file"),
        ('subsets = ["all"]', 'subsets = ["lost"]', "claim better names 'lost', which is not in the file"),
        ('task = "stsb"', 'task = "lost"', "claim better names 'lost', which is not in the file"),
        ('worse = "untrained"', 'worse = "lost"', "a statement names the unknown arm 'lost'"),
        ('arms.bsc.title = "BSC"', 'arms.bsc = { title = "BSC", data = "lost" }', "names the unknown subset 'lost'"),
        ("rows = 60", "row = 60", "row"),
        ('table = "Table 1"', 'tabel = "Table 1"', "tabel"),
    ],
)
def test_unknown_names_and_keys_are_errors(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FILE
    with pytest.raises((ValueError, ValidationError), match=message):
        read(tmp_path, FILE.replace(old, new))


def test_a_task_with_a_weak_start_has_each_claim_twice(tmp_path: Path) -> None:
    weak = """
[tasks.stsb.weak]
budget = "8 steps"
seeds = [0, 1, 2]
values.encoder.reinit_layers = 3
values.training.max_steps = 8
subsets.all = { folder = "stsb", parts = { train = { split = "train" }, dev = { split = "dev" } } }
arms.mse.training.max_steps = 4

[[claims]]
"""
    claims = read(tmp_path, FILE.replace("\n[[claims]]\n", weak))
    first, second = claims["better"], claims["better_weak"]
    assert (first.repeats, second.repeats) == ("", "better")
    assert first.values == {"training": {"max_steps": 2}}
    assert second.values == {"encoder": {"reinit_layers": 3}, "training": {"max_steps": 8}}
    assert second.arms["mse"].values == {"loss": {"name": "mse"}, "training": {"max_steps": 4}}
    assert second.subsets["all"].parts["dev"].rows is None
    assert (second.budget, second.seeds, second.statements) == ("8 steps", (0, 1, 2), first.statements)
    assert first.settings_hash() != second.settings_hash()
