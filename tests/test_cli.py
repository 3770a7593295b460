"""Command line: exit status, one JSON object on standard output, one line for invalid input."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bsc_core import __version__, evaluate_model
from bsc_core.cli import main
from bsc_core.cli.commands import app_command
from bsc_core.config import DataConfig, RunConfig, to_toml
from bsc_core.paths import app_folder
from bsc_core.runs import RunStore
from tests.helpers.waiting import PATIENCE_SECONDS, final_status

PAIRS = "query\tdocument\tlabel\n" + "".join(f"question {n}\tanswer {n}\t1.0\n" for n in range(8))


def bsc(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "bsc_core.cli", *words]
    root = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BSC_RUNS", raising=False)
    monkeypatch.delenv("BSC_ROOTS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    (tmp_path / "config.toml").write_text(to_toml(RunConfig(data=DataConfig(train="pairs.tsv"))))
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the one line on standard error of a command with invalid input."""
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("bsc: ")
    return captured.err


def test_help_and_version_import_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from bsc_core.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'numpy', 'torch', 'transformers', 'pandas', 'streamlit', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    for word in ("--version", "--help"):
        root = str(Path(__file__).resolve().parents[1])
        done = subprocess.run([sys.executable, "-c", code, word], cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert ("bsc " + __version__ if word == "--version" else "evaluate") in done.stdout


def test_the_runs_command_imports_no_torch(folder: Path) -> None:
    code = "import sys; from bsc_core.cli import main; main(['runs']); assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=False).returncode == 0


def test_a_process_with_invalid_input_exits_with_two_and_one_json_object(folder: Path) -> None:
    done = bsc("train", "missing.toml", "--json", cwd=folder)
    assert done.returncode == 2
    assert "missing.toml" in json.loads(done.stdout)["error"]
    assert done.stderr == f"bsc: {json.loads(done.stdout)['error']}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["train"], "CONFIG.toml"),
        (["train", "config.toml", "--color", "red"], "unrecognized arguments: --color red"),
        (["train", "missing.toml"], "missing.toml: file not found"),
        (["train", "pairs.tsv"], "pairs.tsv: not valid TOML"),
        (["train", "config.toml", "--set", "loss.temperature=0"], "temperature is 0; it must be > 0"),
        (["train", "config.toml", "--set", "training.batch_size=1"], "batch_size is 1; it must be >= 2"),
        (["train", "config.toml", "--set", "training.bach_size=8"], "training.bach_size is not a known key"),
        (["train", "config.toml", "--set", "temperature"], "write it as section.key=value"),
        (["train", "config.toml", "--set", "data.train=none.tsv"], "none.tsv: there is no such file"),
        (["plan", "config.toml", "--epoch", "-1"], "-1 is not between 0"),
        (["plan", "missing.toml"], "missing.toml"),
        (["evaluate", "bundled"], "--data"),
        (["evaluate", "bundled", "--data", "pairs.tsv", "--mteb", "STS12"], "not allowed with"),
        (
            ["evaluate", "bundled", "--mteb", "STS12", "--label-max", "5"],
            "--label-max applies to --data, not to --mteb",
        ),
        (["evaluate", "bundled", "--data", "none.tsv"], "none.tsv: there is no such file"),
        (["evaluate", "bundled", "--data", "pairs.tsv", "--columns", "query"], "write it as query=COLUMN"),
        (["evaluate", "bundled", "--data", "pairs.tsv", "--columns", "query=a"], "document is missing"),
        (["evaluate", "bundled", "--data", "pairs.tsv", "--columns", "query=a,document=b,lable=c"], "lable is not"),
        (["evaluate", "bundled", "--data", "pairs.tsv", "--threshold", "nan"], "nan is not between"),
        (["stop", "nobody"], "run nobody: not in"),
        (["stop", "../pairs.tsv"], "letters, digits"),
        (["worker", "--slots", "0"], "0 is not between 1"),
        (["app", "--port", "http"], "--port"),
    ],
)
def test_invalid_input_is_one_line_and_status_two(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert said in refusal(capsys, *words)
    assert not RunStore().list()


def test_with_json_an_error_is_a_json_object_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "config.toml", "--json", "--set", "loss.temperature=0"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"error": captured.err.removeprefix("bsc: ").strip()}


def test_a_file_outside_the_allowed_folders_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BSC_ROOTS", str(folder / "elsewhere"))
    assert "outside the folders" in refusal(capsys, "train", "config.toml")


def test_a_detached_run_is_queued_at_once_and_executed_by_a_worker(
    small_config: RunConfig, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.toml").write_text(to_toml(small_config))
    assert main(["train", "config.toml", "--detach", "--json", "--runs", "background"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["model"], report["metrics"]) == (None, {"before": {}, "after": {}})
    run = RunStore("background").get(report["run"])
    assert run.config().data.train == small_config.data.train
    final_status(run)
    assert run.status().state == "done", run.log_tail()
    assert run.status().pid != os.getpid()
    assert (run.model_folder / "model.safetensors").is_file()


def test_runs_are_listed_newest_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig(data=DataConfig(train="pairs.tsv"))
    for seconds, name in ((1e9, "first"), (2e9, "second")):
        run = RunStore(clock=lambda seconds=seconds: seconds).create(config, name)
        run.update_status(state="done", step=3, steps=3)
    assert main(["runs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["run"], run["state"]) for run in listed] == [("second", "done"), ("first", "done")]
    assert main(["runs"]) == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()] == [
        ["second", "done", "3/3"],
        ["first", "done", "3/3"],
    ]


def test_stopping_a_queued_run_stops_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunStore().create(RunConfig(data=DataConfig(train="pairs.tsv")), "one")
    assert main(["stop", "one", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "stopped"


def test_a_run_without_a_model_cannot_be_evaluated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunStore().create(RunConfig(data=DataConfig(train="pairs.tsv")), "one")
    assert "run one has no model (its state is queued)" in refusal(capsys, "evaluate", "one", "--data", "pairs.tsv")


def test_a_worker_with_an_empty_queue_ends_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs_taken": 0}


def test_the_app_is_opened_from_its_folder_and_may_read_the_users_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, environment = app_command(folder / "runs", port=8600, browser=False)
    server = app_folder() / "pages" / "ui" / "server" / "__main__.py"
    assert command == [sys.executable, "-P", str(server), "--port=8600", "--no-browser"]
    assert environment["BSC_RUNS"] == str(folder / "runs")
    roots = environment["BSC_ROOTS"].split(os.pathsep)
    assert roots == [str(folder), str(Path.home()), str(app_folder()), str(folder / "runs")]
    monkeypatch.setenv("BSC_ROOTS", "/only/here")
    assert app_command(folder / "runs")[1]["BSC_ROOTS"] == "/only/here"


@pytest.mark.skipif(os.name != "posix", reason="the app replaces the process on POSIX")
@pytest.mark.parametrize(("host", "mode"), [((), 0o644), (("--host", "localhost"), 0o600)])
def test_what_a_shared_app_starts_first_writes_private_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, host: tuple[str, ...], mode: int
) -> None:
    monkeypatch.setattr("bsc_core.cli.commands.update_runs", lambda store: (folder / "queue").touch())
    monkeypatch.setattr("bsc_core.cli.commands.os.execve", lambda *values: sys.exit(0))
    before = os.umask(0o022)
    try:
        with pytest.raises(SystemExit):
            main(["app", "--no-browser", *host])
    finally:
        os.umask(before)
    assert (folder / "queue").stat().st_mode & 0o777 == mode


def report_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0, capsys.readouterr().err
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_a_config_is_planned_trained_and_its_model_evaluated(
    small_config: RunConfig, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config.toml").write_text(to_toml(small_config))
    planned = report_of(capsys, "plan", "config.toml", "--set", "batching.strategy=examples")
    assert planned["strategy"] == "nearest"
    changes = ("--set", "training.epochs=1", "--set", "data.text_identity=normalized")
    trained = report_of(capsys, "train", "config.toml", *changes)
    assert trained["state"] == "done"
    assert set(trained["metrics"]) == {"before", "after"}
    assert trained["metrics"]["before"].keys() == trained["metrics"]["after"].keys() == {"dev"}
    assert Path(trained["model"], "model.safetensors").is_file()
    for model in (trained["run"], trained["folder"], trained["model"]):
        evaluated = report_of(capsys, "evaluate", model, "--data", small_config.data.train)
        assert evaluated["rows"] == 40
    monkeypatch.setattr(evaluate_model, "evaluate_model", lambda _, data, **others: {"equal": data.text_identity})
    for model, identity in ((trained["run"], "normalized"), (trained["model"], "exact")):
        assert report_of(capsys, "evaluate", model, "--data", small_config.data.train) == {"equal": identity}
    assert report_of(capsys, "runs")["runs"][0]["run"] == trained["run"]


def test_training_on_a_bad_file_ends_with_two_and_a_failed_run(
    small_config: RunConfig, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.toml").write_text(to_toml(small_config))
    (folder / "empty.tsv").write_text("")
    assert main(["train", "config.toml", "--json", "--set", f"data.train={folder / 'empty.tsv'}"]) == 2
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["state"] == "failed"
    assert "empty.tsv" in report["error"]
    assert f"bsc: {report['error']}\n" in captured.err


def test_a_path_in_set_is_relative_to_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bsc_core.config import read_config

    (tmp_path / "configs").mkdir()
    config = tmp_path / "configs" / "config.toml"
    config.write_text('[data]\ntrain = "beside.csv"\n')
    monkeypatch.chdir(tmp_path)
    assert read_config(config).data.train == str(config.parent / "beside.csv")
    assert read_config(config, ["data.train=here.csv"]).data.train == str(tmp_path / "here.csv")
