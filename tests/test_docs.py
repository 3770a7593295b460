"""Tests that the documents match the code."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from bsc_core.config import make_config

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("page", ["configuration", "losses"])
def test_the_reference_pages_are_up_to_date(page: str):
    script = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
    assert (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") == script[page]()


def test_every_package_is_listed_with_its_license():
    script = runpy.run_path(str(ROOT / "docs" / "make_licenses.py"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert script["EXTRAS"] | {"benchmarks"} == extras.keys()
    installed = script["packages"](extras=script["EXTRAS"])
    names = {name for name in installed if not name.startswith(("nvidia-", "cuda-", "triton"))}
    assert {"torch", "numpy", "streamlit", "authlib", "ray", "peft", "mteb", "tensorboard", "datasets"} <= names
    assert names - script["listed"]() == set()
    assert "| not stated |" not in script["PAGE"].read_text(encoding="utf-8")


def test_every_package_of_the_default_install_has_hashes():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.findall(r"^([\w.-]+)==(\S+)(.*(?:\\\n    --hash=sha256:[0-9a-f]{64}.*)+)$", lock, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^[^# ]", lock, re.MULTILINE))
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    assert all(versions.get(name, version) == version for name, version, _ in entries)
    script = runpy.run_path(str(ROOT / "docs" / "make_licenses.py"))
    needed = {name for name in script["packages"]() if not name.startswith(("nvidia-", "cuda-", "triton"))} - {"torch"}
    assert {*needed, "hatchling", "editables"} <= {name for name, _, _ in entries}
    assert "//" not in lock  # no address of an index


@pytest.mark.parametrize(
    ("packages", "status", "text"),
    [
        ([], 0, "No database of advisories can be reached"),
        ([{"name": "a", "skip_reason": "Dependency not found"}], 0, "No database of advisories can be reached"),
        ([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "x"}], 0, "1 package checked"),
        ([{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": []}]}], 0, "a 1: X-1, no fix yet"),
        ([{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}], 1, "a 1: X-1, fixed in 2"),
    ],
)
def test_the_audit_fails_for_a_vulnerability_with_a_fix_only(packages, status, text):
    script = runpy.run_path(str(ROOT / ".ci" / "audit.py"))
    lines, code = script["summarize"]({"dependencies": packages})
    assert code == status
    assert text in "\n".join(lines)


def test_every_loss_is_in_every_table():
    from bsc_core.config import LOSS_CONFIGS
    from bsc_core.integrations import sentence_transformers
    from bsc_core.losses import LOSSES
    from bsc_core.losses.catalog import CATALOG

    classes = [result for result in vars(sentence_transformers).values() if isinstance(result, type)]
    adapted = {
        loss.name for loss in classes if issubclass(loss, sentence_transformers.BatchLoss) and hasattr(loss, "name")
    }
    assert set(LOSS_CONFIGS) == set(LOSSES) == set(CATALOG) == adapted


def test_the_new_loss_of_the_extend_page_trains(tiny_encoder, small_pairs):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {"ENCODER": str(tiny_encoder), "PAIRS": str(small_pairs), "__name__": "extend"}
    for block in blocks:
        exec(compile(block, "extend.md", "exec", dont_inherit=True), names)
    assert names["last"].loss < names["first"].loss
    assert names["last"].temperature != names["first"].temperature


def test_the_readmes_config_is_accepted():
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert make_config(tomllib.loads(block)).batching.strategy == "nearest"


def test_the_readmes_python_runs(tmp_path, monkeypatch, small_config):
    from bsc_core.config import to_toml

    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "config.toml").write_text(to_toml(small_config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["result"]["state"] == "done"
    assert (tmp_path / "runs" / names["result"]["run"] / "model" / "README.md").is_file()


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
def test_every_file_that_a_document_names_is_there(page):
    named = re.findall(
        r"`((?:bsc_core|docs|pages|tests|benchmarks|sample_data)/[\w./-]+\.\w+)`", page.read_text(encoding="utf-8")
    )
    assert [name for name in named if "yours" not in name and not (ROOT / name).exists()] == []


def test_each_journey_of_a_new_user_is_one_browser_test():
    named = re.findall(r"`(tests/browser/\w+\.py)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    tests = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\ndef test_journey_")
        for path in (ROOT / "tests" / "browser").glob("test_*.py")
    }
    assert len(named) == 6
    assert {path: number for path, number in tests.items() if number} == dict.fromkeys(named, 1)


def test_the_batching_pages_sampler_deals_every_row(tiny_encoder):
    page = (ROOT / "docs" / "batching.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(compile(block, "batching.md", "exec", dont_inherit=True), names)
    dealt = names["sampler"](names["pairs"], batch_size=4, drop_last=False)
    assert sorted(row for batch in dealt for row in batch) == list(range(8))


def test_the_batching_page_names_every_strategy():
    from bsc_core.batching import STRATEGIES

    page = (ROOT / "docs" / "batching.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(STRATEGIES)
