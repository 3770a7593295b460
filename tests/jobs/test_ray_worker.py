"""What a run needs on another machine goes there and comes back: its parcel, and the job that performs it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import fsspec
import pytest

from bsc_core.config import Columns, DataConfig, EncoderConfig, RunConfig
from bsc_core.errors import JobError
from bsc_core.jobs import ray_worker
from bsc_core.jobs.local import start_detached
from bsc_core.jobs.ray_parcel import pack, unpack
from bsc_core.jobs.ray_storage import STOP, Incoming, Outgoing, Storage, StorageError, stamps
from bsc_core.jobs.ray_worker import perform
from bsc_core.runs import Run, RunStore

Until = Callable[[Callable[[], bool]], None]


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """A folder in storage of each kind, empty."""
    if request.param == "file":
        yield Storage(f"file://{tmp_path}/stored")
        return
    yield Storage("memory://stored")
    fsspec.filesystem("memory").rm("/stored", recursive=True)


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def launched(tmp_path: Path) -> Run:
    """A queued run with files of its own, which starts from the model of another run."""
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


def test_a_parcel_holds_the_files_that_may_be_sent_and_the_model_of_the_chain(
    launched: Run, storage: Storage, tmp_path: Path
) -> None:
    own = storage.at("job")
    taken = pack(launched, own, storage, (tmp_path / "mine",))
    unpacked = unpack(own, storage, tmp_path / "scratch")
    config = unpacked.run.config()
    assert Path(config.data.train).read_text(encoding="utf-8").endswith("a\tb\n")
    assert (Path(config.data.mix[0]) / "part.tsv").read_text(encoding="utf-8").endswith("c\td\n")
    assert all(Path(path).is_relative_to(tmp_path / "scratch") for path in (config.data.train, config.data.mix[0]))
    assert config.data.mix[1] == "hf://owner/name"
    assert config.data.dev == str(tmp_path / "others" / "dev.tsv"), "it lies outside the folders that may be read"
    encoder = RunStore(unpacked.run.folder.parent).encoder(config.encoder)
    assert (Path(encoder.name) / "modules.json").read_text(encoding="utf-8") == "[]"
    assert unpacked.files == taken == stamps(unpacked.run.folder, frozenset({"config.json"}))
    assert launched.config().data.train == str(tmp_path / "mine" / "pairs.tsv")


def test_files_are_stored_once_for_all_runs(
    launched: Run, storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pack(launched, storage.at("first"), storage, ())
    sent: list[str] = []
    put = Storage.put
    monkeypatch.setattr(Storage, "put", lambda self, source, name: (sent.append(name), put(self, source, name))[1])
    pack(launched, storage.at("second"), storage, ())
    assert sent
    assert not [name for name in sent if name.startswith("inputs/")]


def test_a_job_without_a_parcel_says_so(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/stored")
    with pytest.raises(JobError, match=r"it holds no run; launch the run again$"):
        unpack(storage.at("job"), storage, tmp_path / "scratch")


def starter(stand_in: ModuleType, behaviour: str) -> Callable[[Run, Path], subprocess.Popen[bytes]]:
    def start(run: Run, scratch: Path) -> subprocess.Popen[bytes]:
        return start_detached([*stand_in.command("perform", behaviour), str(run.folder)], run.log_file, {})

    return start


def test_a_job_brings_news_while_its_worker_runs_and_tells_it_to_stop(
    launched: Run, stand_in: ModuleType, until: Until, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ray_worker, "PUSH_SECONDS", 0.05)
    shared = Storage(f"file://{tmp_path}/stored")
    taken = pack(launched, shared.at("job"), shared, ())
    codes: list[int] = []
    start = starter(stand_in, "patient")
    job = threading.Thread(target=lambda: codes.append(perform(shared, "job", tmp_path / "scratch", start=start)))
    job.start()
    incoming = Incoming(launched.folder, shared.at("job"), taken)
    states: list[str] = []

    def heard(state: str) -> bool:
        news = incoming.pull()
        states.extend([news["state"]] if news else [])
        return state in states and launched.log_tail() == ["waiting to be asked"]

    until(lambda: heard("running"))
    shared.at("job").put_bytes(b"", STOP)
    until(lambda: heard("stopped"))
    job.join(30)
    assert codes == [1]
    assert launched.read_json("result") == {"state": "stopped"}
    assert launched.config().encoder.name == "run:parent", "what this side holds is not replaced"


def test_a_run_stopped_before_its_job_began_is_not_begun(launched: Run, stand_in: ModuleType, tmp_path: Path) -> None:
    shared = Storage(f"file://{tmp_path}/stored")
    pack(launched, shared.at("job"), shared, ())
    shared.at("job").put_bytes(b"", STOP)
    assert perform(shared, "job", tmp_path / "scratch", start=starter(stand_in, "quick")) == 1
    news = Incoming(launched.folder, shared.at("job")).pull()
    assert news is not None
    assert (news["state"], news["message"]) == ("stopped", "stopped before it began")
    assert launched.read_json("result") is None


def test_a_job_outlives_storage_that_is_away_for_a_while(
    launched: Run,
    stand_in: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ray_worker, "PUSH_SECONDS", 0.01)
    shared = Storage(f"file://{tmp_path}/stored")
    pack(launched, shared.at("job"), shared, ())
    push, refused = Outgoing.push, [0]

    def refuse_thrice(self: Outgoing) -> None:
        refused[0] += 1
        if refused[0] <= 3:
            raise StorageError("storage is away")
        push(self)

    monkeypatch.setattr(Outgoing, "push", refuse_thrice)
    assert perform(shared, "job", tmp_path / "scratch", start=starter(stand_in, "quick")) == 0
    news = Incoming(launched.folder, shared.at("job")).pull()
    assert news is not None
    assert news["state"] == "done"
    assert "storage is away" in capfd.readouterr().err


def test_a_job_that_storage_never_serves_says_where_its_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path / "scratch"))
    assert ray_worker.main(f"file://{tmp_path}/stored", "job") == 3
    told = capfd.readouterr().err
    assert "it holds no run" in told
    assert str(tmp_path / "scratch") in told
