"""The plan side of the New run page: the plan in words, its cost, warnings, the config file, and the launch."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core import formatting
from bsc_core.config import CONFIRM_ABOVE, RunConfig, SweepConfig, count_runs, setting_name, sweep_configs, to_toml
from bsc_core.config.sweep import check_number
from bsc_core.data.decisions import applied_sentence
from bsc_core.data.sample_data import sample_config
from bsc_core.lab.presets import thumbnails
from bsc_core.presets.catalog import recommended
from bsc_core.runs.ids import new_run_id, short_id
from pages.ui.components import config_form, data_cache, display, launch_once, page_layout, url, users
from pages.ui.data import audit, uploads
from pages.ui.new_run import config_summary, encoder_picker, form, preflight, sweep_form
from pages.ui.new_run.config_summary import DataSummary
from pages.ui.new_run.sweep_form import PAGE

MAX_VALUES_CHECKED = 200  # of one key
MAX_ROWS = 10  # of the table of runs without scrolling
LAUNCHED = f"{PAGE}.launched"

if TYPE_CHECKING:
    from bsc_core.data.load import DatasetSplits


def check(config: RunConfig, sweep: SweepConfig | None, data: DatasetSplits) -> None:
    """Raise the error that the runs would fail with: a setting, missing data, or a missing model.

    In a large sweep, each value is checked once; `launch` checks each run.
    """
    from bsc_core.training.data import select_training_rows

    check_number(count_runs(sweep, config.training.seeds), sweep_form.SOURCE)
    select_training_rows(config, data.train)
    parts, first = [sweep], config
    if count_runs(sweep, config.training.seeds) > CONFIRM_ABOVE:
        training = config.training.model_copy(update={"seeds": config.training.seeds[:1]})
        first = config.model_copy(update={"training": training})
        over = {} if sweep is None else sweep.over
        parts = [SweepConfig(over={key: values[:MAX_VALUES_CHECKED]}) for key, values in over.items()] or [None]
    for part in parts:
        _checked_configs(first, part)


def _checked_configs(config: RunConfig, sweep: SweepConfig | None) -> list[RunConfig]:
    """Return the configs of all runs, whose files the user may read; the link of a sweep can name any."""
    configs = run_configs(config, sweep)
    for data in {one.data for one in configs}:
        uploads.check_files(data)
        uploads.check_decisions(data.false_negatives)
    for one in configs:
        encoder_picker.check(one)
    return configs


def run_configs(config: RunConfig, sweep: SweepConfig | None) -> list[RunConfig]:
    """Return the configs of all runs, one per cell and seed.

    Raises:
        ConfigError: A setting is invalid; the message names the cell.
    """
    return sweep_configs(config.model_dump(mode="json"), sweep, source=sweep_form.SOURCE)


def draw_plan(config: RunConfig, sweep: SweepConfig | None, data: DatasetSplits, summary: DataSummary) -> None:
    """Draw the plan in words, its cost and its warnings; for a sweep, those of its first run."""
    runs = count_runs(sweep, config.training.seeds)
    if runs > 1:
        if runs <= CONFIRM_ABOVE:
            _draw_runs(config, sweep)
        if sweep and "loss.temperature" in sweep.over and getattr(config.loss, "learn_temperature", False):
            st.caption("The temperature is learned, so the runs differ in its initial value.")
        st.caption("The first run:")
    lines = [*config_summary.plan_sentences(config, summary), encoder_picker.waiting_sentence(config)]
    st.markdown("\n".join(f"{number}. {display.escaped(line)}" for number, line in enumerate(filter(None, lines), 1)))
    if applied := applied_sentence(data.train):
        st.markdown(f":material/rule: {applied}.")
    for warning in config_summary.config_warnings(config, summary):
        _draw_warning(warning)
    _draw_audit(config, data)
    factor = time_factor(config, sweep, summary) if runs > 1 else 1.0
    if preflight.load_preflight(config) is None:
        _draw_costs(config, data, runs, factor)
    preflight.draw(config, runs, factor)


def _draw_runs(config: RunConfig, sweep: SweepConfig | None) -> None:
    """Draw the settings in which the runs differ, and their seeds."""
    from bsc_core.jobs.actions.groups import group_members

    over = tuple(sweep.over) if sweep else ()
    runs = [about for _, _, about in group_members(run_configs(config, sweep), "run", over)]
    rows = [
        {
            setting_name(key): config_form.format_setting(config_form.value_title(key, value))
            for key, value in run["setting"].items()
        }
        | {"Seed": run["seed"]}
        for run in runs
    ]
    with st.expander(f"Settings of the {len(rows)} runs"):
        height = "content" if len(rows) <= MAX_ROWS else 300
        st.dataframe(rows, height=height, hide_index=True, key=f"{PAGE}.runs", alt="Settings of each run that differ")


def _draw_audit(config: RunConfig, data: DatasetSplits) -> None:
    """Draw the number of errors and warnings of the audit, which of them are handled, and a button that shows them."""
    key = page_layout.saved_context().dataset_key
    if sum(len(part) for part in data.splits.values()) > audit.COUNTED_ROWS:
        return
    handled = config_summary.handled_findings(config)
    found, all_handled = audit.unfixed_counts(key, data, config.encoder.max_seq_length, handled)
    if not found:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        icon = ":green[:material/check_circle:]" if all_handled else ":orange[:material/info:]"
        st.markdown(f"{icon} Audit of the dataset: {display.escaped(found)}.", width="stretch")
        if st.button("Show the audit", key=f"{PAGE}.audit", type="tertiary", icon=":material/fact_check:"):
            page_layout.switch_page("data", **{audit.TAB: "Audit"})


def _draw_warning(warning: config_summary.ConfigWarning) -> None:
    """Draw a warning and, where there is one, the button that sets the usual value."""
    text = f":orange[:material/info:] {display.escaped(warning.text)}"
    if not warning.key:
        st.markdown(text)
        return
    section, _, field = warning.key.partition(".")
    widget = config_form.key(PAGE, section, field)
    label = f"Set {setting_name(warning.key)} to {config_form.format_setting(warning.value)}"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(text, width="stretch")
        change = {widget: warning.value}
        st.button(
            label, key=f"{widget}.usual", help=f"Set {warning.key}", on_click=st.session_state.update, args=(change,)
        )


def time_factor(config: RunConfig, sweep: SweepConfig | None, summary: DataSummary) -> float:
    """Return how many times as long all runs take as the first, by training pairs; for large sweeps by runs."""
    runs = count_runs(sweep, config.training.seeds)
    if runs > CONFIRM_ABOVE:
        return float(runs)
    pairs = sum(config_summary.count_pairs(run_config, summary) for run_config in run_configs(config, sweep))
    return pairs / config_summary.count_pairs(config, summary)


def _draw_costs(config: RunConfig, data: DatasetSplits, runs: int, factor: float) -> None:
    """Draw the expected time, memory and disk of all runs, and which run they are estimated from."""
    from bsc_core.training.estimate import estimate

    expected = estimate(config, data, data_cache.run_store())
    if expected.seconds is None:
        is_measured = st.session_state.get(preflight.STATE) == str(preflight.preflight_folder(config))
        text = "The preflight measures the time." if is_measured else _time_of_preset(config, factor) or expected.source
        st.caption(f":material/timer: {text}")
        return
    of_all = ", all runs" if runs > 1 else ""
    costs = {
        f"Time{of_all}": f"about {formatting.duration(expected.seconds * factor)}",
        "Memory": config_summary.format_bytes(expected.memory_bytes),
        f"Disk{of_all}": config_summary.format_bytes(expected.disk_bytes and expected.disk_bytes * runs),
    }
    display.labeled_values(costs, min_width=110)
    st.caption(f"Measured on this machine in run {display.escaped(short_id(expected.source))}.")


def _time_of_preset(config: RunConfig, factor: float) -> str:
    """Return the time of the recommended preset on another machine; "" if not only loss, batches and epochs differ."""
    preset, epochs = recommended(sample_config()), config.training.epochs
    training = config.training.model_copy(update={"epochs": preset.training.epochs})
    changes = {"name": "", "loss": preset.loss, "batching": preset.batching, "training": training}
    if config.model_copy(update=changes) != preset:
        return ""
    seconds = thumbnails()["run"]["seconds"] * factor * max(1, epochs / preset.training.epochs)
    is_same = (config.loss, config.batching) == (preset.loss, preset.batching)
    of_preset = "" if is_same else ", and from the recommended loss and batches"
    return (
        f"About {formatting.duration(seconds)}, estimated from another computer (two CPU cores){of_preset}. A "
        "preflight or a first run measures the time on this one."
    )


def draw_config_file(config: RunConfig, sweep: SweepConfig | None) -> None:
    """Draw the config file and the equivalent command."""
    text = config_toml(config, sweep)
    with st.expander("Config file and command", icon=":material/code:", **url.flag(f"{PAGE}.open.file")):
        st.code(command(config, sweep), language=None, wrap_lines=True)
        st.code(text, language=None, height=260)
        display.config_download(text, key=f"{PAGE}.save")


def command(config: RunConfig, sweep: SweepConfig | None) -> str:
    """Return the equivalent command line: check the config, then queue it in the same runs folder."""
    runs = f"--runs {shlex.quote(str(data_cache.run_store().root))}"
    if sweep is None and not config.training.seeds:
        return f"bsc check config.toml {runs}\nbsc train config.toml --detach {runs}"
    confirm = " --yes" if count_runs(sweep, config.training.seeds) > CONFIRM_ABOVE else ""
    return f"bsc sweep config.toml --detach{confirm} {runs}"


def config_toml(config: RunConfig, sweep: SweepConfig | None) -> str:
    """Return the config as TOML, with a section for the sweep."""
    if sweep is None:
        return to_toml(config)
    import tomli_w

    over = {key: list(values) for key, values in sweep.over.items()}
    random: dict[str, Any] = {"method": "random", "runs": sweep.runs, "seed": sweep.seed} if sweep.runs else {}
    return f"{to_toml(config)}\n{tomli_w.dumps({'sweep': {**random, 'over': over}})}"


def draw_launch_button(config: RunConfig | None, sweep: SweepConfig | None) -> None:
    """Draw the launch button, and for more than a hundred runs a confirmation; repeated clicks launch once."""
    runs = 1 if config is None else count_runs(sweep, config.training.seeds)
    confirmed = runs <= CONFIRM_ABOVE or st.checkbox(f"Yes, launch {runs:,} runs", key=f"{PAGE}.sure.{runs}")
    clicked = page_layout.action_bar().button(
        "Launch run" if runs == 1 else f"Launch {runs:,} runs",
        type="primary",
        icon=":material/rocket_launch:",
        key=f"{PAGE}.launch",
        disabled=config is None or not confirmed,
        on_click=launch_once.acknowledge,
    )
    if config is not None:
        plan = config_toml(config, sweep)
        launch_once.launch(
            LAUNCHED,
            clicked,
            lambda: _new_id(config, sweep),
            plan,
            lambda run_id: launch(config, sweep, run_id),
        )


def _new_id(config: RunConfig, sweep: SweepConfig | None) -> str:
    """Return an id for the run or the group, if the quota of the user allows it; building many configs takes long."""
    users.check_launch(count_runs(sweep, config.training.seeds), config.training.threads)
    return new_run_id(*run_configs(config, sweep))


def launch(config: RunConfig, sweep: SweepConfig | None, run_id: str) -> dict[str, str]:
    """Queue all runs and return the URL parameters that open them; a second call with the same id does nothing."""
    from bsc_core import jobs

    users.check_launch(count_runs(sweep, config.training.seeds), config.training.threads)  # before they are built
    configs = _checked_configs(config, sweep)
    threads = max(one.training.threads or 0 for one in configs) or None
    with users.admit_launch(run_id, len(configs), threads):
        preflight.cancel()
        if len(configs) == 1:
            jobs.launch(data_cache.run_store(), configs[0], run_id)
        else:
            jobs.launch_group(data_cache.run_store(), configs, run_id, over=tuple(sweep.over) if sweep else ())
    st.session_state[form.NAME_USED] = True
    return {"run" if len(configs) == 1 else "group": run_id}
