"""One supervisor's looks at the queue: slots, GPUs, backends, and what an earlier supervisor left half done."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from bsc_core.config import RunConfig
from bsc_core.errors import ConfigError, JobError, RunError
from bsc_core.jobs import launch, pause, set_slots, slots, unpause
from bsc_core.jobs.backend import AwayError, Backend, Look
from bsc_core.jobs.backends import backend_named
from bsc_core.jobs.devices import least_used, visible_gpus
from bsc_core.jobs.local import start_detached
from bsc_core.jobs.queue import Queue, supervisor_lock
from bsc_core.jobs.reconciling import settle
from bsc_core.jobs.serving import Serving
from bsc_core.jobs.states import advance, started
from bsc_core.jobs.supervisor import supervise
from bsc_core.runs import Run, RunStatus, RunStore

Until = Callable[[Callable[[], bool]], None]


class Place:
    """A backend that starts nothing and says what it is told to."""

    def __init__(self, *, takes_slot: bool = True) -> None:
        self.takes_slot = takes_slot
        self.fault: JobError | None = None
        self.looks: dict[str, Look] = {}
        self.environments: dict[str, Mapping[str, str]] = {}

    def start(self, run: Run, environment: Mapping[str, str]) -> None:
        if self.fault is not None:
            raise self.fault
        self.environments[run.id] = environment
        self.looks[run.id] = Look("alive")

    def look(self, run: Run) -> Look:
        return self.looks.get(run.id, Look("ended"))

    def ask(self, run: Run) -> None:
        run.request_stop()

    def end(self, run: Run, number: signal.Signals) -> None:
        self.looks[run.id] = Look("ended")


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def serve(store: RunStore, config: RunConfig, place: Place) -> Callable[..., Serving]:
    """Launch runs a, b, c, ... and make what serves them; nothing is looked at yet."""

    def make(number: int, slots: int | None = None, backend: str | None = None) -> Serving:
        for name in "abcdefgh"[:number]:
            launch(store, config, name, backend=backend, start=lambda store: None)
        return Serving(store, slots, {"local": place, "ray": place})

    return make


def states(store: RunStore) -> str:
    return " ".join(f"{run.id}:{run.status().state}" for run in sorted(store.list(), key=lambda run: run.id))


def test_as_many_runs_go_on_as_there_are_slots(store: RunStore, serve: Callable[..., Serving], place: Place) -> None:
    serving = serve(3, 2)
    assert serving.look()
    assert states(store) == "a:starting b:starting c:queued"
    place.looks["a"] = Look("ended", 0)
    advance(store.get("a"), "running")
    store.get("a").write_json("result", {"state": "done"})
    serving.look()
    assert states(store) == "a:done b:starting c:starting"


def test_slots_can_be_changed_while_runs_go_on(store: RunStore, serve: Callable[..., Serving]) -> None:
    serving = serve(3)
    serving.look()
    assert (slots(store), len(Queue(store.root).claimed())) == (1, 1)
    set_slots(store, 3)
    serving.look()
    assert (slots(store), len(Queue(store.root).claimed())) == (3, 3)


def test_a_paused_queue_starts_nothing_and_goes_on_when_it_is_unpaused(
    store: RunStore, serve: Callable[..., Serving]
) -> None:
    serving = serve(1)
    pause(store)
    assert not serving.look()
    assert states(store) == "a:queued"
    woken: list[RunStore] = []
    unpause(store, start=woken.append)
    assert woken == [store]
    assert serving.look()
    assert states(store) == "a:starting"


def test_the_order_at_the_moment_of_a_free_slot_counts(store: RunStore, serve: Callable[..., Serving]) -> None:
    serving = serve(3)
    Queue(store.root).move("c", 0)
    serving.look()
    assert states(store) == "a:queued b:queued c:starting"


def test_each_run_gets_the_gpu_that_is_used_least(
    store: RunStore, serve: Callable[..., Serving], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2")
    serving = serve(3)
    serving.look()
    assert slots(store) == 2
    given = {name: environment["CUDA_VISIBLE_DEVICES"] for name, environment in place.environments.items()}
    assert given == {"a": "GPU-1", "b": "GPU-2"}
    place.looks["a"] = Look("ended", -9)
    serving.look()
    assert place.environments["c"]["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_gpus_are_told_by_the_environment_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    assert visible_gpus() == ("GPU-a", "GPU-b")  # not asked again at once
    monkeypatch.setattr("bsc_core.jobs.devices._FRESH_SECONDS", 1e-6)
    assert visible_gpus() == ()
    assert least_used(("a", "b"), ["a", ""]) == "b"


def test_a_run_elsewhere_takes_no_slot_here(store: RunStore, config: RunConfig, place: Place) -> None:
    elsewhere = Place(takes_slot=False)
    launch(store, config, "a", start=lambda store: None)
    launch(store, config, "b", backend="ray", start=lambda store: None)
    launch(store, config, "c", start=lambda store: None)
    Serving(store, 1, {"local": place, "ray": elsewhere}).look()
    assert states(store) == "a:starting b:starting c:queued"
    assert "CUDA_VISIBLE_DEVICES" not in elsewhere.environments["b"]


def test_a_place_that_is_away_keeps_its_runs_queued_with_the_reason(
    store: RunStore, serve: Callable[..., Serving], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = serve(2)
    place.fault = AwayError("the head does not answer")
    assert serving.look()
    assert states(store) == "a:queued b:queued"
    assert store.get("a").status().message == "the head does not answer"
    assert Queue(store.root).waiting() == ["a", "b"]
    assert serving.taken == 0
    place.fault = None
    serving.look()
    assert states(store) == "a:queued b:queued"  # not asked again at once
    monkeypatch.setattr("bsc_core.jobs.serving.AWAY_SECONDS", 0.0)
    again = Serving(store, 1, {"local": place})
    assert again.look()
    assert states(store) == "a:starting b:queued"


def test_a_place_that_cannot_be_told_about_now_changes_no_state(
    store: RunStore, serve: Callable[..., Serving], place: Place
) -> None:
    serving = serve(1)
    serving.look()
    advance(store.get("a"), "running")
    place.looks["a"] = Look("unknown")
    assert serving.look()
    assert states(store) == "a:running"
    place.looks["a"] = Look("ended", cause="the cluster was taken down")
    assert not serving.look()
    assert "the cluster was taken down" in (store.get("a").status().error or "")


def test_an_unknown_backend_is_refused_before_a_run_is_made(store: RunStore, config: RunConfig) -> None:
    with pytest.raises(ConfigError, match="backend is 'moon'; it must be one of local, ray"):
        launch(store, config, "a", backend="moon", start=lambda store: None)
    assert store.list() == []
    assert backend_named("local").takes_slot


@pytest.mark.parametrize("left", ["claimed", "starting"])
def test_a_run_that_a_killed_supervisor_took_but_did_not_start_is_started_by_the_next(
    store: RunStore, serve: Callable[..., Serving], place: Place, left: str
) -> None:
    serving = serve(1)
    Queue(store.root).claim()
    if left == "starting":
        assert started(store.get("a"))
    serving.look()
    serving.look()
    assert list(place.environments) == ["a"]
    assert states(store) == "a:starting"


def test_a_run_is_taken_for_starting_by_one_caller_only(store: RunStore, config: RunConfig) -> None:
    run = store.create(config, "one")
    assert [started(run), started(run)] == [True, False]


def test_a_queued_run_that_a_worker_has_is_followed_and_not_started(
    store: RunStore, serve: Callable[..., Serving], place: Place
) -> None:
    serving = serve(1)
    place.looks["a"] = Look("alive")
    advance(store.get("a"), "running")
    assert serving.look()
    assert place.environments == {}
    assert Queue(store.root).claimed() == ["a"]


def test_a_supervisor_waits_for_a_queue_that_does_not_answer(
    store: RunStore, config: RunConfig, stand_in: ModuleType, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launch(store, config, "one", start=lambda store: None)
    with Queue(store.root)._connection():  # held as by a process that is stuck
        supervisor = start_detached(
            stand_in.command("supervise", "quick", "1", str(store.root)), store.root / "log.txt", {}
        )
        until(lambda: "another process holds the queue" in (store.root / "log.txt").read_text())
    assert supervisor.wait(60) == 0
    assert run.status().state == "done"


def test_sigterm_ends_a_supervisor_and_leaves_its_run_to_the_next(
    store: RunStore, config: RunConfig, stand_in: ModuleType, until: Until
) -> None:
    first = launch(store, config, "first", start=lambda store: None)
    second = launch(store, config, "second", start=lambda store: None)
    supervisor = start_detached(
        stand_in.command("supervise", "patient", "1", str(store.root)), store.root / "log.txt", {}
    )
    until(lambda: bool(first.log_tail()))
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(30) == 0
    assert states(store) == "first:running second:queued"
    with supervisor_lock(store.root):
        pass
    first.request_stop()
    stand_in.start_supervising(store, behaviour="quick")
    until(lambda: second.status().is_finished)
    assert states(store) == "first:stopped second:done"


def test_a_supervisor_that_keeps_serving_takes_what_comes_later(
    store: RunStore, config: RunConfig, stand_in: ModuleType, until: Until
) -> None:
    store.root.mkdir()
    supervisor = start_detached(stand_in.command("keep", "quick", "1", str(store.root)), store.root / "log.txt", {})
    other = start_detached(stand_in.command("keep", "quick", "1", str(store.root)), store.root / "log.txt", {})
    for number in range(2):
        run = launch(store, config, f"run-{number}", start=lambda store: None)
        until(lambda run=run: run.status().state == "done")  # type: ignore[misc]
    for process in (supervisor, other):
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_a_runs_folder_that_is_deleted_ends_its_supervisor(store: RunStore, config: RunConfig, place: Place) -> None:
    launch(store, config, "one", start=lambda store: None)
    gone = RunStore(store.root / "gone")
    assert supervise(gone, backends={"local": place}) == 0


def test_a_run_that_cannot_be_settled_keeps_no_other_waiting(
    store: RunStore, serve: Callable[..., Serving], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle_others(run: Run, backend: Backend) -> RunStatus:
        if run.id == "a":
            raise RunError("run a: another process holds its status for 10 s")
        return settle(run, backend)

    monkeypatch.setattr("bsc_core.jobs.serving.settle", settle_others)
    serving = serve(3, 2)
    advance(store.get("a"), "running")
    Queue(store.root).claim("a")
    assert [serving.look() for _ in range(2)] == [True, True]
    assert states(store) == "a:running b:starting c:queued"
    assert capsys.readouterr().err.count("run a: its state could not be brought up to date") == 1


def test_a_run_of_an_unknown_backend_fails(store: RunStore, serve: Callable[..., Serving]) -> None:
    serving = serve(2)
    store.get("a").update_status(backend="moon")
    serving.look()
    assert states(store) == "a:failed b:starting"
    assert "backend is 'moon'" in (store.get("a").status().error or "")
