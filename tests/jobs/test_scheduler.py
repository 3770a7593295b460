"""Scheduler: slots, GPUs, backends, and runs left by an earlier supervisor."""

import signal
from collections.abc import Mapping

import pytest

from bsc_core.errors import ConfigError, JobError, RunError
from bsc_core.jobs import launch, slots, unpause
from bsc_core.jobs.backends import BackendUnavailableError, ProcessInfo, get_backend
from bsc_core.jobs.local.devices import least_used, visible_gpus
from bsc_core.jobs.local.processes import start_detached
from bsc_core.jobs.queue import Queue, supervisor_lock
from bsc_core.jobs.recovery import refresh_status
from bsc_core.jobs.scheduler import Scheduler
from bsc_core.jobs.states import advance, claim_start
from bsc_core.jobs.supervisor import supervise
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import PATIENCE_SECONDS, final_status
from tests.jobs import stub_worker


class FakeBackend:
    """Fake backend that starts nothing and returns the given process states."""

    def __init__(self, *, takes_slot: bool = True) -> None:
        self.takes_slot = takes_slot
        self.error: JobError | None = None
        self.processes: dict[str, ProcessInfo] = {}
        self.environments: dict[str, Mapping[str, str]] = {}

    def start(self, run: Run, environment: Mapping[str, str]) -> None:
        if self.error is not None:
            raise self.error
        self.environments[run.id] = environment
        self.processes[run.id] = ProcessInfo("alive")

    def inspect(self, run: Run) -> ProcessInfo:
        return self.processes.get(run.id, ProcessInfo("ended"))

    def request_stop(self, run: Run) -> None:
        run.request_stop()

    def send_signal(self, run: Run, number: signal.Signals) -> None:
        self.processes[run.id] = ProcessInfo("ended")


@pytest.fixture
def fake_backend():
    return FakeBackend()


@pytest.fixture
def make_scheduler(store, config, fake_backend):
    """Launch runs a, b, c, ... and return a scheduler that has not ticked yet."""

    def launch_runs(number, slots=None, backend=None):
        for name in "abcdefgh"[:number]:
            launch(store, config, name, backend=backend, start=lambda store: None)
        return Scheduler(store, slots, {"local": fake_backend, "ray": fake_backend})

    return launch_runs


def states(store: RunStore) -> str:
    return " ".join(f"{run.id}:{run.status().state}" for run in sorted(store.list(), key=lambda run: run.id))


def test_as_many_runs_are_active_as_there_are_slots(store, make_scheduler, fake_backend):
    scheduler = make_scheduler(3, 2)
    assert scheduler.tick()
    assert states(store) == "a:starting b:starting c:queued"
    fake_backend.processes["a"] = ProcessInfo("ended", 0)
    advance(store.get("a"), "running")
    store.get("a").write_json("result", {"state": "done"})
    scheduler.tick()
    assert states(store) == "a:done b:starting c:starting"


def test_slots_can_be_changed_while_runs_are_active(store, make_scheduler):
    scheduler = make_scheduler(3)
    scheduler.tick()
    assert (slots(store), len(Queue(store.root).snapshot().claimed)) == (1, 1)
    Queue(store.root).set_slots(3)
    scheduler.tick()
    assert (slots(store), len(Queue(store.root).snapshot().claimed)) == (3, 3)


def test_a_paused_queue_starts_nothing_until_it_is_unpaused(store, make_scheduler):
    scheduler = make_scheduler(1)
    Queue(store.root).pause()
    assert not scheduler.tick()
    assert states(store) == "a:queued"
    woken: list[RunStore] = []
    unpause(store, start=woken.append)
    assert woken == [store]
    assert scheduler.tick()
    assert states(store) == "a:starting"


def test_the_order_when_a_slot_becomes_free_counts(store, make_scheduler):
    scheduler = make_scheduler(3)
    Queue(store.root).move("c", 0)
    scheduler.tick()
    assert states(store) == "a:queued b:queued c:starting"


def test_each_run_gets_the_gpu_that_is_used_least(store, make_scheduler, fake_backend, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2")
    scheduler = make_scheduler(3)
    scheduler.tick()
    assert slots(store) == 2
    given = {name: environment["CUDA_VISIBLE_DEVICES"] for name, environment in fake_backend.environments.items()}
    assert given == {"a": "GPU-1", "b": "GPU-2"}
    fake_backend.processes["a"] = ProcessInfo("ended", -9)
    scheduler.tick()
    assert fake_backend.environments["c"]["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_the_environment_overrides_the_listed_gpus(monkeypatch, tmp_path):
    for value, gpus in {"": (), "-1": (), "0, 3": ("0", "3"), "1,-1,2": ("1",)}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert visible_gpus() == gpus
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == ()
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho GPU-a\necho GPU-b\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert visible_gpus() == ("GPU-a", "GPU-b")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert visible_gpus() == ("GPU-a", "GPU-b")  # not queried again at once
    monkeypatch.setattr("bsc_core.jobs.local.devices._CACHE_SECONDS", 1e-6)
    assert visible_gpus() == ()
    assert least_used(("a", "b"), ["a", ""]) == "b"


def test_a_run_on_another_backend_takes_no_slot(store, config, fake_backend):
    remote = FakeBackend(takes_slot=False)
    launch(store, config, "a", start=lambda store: None)
    launch(store, config, "b", backend="ray", start=lambda store: None)
    launch(store, config, "c", start=lambda store: None)
    Scheduler(store, 1, {"local": fake_backend, "ray": remote}).tick()
    assert states(store) == "a:starting b:starting c:queued"
    assert "CUDA_VISIBLE_DEVICES" not in remote.environments["b"]


def test_an_unavailable_backend_keeps_its_runs_queued_with_the_reason(store, make_scheduler, fake_backend, monkeypatch):
    scheduler = make_scheduler(2)
    fake_backend.error = BackendUnavailableError("the head does not answer")
    assert scheduler.tick()
    assert states(store) == "a:queued b:queued"
    assert store.get("a").status().message == "the head does not answer"
    assert Queue(store.root).waiting() == ["a", "b"]
    assert scheduler.started == 0
    fake_backend.error = None
    scheduler.tick()
    assert states(store) == "a:queued b:queued"  # not queried again at once
    monkeypatch.setattr("bsc_core.jobs.scheduler.RETRY_SECONDS", 0.0)
    again = Scheduler(store, 1, {"local": fake_backend})
    assert again.tick()
    assert states(store) == "a:starting b:queued"


def test_an_unknown_process_state_changes_no_run(store, make_scheduler, fake_backend):
    scheduler = make_scheduler(1)
    scheduler.tick()
    advance(store.get("a"), "running")
    fake_backend.processes["a"] = ProcessInfo("unknown")
    assert scheduler.tick()
    assert states(store) == "a:running"
    fake_backend.processes["a"] = ProcessInfo("ended", cause="the cluster was taken down")
    assert not scheduler.tick()
    assert "the cluster was taken down" in store.get("a").status().error


def test_an_unknown_backend_is_refused_before_a_run_is_created(store, config):
    with pytest.raises(ConfigError, match="backend is 'moon'; it must be one of local, ray"):
        launch(store, config, "a", backend="moon", start=lambda store: None)
    assert store.list() == []
    assert get_backend("local").takes_slot


@pytest.mark.parametrize("left", ["claimed", "starting"])
def test_a_run_claimed_by_a_killed_supervisor_is_started_by_the_next(store, make_scheduler, fake_backend, left):
    scheduler = make_scheduler(1)
    Queue(store.root).claim()
    if left == "starting":
        assert claim_start(store.get("a"))
    scheduler.tick()
    scheduler.tick()
    assert list(fake_backend.environments) == ["a"]
    assert states(store) == "a:starting"


def test_the_start_of_a_run_is_claimed_by_one_caller_only(store, config):
    run = store.create(config, "one")
    assert [claim_start(run), claim_start(run)] == [True, False]


def test_a_queued_run_with_a_worker_is_not_started_again(store, make_scheduler, fake_backend):
    scheduler = make_scheduler(1)
    fake_backend.processes["a"] = ProcessInfo("alive")
    advance(store.get("a"), "running")
    assert scheduler.tick()
    assert fake_backend.environments == {}
    assert Queue(store.root).snapshot().claimed == ("a",)


def test_a_supervisor_waits_for_a_locked_queue(store, config, until):
    run = launch(store, config, "one", start=lambda store: None)
    with Queue(store.root)._connection():  # held as by a process that is stuck
        supervisor = start_detached(
            stub_worker.command("supervise", "quick", "1", str(store.root)), store.root / "log.txt", {}
        )
        until(lambda: "another process has locked the queue" in (store.root / "log.txt").read_text())
    assert supervisor.wait(PATIENCE_SECONDS) == 0
    assert run.status().state == "done"


def test_sigterm_ends_a_supervisor_and_leaves_its_run_to_the_next(store, config, until):
    first = launch(store, config, "first", start=lambda store: None)
    second = launch(store, config, "second", start=lambda store: None)
    supervisor = start_detached(
        stub_worker.command("supervise", "patient", "1", str(store.root)), store.root / "log.txt", {}
    )
    until(lambda: bool(first.log_tail()))
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(PATIENCE_SECONDS) == 0
    assert states(store) == "first:running second:queued"
    with supervisor_lock(store.root):
        pass
    first.request_stop()
    stub_worker.start_supervising(store, behavior="quick")
    final_status(second)
    assert states(store) == "first:stopped second:done"


def test_a_supervisor_with_keep_starts_later_runs(store, config, until):
    store.root.mkdir()
    supervisor = start_detached(stub_worker.command("keep", "quick", "1", str(store.root)), store.root / "log.txt", {})
    other = start_detached(stub_worker.command("keep", "quick", "1", str(store.root)), store.root / "log.txt", {})
    for number in range(2):
        run = launch(store, config, f"run-{number}", start=lambda store: None)
        until(lambda run=run: run.status().state == "done")
    for process in (supervisor, other):
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_runs_folder_that_is_deleted_ends_its_supervisor(store, config, fake_backend):
    launch(store, config, "one", start=lambda store: None)
    gone = RunStore(store.root / "gone")
    assert supervise(gone, backends={"local": fake_backend}) == 0


def test_a_run_that_cannot_be_updated_does_not_block_others(store, make_scheduler, capsys, monkeypatch):
    def refresh_others(run, backend):
        if run.id == "a":
            raise RunError("run a: another process holds its status for 10 s")
        return refresh_status(run, backend)

    monkeypatch.setattr("bsc_core.jobs.scheduler.refresh_status", refresh_others)
    scheduler = make_scheduler(3, 2)
    advance(store.get("a"), "running")
    Queue(store.root).claim("a")
    assert [scheduler.tick() for _ in range(2)] == [True, True]
    assert states(store) == "a:running b:starting c:queued"
    assert capsys.readouterr().err.count("run a: its state could not be updated") == 1


def test_a_run_of_an_unknown_backend_fails(store, make_scheduler):
    scheduler = make_scheduler(2)
    store.get("a").update_status(backend="moon")
    scheduler.tick()
    assert states(store) == "a:failed b:starting"
    assert "backend is 'moon'" in store.get("a").status().error
