"""The three doors of the start page, each with a living thumbnail of the sample data."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bsc_core.config import RunConfig
from bsc_core.errors import BscError
from bsc_core.figures import hardness, softmax, theme
from bsc_core.runs import RunStore
from pages.ui import estimates, frame, intents, show, store

RUN_ID = "start.run_id"
NAMES = {"mrr": "MRR", "map": "MAP", "spearman": "Spearman", "f1": "F1"}


def see() -> None:
    """Door one: a softmax that follows its slider in the browser."""
    shown = estimates.thumbnails()["matrix"]
    st.subheader("See how it works", anchor=False)
    st.caption("Each question picks its answer among six. Lower the temperature τ and watch it make up its mind.")
    picture = softmax.live_softmax(shown["similarity"], shown["queries"], shown["documents"])
    show.figure(picture, name="start.softmax", alt=_matrix_words(shown["similarity"]))
    st.space("stretch")
    with st.container(horizontal=True):
        if st.button("Open the loss lab", key="start.learn", icon=":material/science:"):
            frame.go("learn")
        if st.button("Bring your own pairs", key="start.data", icon=":material/table_view:"):
            frame.go("data")


def inspect() -> None:
    """Door two: how hard the negatives of two strategies are."""
    shown = estimates.thumbnails()["hardness"]
    st.subheader("Inspect your batches", anchor=False)
    st.caption("Grouping near neighbours puts harder wrong answers into each batch than shuffling does.")
    table = hardness.counted_table(shown["edges"], shown["shares"])
    random, examples = (theme.share(shown["closer_share"][name]) for name in ("random", "examples"))
    pairs = f"{shown['pairs']} questions with their answers, batches of {shown['batch_size']}"
    words = f"A wrong answer lies nearer than the right one: random {random}, examples {examples}."
    alt = f"Histograms of the cosine to the nearest wrong answer under two strategies; {pairs}. {words}"
    show.figure(hardness.hardness_figure(table, height=264), name="start.hardness", alt=alt)
    st.caption(f"{words} {pairs}.")
    st.space("stretch")
    if st.button("Open the batches", key="start.batches", icon=":material/grid_view:"):
        frame.go("batches", dataset=store.SAMPLE)


def launch(runs: RunStore, config: RunConfig) -> None:
    """Door three: the recommended run on the sample data, one click away."""
    st.subheader("Launch a run", anchor=False)
    st.caption(
        "The recommended preset on the sample data. It trains in the background; closing this tab does not stop it."
    )
    st.table(_plan_words(config), border="horizontal", hide_header=True, hide_index=True, alt="The run's settings")
    _outcome(estimates.measured(runs, config))
    st.space("stretch")
    if st.button("Launch", key="start.launch", type="primary", icon=":material/rocket_launch:"):
        _launch(runs, config)
    else:
        intents.come_back(RUN_ID)


def _outcome(measured: estimates.Measured | None) -> None:
    if measured is None:
        st.caption(":material/timer: Not measured on this machine yet.")
        return
    place = "on this machine" if measured.here else "on two processor cores"
    st.caption(f":material/timer: About {theme.duration(measured.seconds)} {place}, measured.")
    if measured.before is not None and measured.after is not None:
        name = NAMES.get(measured.metric, measured.metric)
        words = f"{name} on held-out questions, from {theme.metric(measured.before)}."
        st.metric(words, theme.metric(measured.after), theme.change(measured.after - measured.before))


def _launch(runs: RunStore, config: RunConfig) -> None:
    from bsc_core.jobs import launch as launch_job

    try:
        with intents.launching(RUN_ID, config.model_dump_json(), config, runs) as run_id:
            launch_job(runs, config, run_id)
    except BscError as fault:
        show.error(fault)
        return
    frame.go("runs", dataset=store.SAMPLE, run=run_id)


def _plan_words(config: RunConfig) -> list[dict[str, str]]:
    training, batching, loss = config.training, config.batching, config.loss
    lines = {
        "Encoder": frame.ENCODERS.get(config.encoder.name, config.encoder.name),
        "Batches": f"{batching.strategy}, groups of {batching.group_size}, {training.batch_size} pairs each",
        "Loss": f"batch softmax, temperature {loss.temperature:g}",
        "Training": f"{theme.many(training.epochs, 'epoch')}, learning rate {training.learning_rate:g}",
    }
    return [{"what": name, "value": value} for name, value in lines.items()]


def _matrix_words(values: list[list[float]]) -> str:
    matrix = np.array(values)
    right = int((matrix.argmax(axis=1) == np.arange(len(matrix))).sum())
    return (
        f"Six questions by six answers as softmax probabilities; for {right} of 6 the own answer is the most similar."
    )
