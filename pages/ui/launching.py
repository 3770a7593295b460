"""The right side of the New run page: the plan, what it costs, what is odd about it, its file, and the launch."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core.config import ASK_ABOVE, RunConfig, SweepConfig, count_runs, sweep_configs, to_toml
from bsc_core.errors import BscError, DataError
from bsc_core.figures import theme
from pages.ui import chains, frame, intents, loss_words, plan_words, preflight_view, show, store, sweeping
from pages.ui.train_fields import PAGE

MOST_CHECKED = 200  # values of one key
LAUNCHED = f"{PAGE}.launched"

if TYPE_CHECKING:
    from bsc_core.data.experiment import ExperimentData


def check(config: RunConfig, sweep: SweepConfig | None, data: ExperimentData) -> None:
    """Raise what the runs would be refused with: a setting, what the data lack, or a chain that leads nowhere.

    Of a sweep that has to be confirmed every value is looked at once here, and every run when it is launched.
    """
    from bsc_core.training.rows import training_rows

    training_rows(config, data.train)
    several = count_runs(sweep, config.training.seeds)
    parts = [sweep] if sweep is None or several <= ASK_ABOVE else [_alone(*item) for item in sweep.over.items()]
    for part in parts:
        for one in configs(config, part):
            chains.check(one)


def _alone(path: str, values: tuple[Any, ...]) -> SweepConfig:
    return SweepConfig(over={path: values[:MOST_CHECKED]})


def configs(config: RunConfig, sweep: SweepConfig | None) -> list[RunConfig]:
    """The configs of all runs, one for each cell and seed. Raises ConfigError that names the cell at fault."""
    return sweep_configs(config.model_dump(mode="json"), sweep, source=sweeping.SOURCE)


def ways_out(fault: BscError, known: plan_words.Facts) -> None:
    """Where the data cannot feed the loss: the losses that they can."""
    if isinstance(fault, DataError):
        st.caption(loss_words.fitting_sentence(known.shape))


def plan(config: RunConfig, sweep: SweepConfig | None, data: ExperimentData, known: plan_words.Facts) -> None:
    """The plan in words, what it costs and what is odd about it; of a sweep that of its first run."""
    runs = count_runs(sweep, config.training.seeds)
    if runs > 1:
        st.caption(f"The first of {theme.many(runs, 'run')}:")
    lines = [*plan_words.plan_sentences(config, known), chains.waiting_words(config)]
    st.markdown("\n".join(f"{place}. {line}" for place, line in enumerate(filter(None, lines), 1)))
    for oddity in plan_words.oddities(config, known):
        st.markdown(f":orange[:material/info:] {oddity}")
    times = times_as_long(config, sweep, known) if runs > 1 else 1.0
    if preflight_view.found(config) is None:
        costs(config, data, runs, times)
    preflight_view.panel(config, runs, times)


def times_as_long(config: RunConfig, sweep: SweepConfig | None, known: plan_words.Facts) -> float:
    """How much longer all runs take than the first: by the pairs they train on, where they are not too many to ask."""
    runs = count_runs(sweep, config.training.seeds)
    if runs > ASK_ABOVE:
        return float(runs)
    return sum(plan_words.pairs(one, known) for one in configs(config, sweep)) / plan_words.pairs(config, known)


def costs(config: RunConfig, data: ExperimentData, runs: int, times: float) -> None:
    """Expected time, memory and disk of all runs, and which run tells them."""
    from bsc_core.training.estimate import estimate

    expected = estimate(config, data, store.run_store())
    if expected.seconds is None:
        st.caption(f":material/timer: Time, memory and disk: {expected.source}.")
        return
    of_all = ", all runs" if runs > 1 else ""
    told = [
        (f"Time{of_all}", f"about {theme.duration(expected.seconds * times)}"),
        ("Memory", plan_words.size(expected.memory_bytes)),
        (f"Disk{of_all}", plan_words.size(expected.disk_bytes and expected.disk_bytes * runs)),
    ]
    for place, (label, value) in zip(show.columns(3, least=110), told, strict=True):
        with place:
            show.text(label, value)
    st.caption(expected.source.capitalize() + ".")


def as_file(config: RunConfig, sweep: SweepConfig | None) -> None:
    """The config file and the command that does the same."""
    text = file_text(config, sweep)
    with st.expander("Config file and command", icon=":material/code:", key=f"{PAGE}.open.file"):
        st.code(command(config, sweep), language="bash", wrap_lines=True)
        st.code(text, language="toml", height=260)
        st.download_button(
            "Save config.toml",
            text,
            file_name="config.toml",
            mime="application/toml",
            key=f"{PAGE}.save",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
        )


def command(config: RunConfig, sweep: SweepConfig | None) -> str:
    """What does the same on the command line: looks at it first, then queues it where the page does."""
    where = f"--runs {shlex.quote(str(store.run_store().root))}"
    if sweep is None and not config.training.seeds:
        return f"bsc check config.toml {where}\nbsc train config.toml --detach {where}"
    sure = " --yes" if count_runs(sweep, config.training.seeds) > ASK_ABOVE else ""
    return f"bsc sweep config.toml --detach{sure} {where}"


def file_text(config: RunConfig, sweep: SweepConfig | None) -> str:
    """The config as TOML, with a section for the sweep."""
    if sweep is None:
        return to_toml(config)
    import tomli_w

    over = {path: list(values) for path, values in sweep.over.items()}
    random: dict[str, Any] = {"method": "random", "runs": sweep.runs, "seed": sweep.seed} if sweep.runs else {}
    return f"{to_toml(config)}\n{tomli_w.dumps({'sweep': {**random, 'over': over}})}"


def launch_button(config: RunConfig | None, sweep: SweepConfig | None) -> None:
    """Launch once, however often it is clicked, also after the queue did not answer.

    More than a hundred runs have to be confirmed.
    """
    runs = 1 if config is None else count_runs(sweep, config.training.seeds)
    sure = runs <= ASK_ABOVE or st.checkbox(f"Yes, {runs:,} runs", key=f"{PAGE}.sure.{runs}")
    clicked = st.button(
        "Launch" if runs == 1 else f"Launch {runs:,} runs",
        type="primary",
        icon=":material/rocket_launch:",
        key=f"{PAGE}.launch",
        disabled=config is None or not sure,
        width="stretch",
    )
    if not clicked or config is None:
        intents.come_back(LAUNCHED)
        return
    try:
        with intents.launching(LAUNCHED, file_text(config, sweep), config, store.run_store()) as run_id:
            where = launch(config, sweep, run_id)
    except BscError as fault:
        show.error(fault)
        return
    frame.go("runs", **where)


def launch(config: RunConfig, sweep: SweepConfig | None, run_id: str) -> dict[str, str]:
    """Queue the run, or all runs of a sweep as a group; a second call with the same id does nothing.

    Returns what the Runs page is opened with.
    """
    from bsc_core import jobs

    several = configs(config, sweep)
    for one in several:
        chains.check(one)
    if len(several) == 1:
        jobs.launch(store.run_store(), several[0], run_id)
        return {"run": run_id}
    jobs.launch_group(store.run_store(), several, run_id, over=tuple(sweep.over) if sweep else ())
    return {"group": run_id}
