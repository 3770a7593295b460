"""Packing of a run for another machine, and the job that performs it there."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bsc_core.config import Columns, DataConfig, EncoderConfig, RunConfig
from bsc_core.errors import JobError
from bsc_core.jobs.local.processes import start_detached
from bsc_core.ray.jobs import worker
from bsc_core.ray.jobs.storage import STOP, Downloader, Storage, StorageError, Uploader, folder_stamps, pack, unpack
from bsc_core.ray.jobs.worker import perform
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.jobs import stub_worker
from tests.ray.conftest import write


@pytest.fixture
def launched(tmp_path):
    """A queued run with input files, which starts from the model of another run."""
    write(tmp_path, "mine/pairs.tsv", "query\tdocument\na\tb\n")
    write(tmp_path, "mine/more/part.tsv", "query\tdocument\nc\td\n")
    write(tmp_path, "others/dev.tsv", "query\tdocument\ne\tf\n")
    store = RunStore(tmp_path / "runs")
    data = DataConfig(
        train=str(tmp_path / "mine" / "pairs.tsv"),
        mix=(str(tmp_path / "mine" / "more"), "hf://owner/name"),
        dev=str(tmp_path / "others" / "dev.tsv"),
        columns=Columns(query="query", document="document"),
    )
    parent = store.create(RunConfig(data=data), "parent")
    write(parent.model_folder, "modules.json", "[]")
    parent.update_status(state="done")
    run = store.create(RunConfig(data=data, encoder=EncoderConfig(name="run:parent")), "child")
    run.update_status(state="starting")
    return run


def test_a_packed_run_has_the_allowed_files_and_the_model_of_the_chain(launched, storage, tmp_path):
    job = storage.at("job")
    taken = pack(launched, job, storage, (tmp_path / "mine",))
    run, files = unpack(job, storage, tmp_path / "scratch")
    config = run.config()
    assert Path(config.data.train).read_text(encoding="utf-8").endswith("a\tb\n")
    assert (Path(config.data.mix[0]) / "part.tsv").read_text(encoding="utf-8").endswith("c\td\n")
    assert all(Path(path).is_relative_to(tmp_path / "scratch") for path in (config.data.train, config.data.mix[0]))
    assert config.data.mix[1] == "hf://owner/name"
    assert config.data.dev == str(tmp_path / "others" / "dev.tsv"), "outside the allowed folders"
    encoder = run.store.resolve_encoder(config.encoder)
    assert (Path(encoder.name) / "modules.json").read_text(encoding="utf-8") == "[]"
    assert files == taken == folder_stamps(run.folder, frozenset({"config.json"}))
    assert launched.config().data.train == str(tmp_path / "mine" / "pairs.tsv")


def test_files_are_stored_once_for_all_runs(launched, storage, monkeypatch):
    pack(launched, storage.at("first"), storage, ())
    sent: list[str] = []
    put = Storage.put
    monkeypatch.setattr(Storage, "put", lambda self, source, name: (sent.append(name), put(self, source, name))[1])
    pack(launched, storage.at("second"), storage, ())
    assert sent
    assert not [name for name in sent if name.startswith("inputs/")]


def test_a_job_without_a_packed_run_says_so(tmp_path):
    storage = Storage(f"file://{tmp_path}/stored")
    with pytest.raises(JobError, match=r"contains no run; launch the run again$"):
        unpack(storage.at("job"), storage, tmp_path / "scratch")


def starter(behavior: str) -> Callable[[Run, Path], subprocess.Popen[bytes]]:
    def start(run: Run, scratch: Path) -> subprocess.Popen[bytes]:
        return start_detached([*stub_worker.command("perform", behavior), str(run.folder)], run.log_file, {})

    return start


def test_a_job_uploads_changes_and_passes_on_a_stop_request(launched, until, monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "PUSH_SECONDS", 0.05)
    shared = Storage(f"file://{tmp_path}/stored")
    taken = pack(launched, shared.at("job"), shared, ())
    codes: list[int] = []
    start = starter("patient")
    job = threading.Thread(target=lambda: codes.append(perform(shared, "job", tmp_path / "scratch", start=start)))
    job.start()
    downloader = Downloader(launched.folder, shared.at("job"), taken)
    states: list[str] = []

    def downloaded(state):
        status = downloader.pull()
        states.extend([status["state"]] if status else [])
        return state in states and launched.log_tail() == ["waiting for a stop request"]

    until(lambda: downloaded("running"))
    shared.at("job").put_bytes(b"", STOP)
    until(lambda: downloaded("stopped"))
    job.join(PATIENCE_SECONDS)
    assert codes == [1]
    assert launched.read_json("result") == {"state": "stopped"}
    assert launched.config().encoder.name == "run:parent", "the launcher's config is not replaced"


def test_a_run_stopped_before_its_job_started_is_not_started(launched, tmp_path):
    shared = Storage(f"file://{tmp_path}/stored")
    pack(launched, shared.at("job"), shared, ())
    shared.at("job").put_bytes(b"", STOP)
    assert perform(shared, "job", tmp_path / "scratch", start=starter("quick")) == 1
    status = Downloader(launched.folder, shared.at("job")).pull()
    assert (status["state"], status["message"]) == ("stopped", "stopped before it started")
    assert launched.read_json("result") is None


def test_a_job_survives_storage_that_does_not_answer_for_a_while(launched, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(worker, "PUSH_SECONDS", 0.01)
    shared = Storage(f"file://{tmp_path}/stored")
    pack(launched, shared.at("job"), shared, ())
    push, refused = Uploader.push, [0]

    def refuse_thrice(self):
        refused[0] += 1
        if refused[0] <= 3:
            raise StorageError("storage does not answer")
        push(self)

    monkeypatch.setattr(Uploader, "push", refuse_thrice)
    assert perform(shared, "job", tmp_path / "scratch", start=starter("quick")) == 0
    status = Downloader(launched.folder, shared.at("job")).pull()
    assert status["state"] == "done"
    assert "storage does not answer" in capfd.readouterr().err


def test_a_job_without_storage_says_where_its_files_are(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path / "scratch"))
    assert worker.main(f"file://{tmp_path}/stored", "job") == 3
    message = capfd.readouterr().err
    assert "contains no run" in message
    assert str(tmp_path / "scratch") in message
