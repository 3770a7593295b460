"""Groups of runs: launch, differing settings, and summaries over seeds."""

import statistics
import time
from typing import Any

import pytest

from bsc_core.config import SweepConfig, sweep_configs
from bsc_core.errors import ConfigError, JobError
from bsc_core.jobs import group_summary, launch_group, reconcile
from bsc_core.jobs.actions.groups import differing_keys
from bsc_core.jobs.actions.resuming import continue_run
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.states import advance
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import RESUMED
from bsc_core.runs.store import without_resumed
from tests.jobs.conftest import add_checkpoint

SWEEP = SweepConfig(over={"loss.temperature": (0.05, 0.1)})
VALUES: dict[str, Any] = {"data": {"train": "pairs.tsv"}, "training": {"seeds": [1, 2]}}
NAMES = [
    "group-001-temperature-0.05-seed-1",
    "group-002-temperature-0.05-seed-2",
    "group-003-temperature-0.1-seed-1",
    "group-004-temperature-0.1-seed-2",
]


@pytest.fixture
def group(store):
    return launch_group(store, sweep_configs(VALUES, SWEEP), "group", over=SWEEP.over, start=lambda store: None)


def finish(run: Run, value: float) -> None:
    run.update_status(metric_name="mrr", metric_best=value, state="done")


def test_a_group_is_queued_in_order_and_each_run_knows_its_setting(store, group):
    assert Queue(store.root).waiting() == NAMES
    assert store.list()[::-1] == group
    assert group[2].status().group == "group"
    assert group[2].read_json("group") == {"group": "group", "setting": {"loss.temperature": 0.1}, "seed": 1}


def test_launching_a_group_again_launches_what_is_missing(store, group):
    configs = sweep_configs(VALUES, SWEEP)
    Queue(store.root).claim()
    again = launch_group(store, configs, "group", over=SWEEP.over, start=lambda store: None)
    assert again == group
    assert len(store.list()) == 4
    assert len(Queue(store.root).waiting()) == 3


def test_differing_keys_are_found_from_the_configs(store):
    configs = sweep_configs(VALUES, SweepConfig(over={"training.epochs": (1, 2), "training.batch_size": (8,)}))
    assert differing_keys(configs) == ["training.epochs"]
    runs = launch_group(store, configs, "group", start=lambda store: None)
    assert [run.read_json("group")["setting"] for run in runs] == [{"training.epochs": 1}] * 2 + [
        {"training.epochs": 2}
    ] * 2


def settings_of(store: RunStore, *losses: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of the runs of a sweep over whole loss sections."""
    sweep = SweepConfig(over={"loss": losses})
    configs = sweep_configs({"data": {"train": "pairs.tsv"}}, sweep)
    runs = launch_group(store, configs, "group", over=sweep.over, start=lambda store: None)
    return [run.read_json("group")["setting"] for run in runs]


def test_losses_with_different_names_are_settings_as_a_whole(store):
    settings = settings_of(store, {"name": "bsc"}, {"name": "mse"})
    assert [(list(setting), setting["loss"]["name"]) for setting in settings] == [(["loss"], "bsc"), (["loss"], "mse")]


def test_losses_with_the_same_name_are_distinguished_by_their_settings(store):
    cold, warm = {"name": "bsc", "temperature": 0.05}, {"name": "bsc", "temperature": 0.5}
    assert settings_of(store, cold, warm, {"name": "mse"}) == [
        {"loss.name": "bsc", "loss.temperature": 0.05},
        {"loss.name": "bsc", "loss.temperature": 0.5},
        {"loss.name": "mse", "loss.temperature": None},
    ]


def test_a_section_with_one_name_is_replaced_by_the_settings_that_differ(store):
    cold, warm = {"name": "bsc", "temperature": 0.05}, {"name": "bsc", "temperature": 0.5}
    assert settings_of(store, cold, warm) == [{"loss.temperature": 0.05}, {"loss.temperature": 0.5}]


def test_a_summary_has_mean_deviation_and_best_of_each_setting(group):
    for run, value in zip(group, (0.5, 0.6, 0.9, 0.1), strict=True):
        finish(run, value)
    summary = group_summary(group)
    assert (summary["group"], summary["metric"], summary["runs"], summary["done"]) == ("group", "mrr", 4, 4)
    first, second = summary["settings"]
    assert first["setting"] == {"loss.temperature": 0.05}
    assert (first["mean"], first["deviation"]) == (pytest.approx(0.55), pytest.approx(statistics.stdev([0.5, 0.6])))
    assert (first["seeds"], first["values"], first["best_run"]) == ([1, 2], [0.5, 0.6], NAMES[1])
    assert second["mean"] == pytest.approx(0.5)
    assert (summary["best_run"], summary["best_setting"]) == (NAMES[2], {"loss.temperature": 0.05})


def test_runs_with_different_main_metrics_are_compared_by_one_of_them(group):
    dev = [{"mrr": 0.4, "spearman": 0.1}, {"mrr": 0.5}, {"mrr": 0.6, "spearman": 0.9}, {"mrr": None, "spearman": 0.8}]
    for run, name, metrics in zip(group, ("spearman", "mrr", "spearman", "spearman"), dev, strict=True):
        run.update_status(metric_name=name, metric_best=metrics[name], state="done")
        run.write_evaluation("after", {"dev": metrics})
    summary = group_summary(group)
    assert (summary["metric"], summary["main_metrics"]) == ("mrr", ["mrr", "spearman"])
    assert [cell["values"] for cell in summary["settings"]] == [[0.6, None], [0.4, 0.5]]
    assert group_summary(group[::-1])["metric"] == "mrr"
    group[0].write_evaluation("after", {"dev": {"spearman": 0.1}})
    summary = group_summary(group)
    assert (summary["metric"], summary["best_run"]) == ("spearman", NAMES[2])
    assert [cell["values"] for cell in summary["settings"]] == [[0.9, 0.8], [0.1, None]]


def test_unfinished_runs_are_not_in_the_mean(group):
    finish(group[0], 0.5)
    group[1].update_status(metric_name="mrr", metric_best=0.9, state="running")
    advance(group[2], "failed", error="broken")
    summary = group_summary(group)
    assert summary["states"] == {"done": 1, "running": 1, "failed": 1, "queued": 1}
    first, second = summary["settings"]
    assert (first["mean"], first["deviation"], first["values"]) == (0.5, None, [0.5, None])
    assert (second["mean"], second["best"], second["best_run"]) == (None, None, None)


def test_a_group_without_metrics_has_no_best(group):
    summary = group_summary(group)
    assert (summary["metric"], summary["best_run"], summary["best_setting"], summary["done"]) == (None, None, None, 0)
    assert group_summary([])["runs"] == 0


def test_a_resumed_run_replaces_the_one_that_it_resumes(store, group):
    old = group[0]
    old.update_status(state="stopped")
    add_checkpoint(old)
    following = continue_run(store, old)
    finish(following, 0.7)
    summary = group_summary(store.list()[::-1])
    assert (summary["runs"], summary["done"], summary["best_run"]) == (4, 1, following.id)
    assert summary["best_setting"] == {"loss.temperature": 0.05}


def test_a_run_folder_from_elsewhere_replaces_no_run_that_it_claims_to_resume(store, group):
    finish(group[0], 0.7)
    other = store.create(group[0].config(), "other")
    other.write_json("group", group[0].read_json("group"))
    other.write_json(RESUMED, {"from": group[0].id})  # not signed
    other.update_status(group=group[0].status().group, resumed_from=group[0].id)
    assert group[0] in without_resumed(store.list())
    other.write_signed(RESUMED, {"from": group[0].id})
    assert group[0] not in without_resumed(store.list())


def test_a_run_with_another_setting_replaces_none_that_it_claims_to_resume(store, group):
    finish(group[0], 0.7)
    other = store.create(group[-1].config(), "other")
    other.write_json("group", group[-1].read_json("group"))
    other.update_status(group=group[0].status().group, resumed_from=group[0].id)
    other.write_signed(RESUMED, {"from": group[0].id})
    finish(other, 0.9)
    assert {run.id for run in without_resumed(store.list())} == {run.id for run in store.list()}
    assert group_summary(store.list())["runs"] == 5


def test_a_config_with_seeds_is_refused_as_a_single_run(store, config):
    several = config.model_copy(update={"training": config.training.model_copy(update={"seeds": (1, 2)})})
    with pytest.raises(ConfigError, match="launch a group"):
        launch_group(store, [several], "group", start=lambda store: None)
    assert store.list() == []


def test_a_group_is_created_completely_if_the_queue_fails_and_queued_once(store, monkeypatch):
    requested: list[str] = []

    def refuse(queue, run_id):
        requested.append(run_id)
        raise JobError(f"{queue.path}: another process has locked the queue; try again")

    configs = sweep_configs(VALUES, SWEEP)
    with monkeypatch.context() as patch:
        patch.setattr(Queue, "add", refuse)
        with pytest.raises(
            JobError, match=r"^group group of 4 runs was created but not queued yet .*has locked the queue\);"
        ):
            launch_group(store, configs, "group", over=SWEEP.over, start=lambda store: None)
    assert requested == NAMES[:1]
    assert [run.id for run in store.list()[::-1]] == NAMES
    launch_group(store, configs, "group", over=SWEEP.over, start=lambda store: None)
    reconcile(RunStore(store.root, clock=lambda: time.time() + 61), start=lambda store: None)
    assert Queue(store.root).waiting() == NAMES


def test_a_group_on_a_full_disk_reports_how_many_runs_were_created(store, monkeypatch):
    create = RunStore.create

    def full(store, config, run_id, fill):
        if run_id == NAMES[2]:
            raise OSError(28, "No space left on device")
        return create(store, config, run_id, fill)

    monkeypatch.setattr(RunStore, "create", full)
    with pytest.raises(JobError, match=r"^group group: 2 of 4 runs were created; .*No space left"):
        launch_group(store, sweep_configs(VALUES, SWEEP), "group", start=lambda store: None)
    assert Queue(store.root).waiting() == NAMES[:2]


def test_the_id_of_a_run_has_the_values_that_fit_and_sections_by_their_name(store):
    over: dict[str, Any] = {"loss": ({"name": "mse"}, {"name": "bsc", "temperature": 0.05}), "training.epochs": (1,)}
    over |= {"training.learning_rate": (1e-5, 3e-5), "training.gradient_accumulation_steps": (1, 2)}
    sweep = SweepConfig(over=over)
    runs = launch_group(store, sweep_configs(VALUES, sweep), "g", over=sweep.over, start=lambda store: None)
    assert runs[0].id == "g-001-loss-mse-learning-rate-1e-05-seed-1"
    assert runs[-1].id == "g-016-loss-bsc-learning-rate-3e-05-seed-2"
