"""Plans over Parquet files on a Ray cluster of this machine: the groups of the in-memory plans, and refusals."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bsc_core.config import to_toml
from bsc_core.data.shards import Part, open_shards, write_part
from bsc_core.errors import DataError, InputError, RunError
from bsc_core.integrations import ray_data
from bsc_core.integrations.ray_cluster import cluster
from bsc_core.integrations.ray_data import plan_with_ray
from tests.integrations.ray_pairs import check_groups, config_of, write_pairs

pytestmark = pytest.mark.filterwarnings(r"ignore:::ray\..*")  # Ray warns of its own settings
ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import sys, ray
ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False,
         logging_level="CRITICAL", _temp_dir=sys.argv[1])
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
ray.shutdown()
"""


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """Address of a Ray head that listens on loopback alone, in a process that ends with these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        folder = tempfile.mkdtemp(prefix="ray-")  # short, since sockets live in it
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", HEAD, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(timeout=60)
            process.stdout.close()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def connected(head: str) -> Iterator[None]:
    """This process as a driver on the head for the length of a module; `plan_with_ray` then uses its connection."""
    with cluster(head):
        yield


@pytest.mark.parametrize(
    "batching",
    [
        {"strategy": "words", "stop_count": 5},
        {"strategy": "words", "stop_words": ("WORD0", "word1"), "shingle_size": 2, "by": "document"},
        {"strategy": "clusters", "clusters": 9},
    ],
)
def test_the_groups_are_those_of_the_plan_in_memory(connected: None, tmp_path: Path, batching: dict[str, Any]) -> None:
    check_groups(write_pairs(tmp_path / "pairs"), tmp_path, **batching)


def test_a_disk_that_fills_while_shards_are_written_leaves_nothing(
    connected: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(folder: str, number: int, table: pa.Table) -> Part:
        if number:
            raise RunError("part-00001.parquet could not be written (No space left on device); make room")
        return write_part(folder, number, table)

    monkeypatch.setattr(ray_data, "write_part", fill)
    folder = write_pairs(tmp_path / "pairs")
    with pytest.raises(RunError, match=r"^part-00001.parquet could not be written \(No space left on device\)"):
        plan_with_ray(config_of(folder, strategy="words"), tmp_path / "shards", part_rows=200)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs"]


def test_a_fault_of_the_data_found_by_a_task_is_one_sentence(connected: None, tmp_path: Path) -> None:
    vectors = [[float("nan"), 1.0]] * 20
    table = pa.table({"query": [f"q{row}" for row in range(20)], "document": ["d"] * 20, "vector": vectors})
    pq.write_table(table, tmp_path / "a.parquet")
    config = config_of(tmp_path / "a.parquet", strategy="clusters", clusters=3)
    with pytest.raises(InputError, match=r"^vectors hold a number that is not finite; [^\n]*$"):
        plan_with_ray(config, tmp_path / "out")
    with pytest.raises(InputError, match=r"^clusters is 21 and there are 20 distinct texts"):
        plan_with_ray(config_of(tmp_path / "a.parquet", strategy="clusters", clusters=21), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def bsc(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "HOME": str(cwd / "home")}
    command = [sys.executable, "-P", "-m", "bsc_core.cli", "shard", *words, "--json"]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_starts_a_cluster_of_its_own_and_refuses_an_address_without_one(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "pairs", rows=60)
    (tmp_path / "config.toml").write_text(to_toml(config_of(folder, strategy="words")))
    done = bsc("config.toml", "out", "--epoch", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report, shards = json.loads(done.stdout), open_shards(tmp_path / "out")
    assert report["rows"] == len(shards) == 57
    assert (report["groups"], report["epoch"], report["strategy"]) == (shards.groups, 1, "words")
    refused = bsc("config.toml", "other", "--address", "127.0.0.1:1", cwd=tmp_path)
    assert refused.returncode == 2
    assert "127.0.0.1:1: no Ray head answers" in json.loads(refused.stdout)["error"]
    assert refused.stderr.strip().splitlines()[-1].startswith("bsc: ")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "home") == ["config.toml", "out", "pairs"]


def test_errors_of_the_tree_survive_a_task(connected: None) -> None:
    def fail(kind: type[Exception]) -> None:
        raise kind("said\nby the task")

    for kind in (DataError, RunError):
        with pytest.raises(kind, match=r"^said$"), cluster(None) as ray:
            ray.get(ray.remote(fail).remote(kind))
    with pytest.raises(RunError, match=r"^Ray could not finish the plan \(said\)$"), cluster(None) as ray:
        ray.get(ray.remote(fail).remote(ValueError))
