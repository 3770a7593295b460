"""The cards of the Start page, with live previews on the sample data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.config import RunConfig
from bsc_core.errors import BscError
from bsc_core.figures.batches import plans, softmax
from bsc_core.lab.presets import thumbnails
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import new_run_id
from pages.ui.components import config_form, data_cache, display, launch_once, page_layout, users
from pages.ui.data import import_form

RECENT_RUNS = 50  # runs among which one with the same settings is searched
RUN_ID = "start.run_id"
# In a narrow window, the card with the main action comes first and takes the whole row.
STYLE = (
    "<style>@media (max-width: 1100px)"
    " { [data-testid='stGridCell']:has(.st-key-start-launch) { order: -1; grid-column: 1 / -1; } }</style>"
)


def loss_lab() -> None:
    """Draw the card of the loss lab: a softmax that follows its slider in the browser."""
    preview = thumbnails()["matrix"]
    st.header("See how it works", anchor=False)
    st.caption("Each question is matched with six answers. Lower the temperature τ to sharpen the probabilities.")
    figure = softmax.interactive_softmax(preview["similarity"], preview["queries"], preview["documents"])
    best = np.argmax(preview["similarity"], axis=1)
    correct = int((best == np.arange(len(best))).sum())
    alt = f"Softmax probabilities of six questions and six answers; for {correct} of 6 the correct answer ranks first."
    display.figure(figure, name="start.softmax", alt=alt, title=f"{correct} of 6 correct answers rank first")
    st.space("stretch")
    if st.button("Open the loss lab", key="start.learn", icon=":material/science:"):
        page_layout.switch_page("learn")


def batches() -> None:
    """Draw the card of the batches: how hard the negatives of two strategies are."""
    preview = thumbnails()["hardness"]
    st.header("Inspect your batches", anchor=False)
    pairs = f"{preview['pairs']} training pairs, batches of {preview['batch_size']}"
    st.caption(f"Batches of nearest neighbors contain harder negatives than shuffled ones: {pairs}.")
    table = plans.histogram_table(preview["edges"], preview["shares"])
    random, nearest = (formatting.percent(preview["closer_share"][name]) for name in ("random", "nearest"))
    shares = f"Queries that are closer to a negative than to their answer: {random} (random), {nearest} (nearest)"
    alt = f"Histograms of the cosine to the nearest negative under two strategies; {pairs}. {shares}."
    display.figure(plans.hardness_figure(table, height=264), name="start.hardness", alt=alt, title=shares)
    st.space("stretch")
    with st.container(horizontal=True, gap="xsmall"):
        if users.may_open("batches") and st.button(
            "Inspect the batches", key="start.batches", icon=":material/grid_view:"
        ):
            page_layout.switch_page("batches", dataset=data_cache.SAMPLE)
        if users.may_open("data") and st.button("Import data", key="start.data", icon=":material/table_view:"):
            page_layout.switch_page("data", **{import_form.open_key(): "true"})


def launch(runs: RunStore, config: RunConfig) -> None:
    """Draw the card of the recommended run on the sample data."""
    st.header("Launch a run", anchor=False)
    st.caption("Recommended settings on the sample data. Training continues in the background when you close this tab.")
    st.table(_settings_table(config), border="horizontal", hide_header=True, hide_index=True, alt="The run's settings")
    _estimate(estimate(runs, config))
    if config.data.false_negatives:
        st.caption("A new run uses your decisions about false negatives; the results above do not.")
    st.space("stretch")
    clicked = st.button(
        "Launch run",
        key="start.launch",
        type="primary",
        icon=":material/rocket_launch:",
        on_click=launch_once.acknowledge,
    )

    def start(run_id: str) -> dict[str, str]:
        from bsc_core.jobs import launch as launch_job

        with users.admit_launch(run_id, 1, config.training.threads):
            launch_job(runs, config, run_id)
        return {"dataset": data_cache.SAMPLE, "run": run_id}

    launch_once.launch(RUN_ID, clicked, lambda: new_run_id(config), config.model_dump_json(), start)


def _estimate(estimate: CostEstimate | None) -> None:
    if estimate is None:
        st.caption(":material/timer: No time estimate for this machine yet.")
        return
    st.caption(f":material/timer: {time_sentence(estimate)}")
    if estimate.before is not None and estimate.after is not None:
        name, before = formatting.metric_name(estimate.metric), formatting.metric(estimate.before)
        label = f"Expected {name} after training (before: {before})"
        ends = dict.fromkeys(formatting.metric(value) for value in estimate.after)
        gains = dict.fromkeys(formatting.signed(value - estimate.before) for value in estimate.after)
        st.metric(label, "–".join(ends), "–".join(gains))
        if len(ends) > 1:
            st.caption(
                "On held-out questions: the range of five runs with different seeds on another computer. On other "
                "processors, the last digits differ."
            )


def time_sentence(estimate: CostEstimate) -> str:
    """Return the duration of the recommended run, and where it was measured."""
    time = f"About {formatting.duration(estimate.seconds)}"
    if estimate.here:
        return f"{time}, as in your last run with these settings on this computer."
    return f"{time}, estimated from another computer (two CPU cores). A first run measures the time on this one."


def _settings_table(config: RunConfig) -> list[dict[str, str]]:
    training, batching, loss = config.training, config.batching, config.loss
    rate = formatting.number(training.learning_rate)
    rows = {
        "Encoder": config_form.value_title("encoder.name", config.encoder.name),
        "Batches": f"{batching.strategy}, groups of {batching.group_size}, {training.batch_size} pairs each",
        "Loss": f"batch softmax, temperature {loss.temperature:g}",
        "Training": f"{formatting.plural(training.epochs, 'epoch')}, learning rate {rate}",
    }
    return [{"setting": name, "value": value} for name, value in rows.items()]


@dataclass(frozen=True)
class CostEstimate:
    """Duration and main dev metric of the recommended run.

    after: lowest and highest value of several seeds after training. here: whether the seconds are those of a run in
    this runs folder.
    """

    seconds: float
    metric: str
    before: float | None
    after: tuple[float, float] | None
    here: bool


def estimate(store: RunStore, config: RunConfig) -> CostEstimate | None:
    """Return the shipped values, with the seconds of the latest run with these settings; None without shipped ones."""
    shipped = thumbnails().get("run")
    if not shipped:
        return None
    for run in store.list()[:RECENT_RUNS]:
        status = run.status()
        if status.state == "done" and status.started and status.finished and _same(run, config):
            return CostEstimate(**shipped | {"seconds": status.finished - status.started}, here=True)
    return CostEstimate(**shipped, here=False)


def _same(run: Run, config: RunConfig) -> bool:
    try:
        return run.config().model_copy(update={"name": ""}) == config
    except BscError:  # written by a version with other fields
        return False
