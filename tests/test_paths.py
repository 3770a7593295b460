"""Folders of the cache and the app, and paths that may be read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bsc_core.errors import PathError
from bsc_core.paths import allowed_roots, app_folder, cache_folder, check_path, expand, sample_data_folder


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("BSC_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("BSC_CACHE")
    assert cache_folder().name == "bsc-lab"


def test_the_sample_data_exists(sample_pairs):
    assert sample_data_folder() == app_folder() / "sample_data"
    assert app_folder() in (sample_pairs.parents[1], Path(sys.modules["bsc_core"].__file__).parent / "_app")


def test_no_roots_means_no_limit(tmp_path, monkeypatch):
    monkeypatch.delenv("BSC_ROOTS", raising=False)
    assert allowed_roots() == ()
    monkeypatch.setenv("BSC_ROOTS", "")
    assert allowed_roots() == ()
    assert check_path(tmp_path) == tmp_path.resolve()


def test_paths_outside_the_roots_are_refused(tmp_path, monkeypatch):
    first, second, outside = (tmp_path / name for name in ("first", "second", "second-not"))
    for folder in (first, second, outside):
        folder.mkdir()
    (outside / "secret.csv").write_text("x", encoding="utf-8")
    (first / "link").symlink_to(outside, target_is_directory=True)
    monkeypatch.setenv("BSC_ROOTS", os.pathsep.join([str(first), str(second), str(first)]))
    assert check_path(second) == second.resolve()
    message = f"outside the folders that may be read \\({first}, {second}\\); .*BSC_ROOTS"
    for path in (
        outside / "secret.csv",
        first / "link" / "secret.csv",
        first / ".." / "second-not",
        outside / "missing.csv",
    ):
        with pytest.raises(PathError, match=message):
            check_path(path)
    assert check_path(sample_data_folder() / "pairs.tsv").is_file()
    with pytest.raises(PathError, match="there is no such file or folder"):
        check_path(first / "missing.csv")


def test_an_unknown_user_is_a_clear_error():
    with pytest.raises(PathError, match="not a valid path"):
        check_path("~no-such-user-here/file.csv")


def test_importing_the_data_modules_loads_nothing_heavy():
    heavy = {
        "torch",
        "transformers",
        "sentence_transformers",
        "umap",
        "faiss",
        "sklearn",
        "pandas",
        "pyarrow",
        "streamlit",
    }
    code = f"import sys, bsc_core.data, bsc_core.paths; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=app_folder())
    assert done.stdout.strip() == ""


def test_an_unknown_user_in_a_path_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand("~/runs") == tmp_path / "runs"
    with pytest.raises(PathError, match="'~no-such-user/runs': there is no such user"):
        expand("~no-such-user/runs")


def test_the_error_of_a_very_long_path_is_short(tmp_path):
    with pytest.raises(PathError, match="not a valid path") as error:
        check_path(str(tmp_path / ("a" * 400_000)))
    assert len(str(error.value)) < 500
