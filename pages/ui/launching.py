"""What the New run page does: the form, the config from it, the plan beside it, the launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st
from pydantic import TypeAdapter

from bsc_core.batching.plan import NEED_VECTORS
from bsc_core.config import (
    BatchingConfig,
    EncoderConfig,
    LossConfig,
    RunConfig,
    TrainingConfig,
    make_config,
    to_toml,
)
from bsc_core.errors import BscError, DataError
from bsc_core.figures import theme
from bsc_core.recipes.presets import PRESETS, suggested
from bsc_core.runs import new_run_id
from pages.ui import forms, frame, loss_form, loss_words, plan_words, show, store

if TYPE_CHECKING:
    from bsc_core.data.experiment import ExperimentData

PAGE = "train"
BATCHING = {  # strategy: what it asks for, and what stands under More
    "examples": (("group_size", "by", "metric"), ("neighbours", "search", "distinct_texts", "reverse")),
    "words": (("group_size", "by", "shingle_size"), ("stop_count",)),
    "clusters": (("group_size", "by", "clusters"), ("metric",)),
    "neighbours": (("group_size", "by", "shingle_size"), ("shingle_neighbours", "metric")),
}
OF_ALL = ("refresh", "refresh_epochs", "keep_groups", "forbid_collisions")
SHOWN = {
    "data": ("dev_share", "threshold"),
    "encoder": ("name", "max_length"),
    "batching": ("strategy", "group_size", "by", "metric", "shingle_size", "clusters"),
    "training": ("epochs", "batch_size", "learning_rate", "seed"),
}
MORE = {
    "data": ("label_min", "label_max", "train_split", "dev_split", "test_split", "split_by"),
    "encoder": (),
    "batching": ("neighbours", "search", "distinct_texts", "reverse", "shingle_neighbours", "stop_count", *OF_ALL),
    "training": (
        *("steps", "warmup", "schedule", "weight_decay", "max_grad_norm", "temperature_learning_rate"),
        *("head_learning_rate", "precision", "micro_tokens", "checkpoint_steps", "threads"),
    ),
}
FIELDS = {section: (*SHOWN[section], *MORE[section]) for section in SHOWN}
ORDER = ("data", "encoder", "batching", "loss", "training")


def preset_picker(context: frame.Context, known: plan_words.Facts | None) -> None:
    """Choose a starting point. Choosing one fills the form anew; so do another dataset and settings sent by a page.

    Data of another shape bring the preset that fits them. What Batches or the loss lab sent lies over the preset; when
    another preset is chosen, the plan stays and the loss is the preset's.
    """
    fitting = suggested(known.shape if known else None)
    if known and st.session_state.get(f"{PAGE}.fitting") != fitting:
        st.session_state[f"{PAGE}.preset"] = st.session_state[f"{PAGE}.fitting"] = fitting
    preset = st.selectbox(
        "Start from",
        list(PRESETS),
        format_func=lambda name: PRESETS[name].title,
        key=f"{PAGE}.preset",
        persist_state="session",
        on_change=_keep_plan_alone,
    )
    st.caption(PRESETS[preset].when)
    source = [preset, context.dataset_key, context.encoder, store.kept_plan()]
    if st.session_state.get(f"{PAGE}.source") != source:
        values = start_values(preset, context)
        forms.fill(PAGE, FIELDS, values)
        loss_form.fill(PAGE, values.get("loss", {}))
        st.session_state[f"{PAGE}.source"] = source


def _keep_plan_alone() -> None:
    """Forget the loss that another page sent, and keep its plan."""
    store.keep_plan({section: part for section, part in store.kept_plan().items() if section != "loss"})


def start_values(preset: str, context: frame.Context) -> forms.Values:
    """A preset's values with the dataset of the bar, its encoder where it was chosen, and what another page sent."""
    values = {section: dict(part) for section, part in PRESETS[preset].values.items()}
    values["data"] = store.data_config(context.dataset_key).model_dump()
    if context.encoder != "bundled":
        values["encoder"] = {**values.get("encoder", {}), "name": context.encoder}
    for section, part in store.kept_plan().items():
        given = values.get(section, {})
        values[section] = loss_form.laid_over(given, part) if section == "loss" else {**given, **part}
    return values


def config_from_form(context: frame.Context) -> RunConfig:
    """The config as the form stands. Raises ConfigError with the core's sentence."""
    values = form_values()
    data = store.data_config(context.dataset_key).model_dump() | values.pop("data")
    rest = {"evaluation": PRESETS[st.session_state[f"{PAGE}.preset"]].values.get("evaluation", {})}
    name = st.session_state.get(f"{PAGE}.name", "")
    return make_config({"name": name, "data": data, **rest, **values}, source="this plan")


def form_values() -> dict[str, forms.Values]:
    """The five sections as the form stands."""
    values = {**forms.read(PAGE, FIELDS), "loss": loss_form.read(PAGE)}
    return {section: values[section] for section in ORDER}


def sentences(context: frame.Context, known: plan_words.Facts | None) -> dict[str, str]:
    """One sentence for each section as the form stands; a section the core refuses says so."""
    words: dict[str, Callable[[forms.Values], str]] = {
        "data": lambda _: plan_words.data_sentence(store.datasets()[context.dataset_key].label, known),
        "encoder": lambda part: plan_words.encoder_sentence(EncoderConfig(**part)),
        "batching": lambda part: plan_words.batching_sentence(BatchingConfig(**part)),
        "loss": lambda part: loss_words.loss_sentence(TypeAdapter(LossConfig).validate_python(part)),
        "training": lambda part: plan_words.training_sentence(TrainingConfig(**part)),
    }
    said = {}
    for section, part in form_values().items():
        try:
            said[section] = words[section](part)
        except ValueError:
            said[section] = f"{section.capitalize()}: something here cannot work"
    return said


def form(context: frame.Context, known: plan_words.Facts) -> None:
    """The five sections, each closed to one sentence of its settings."""
    for section, sentence in sentences(context, known).items():
        with st.expander(sentence, key=f"{PAGE}.open.{section}"):
            if section == "loss":
                loss_form.draw(PAGE, known.shape)
                continue
            shown, more = _batching_fields() if section == "batching" else (SHOWN[section], MORE[section])
            forms.draw(PAGE, section, shown)
            if more and st.toggle("More", key=f"{PAGE}.more.{section}", persist_state="session"):
                forms.draw(PAGE, section, more)


def _batching_fields() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the chosen strategy asks for, and what stands under More."""
    strategy = st.session_state[forms.key(PAGE, "batching", "strategy")]
    shown, more = BATCHING.get(strategy, ((), ()))
    looking = ("refresh", "refresh_epochs") if strategy in NEED_VECTORS else ()
    return ("strategy", *shown), (*more, *looking, "keep_groups", "forbid_collisions")


def check(config: RunConfig, data: ExperimentData) -> None:
    """Raise the DataError that the run would end with, where the data lack what the loss learns from."""
    from bsc_core.training.rows import training_rows

    training_rows(config, data.train)


def ways_out(fault: BscError, known: plan_words.Facts) -> None:
    """Where the data cannot feed the loss: the losses that they can."""
    if isinstance(fault, DataError):
        st.caption(loss_words.fitting_sentence(known.shape))


def plan(config: RunConfig, data: ExperimentData, known: plan_words.Facts) -> None:
    """The plan in words, what it costs and what is odd about it."""
    st.markdown("\n".join(f"{place}. {line}" for place, line in enumerate(plan_words.plan_sentences(config, known), 1)))
    costs(config, data)
    for oddity in plan_words.oddities(config, known):
        st.markdown(f":orange[:material/info:] {oddity}")


def costs(config: RunConfig, data: ExperimentData) -> None:
    """Expected time, memory and disk, and which run tells them."""
    from bsc_core.training.estimate import estimate

    expected = estimate(config, data, store.run_store())
    if expected.seconds is None:
        st.caption(f":material/timer: Time, memory and disk: {expected.source}.")
        return
    told = [
        ("Time", f"about {theme.duration(expected.seconds)}"),
        ("Memory", plan_words.size(expected.memory_bytes)),
        ("Disk", plan_words.size(expected.disk_bytes)),
    ]
    for place, (label, value) in zip(show.columns(3, least=110), told, strict=True):
        with place:
            show.text(label, value)
    st.caption(expected.source.capitalize() + ".")


def as_file(config: RunConfig) -> None:
    """The config file and the command that does the same."""
    text = to_toml(config)
    with st.expander("Config file and command", icon=":material/code:", key=f"{PAGE}.open.file"):
        st.code("bsc train config.toml", language="bash")
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


def launch_button(config: RunConfig | None) -> None:
    """Launch once, however often it is clicked: the id of the run to be is made here and kept until the run is left."""
    clicked = st.button(
        "Launch",
        type="primary",
        icon=":material/rocket_launch:",
        key=f"{PAGE}.launch",
        disabled=config is None,
        width="stretch",
    )
    kept = st.session_state.get(f"{PAGE}.launched")
    if clicked and config is not None:
        run_id = kept or new_run_id(config)
        st.session_state[f"{PAGE}.launched"] = run_id
        try:
            launch(config, run_id)
        except BscError as fault:
            st.session_state.pop(f"{PAGE}.launched")
            show.error(fault)
            return
        frame.go("runs", run=run_id)
    elif kept:
        st.session_state.pop(f"{PAGE}.launched")  # back on the page: the next click is another run


def launch(config: RunConfig, run_id: str) -> None:
    """Queue the run; a second call with the same id does nothing."""
    from bsc_core import jobs

    jobs.launch(store.run_store(), config, run_id)
