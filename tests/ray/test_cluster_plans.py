"""Plans over Parquet files on a local Ray cluster: the groups equal the in-memory plans, and errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bsc_core.config import to_toml
from bsc_core.data.io.shards import open_shards, write_part
from bsc_core.errors import DataError, InputError, RunError
from bsc_core.ray.data import plan
from bsc_core.ray.data.cluster import cluster
from bsc_core.ray.data.plan import plan_with_ray
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.ray.pairs_files import check_groups, config_of, write_pairs
from tests.ray.ray_head import ray_head

pytestmark = pytest.mark.filterwarnings(r"ignore:::ray\..*")  # Ray warns about its own settings
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def connected():
    """Connect this process to a head on loopback; `plan_with_ray` uses the connection."""
    with ray_head() as (address, _), cluster(address):
        yield


@pytest.mark.parametrize(
    "batching",
    [
        {"strategy": "words", "stop_count": 5},
        {"strategy": "words", "stop_words": ("WORD0", "word1"), "shingle_size": 2, "group_by": "document"},
        {"strategy": "clusters", "clusters": 9},
    ],
)
def test_groups_equal_the_plan_in_memory(connected, tmp_path, batching):
    check_groups(write_pairs(tmp_path / "pairs"), tmp_path, **batching)


def test_a_full_disk_leaves_no_partial_shards(connected, tmp_path, monkeypatch):
    def fill(folder, number, table):
        if number:
            raise RunError("part-00001.parquet could not be written (No space left on device); make room")
        return write_part(folder, number, table)

    monkeypatch.setattr(plan, "write_part", fill)
    folder = write_pairs(tmp_path / "pairs")
    with pytest.raises(RunError, match=r"^part-00001.parquet could not be written \(No space left on device\)"):
        plan_with_ray(config_of(folder, strategy="words", stop_count=0), tmp_path / "shards", part_rows=400)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs"]


def test_a_data_error_in_a_task_is_one_line(connected, tmp_path):
    vectors = [[float("nan"), 1.0]] * 20
    table = pa.table({"query": [f"q{row}" for row in range(20)], "document": ["d"] * 20, "vector": vectors})
    pq.write_table(table, tmp_path / "a.parquet")
    config = config_of(tmp_path / "a.parquet", strategy="clusters", clusters=3)
    with pytest.raises(InputError, match=r"^vectors contain a number that is not finite; [^\n]*$"):
        plan_with_ray(config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def bsc(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "HOME": str(cwd / "home")}
    command = [sys.executable, "-P", "-m", "bsc_core.cli", "shard", *arguments, "--json"]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def test_the_command_starts_its_own_cluster_and_refuses_an_address_without_one(tmp_path):
    folder = write_pairs(tmp_path / "pairs", rows=60)
    (tmp_path / "config.toml").write_text(to_toml(config_of(folder, strategy="words", stop_count=0)))
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


def test_bsc_errors_of_a_task_are_raised_unchanged(connected):
    def fail(kind):
        raise kind("said\nby the task")

    for kind in (DataError, RunError):
        with pytest.raises(kind, match=r"^said$"), cluster(None) as ray:
            ray.get(ray.remote(fail).remote(kind))
    with pytest.raises(RunError, match=r"^Ray could not finish the plan \(said\)$"), cluster(None) as ray:
        ray.get(ray.remote(fail).remote(ValueError))
