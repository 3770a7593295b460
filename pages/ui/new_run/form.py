"""The New run form: five sections, each summarized in one sentence, and the config they describe."""

from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from typing import Any

import streamlit as st
from pydantic import TypeAdapter

from bsc_core.config import BatchingConfig, EncoderConfig, LossConfig, RunConfig, TrainingConfig, make_config
from bsc_core.config.reading import put
from pages.ui.components import config_form, data_cache, display, page_layout, url
from pages.ui.data import audit
from pages.ui.new_run import config_summary, encoder_picker, loss_form, sweep_form
from pages.ui.new_run.config_summary import SOURCES, DataSummary, batching_fields
from pages.ui.new_run.sweep_form import PAGE, draw_fields

LORA = "encoder.lora"
NAME = f"{PAGE}.name"
NAME_USED = f"{PAGE}.name_used"  # session key: whether the name was that of a launched run
FROM_AUDIT = f"{PAGE}.from_audit"  # session key: what a finding of the audit has changed in the form
LAB_SETTINGS = "learn.written"  # the loss lab's settings as they are in its URL
SHOWN = {
    "data": ("dev_size", "threshold"),
    "encoder": ("max_seq_length",),
    "training": ("epochs", "batch_size", "learning_rate", "seed"),
}
MORE_ENCODER = ("query_prompt", "document_prompt", "reinit_layers", "freeze_layers", "unpadded")
MORE_DATA = ("label_min", "label_max", "train_split", "dev_split", "test_split", "split_by", "text_identity")
OPTIMIZER = (
    *("warmup_ratio", "schedule", "weight_decay", "max_grad_norm", "temperature_learning_rate"),
    *("head_learning_rate", "layer_decay", "bias_correction"),
)
MEMORY = (
    *("precision", "gradient_cache", "activation_memory", "gradient_accumulation_steps"),
    *("micro_tokens", "threads", "compile"),
)
TRAINING_TABS = {
    "Optimizer": OPTIMIZER,
    "Length": ("max_steps", "early_stopping_patience", "early_stopping_general_loss", "merge_with_start"),
    "Memory and speed": MEMORY,
    "Checkpoints": ("report_to", "save_total_limit", "save_steps"),
}
EVALUATION = ("metric", "k", "each_epoch", "general", "epoch_texts")
FIELDS = {  # section: every field that has a widget
    "data": (*SHOWN["data"], *MORE_DATA),
    "encoder": ("name", *SHOWN["encoder"], *MORE_ENCODER),
    LORA: ("rank", "alpha", "dropout", "targets"),
    "batching": (
        *("strategy", "group_size", "group_by", "metric", "shingle_size", "clusters"),
        *("neighbors", "search", "distinct_texts", "easy_first", "shingle_neighbors", "stop_count"),
        *("graph_neighbors", "skip_ranks", "refresh", "refresh_epochs", "keep_groups", "no_duplicates"),
        *SOURCES,
    ),
    "training": (*SHOWN["training"], "seeds", *chain.from_iterable(TRAINING_TABS.values())),
    "evaluation": EVALUATION,
}


def draw_form(summary: DataSummary) -> None:
    """Draw the sections, each collapsed to one sentence; an invalid section says so."""
    sections: dict[str, tuple[Callable[[], None], Callable[[config_form.Values], str]]] = {
        "data": (_draw_data, lambda _: config_summary.data_sentence(summary)),
        "encoder": (_draw_encoder, lambda part: config_summary.encoder_sentence(EncoderConfig(**part))),
        "batching": (
            lambda: _draw_batching(summary),
            lambda part: config_summary.batching_sentence(BatchingConfig(**part)),
        ),
        "loss": (
            lambda: _draw_loss(summary),
            lambda part: config_summary.loss_sentence(TypeAdapter(LossConfig).validate_python(part)),
        ),
        "training": (_draw_training, lambda part: config_summary.training_sentence(TrainingConfig(**part))),
    }
    values = read_values()
    for section, (draw, describe) in sections.items():
        try:
            sentence = f"{describe(values[section])}{_swept_fields(section)}"
        except ValueError:
            sentence = f"{section.capitalize()}: a setting is invalid"
        with st.expander(display.escaped(sentence), **url.flag(sweep_form.open_key(section))):
            draw()


def draw_finding() -> None:
    """Apply what an audit finding recommends if its button opened the page, and say what was changed."""
    code = st.session_state.pop(audit.REQUESTED, None)
    if code is not None:
        st.session_state[FROM_AUDIT] = _apply_finding(code)
    elif page_layout.arrived():
        st.session_state.pop(FROM_AUDIT, None)
    if text := st.session_state.get(FROM_AUDIT):
        st.info(text, icon=":material/info:")


def _apply_finding(code: str) -> str:
    """Open the section with the setting of a finding and set it; return a sentence about the change, if any."""
    if code != "repeated_documents":
        st.session_state[sweep_form.open_key("encoder")] = True
        return ""
    loss = loss_form.read()
    if loss["name"] not in (*config_summary.IN_BATCH_LOSSES, "combined"):
        return "This loss has no in-batch negatives, so documents of several queries need no setting."
    section, field = {"bsc": "loss.bsc", "combined": sweep_form.COMBINED_BSC}.get(loss["name"], ""), "duplicates"
    name, value = "Duplicates of the loss", "merge"
    if not section or "parts" in loss:  # without the setting Duplicates in the form
        section, field, name, value = "batching", "no_duplicates", "No duplicates in a batch", True
        st.session_state[f"{PAGE}.more.batching"] = True
    st.session_state[sweep_form.open_key(section.partition(".")[0])] = True
    if (section, field) in sweep_form.list_fields():
        return f"{name} is a list of values of the sweep; it was not changed."
    widget = config_form.key(PAGE, section, field)
    old, new = st.session_state[widget], config_form.format_setting(value)
    if old not in ("keep", False):
        return f"{name} is {config_form.format_setting(old)} already, so nothing was changed."
    st.session_state[widget] = value
    return f"{name} was changed from {config_form.format_setting(old)} to {new}, as the audit recommends."


def _more(section: str) -> bool:
    return st.toggle("More", persist_state="session", **url.flag(f"{PAGE}.more.{section}"))


def _draw_data() -> None:
    draw_fields("data", SHOWN["data"])
    if _more("data"):
        draw_fields("data", MORE_DATA)


def _draw_encoder() -> None:
    sweep_form.draw_value("encoder", "name", encoder_picker.draw)
    draw_fields("encoder", SHOWN["encoder"])
    if not _more("encoder"):
        return
    draw_fields("encoder", MORE_ENCODER)
    title, about = config_form.info_of("encoder", "lora").title, config_form.help_of("encoder", "lora")
    if st.toggle(str(title), key=f"{PAGE}.{LORA}", help=about, persist_state="session"):
        draw_fields(LORA, FIELDS[LORA])


def _draw_batching(summary: DataSummary) -> None:
    strategy = st.session_state[config_form.key(PAGE, "batching", "strategy")]
    (first, *shown), more = batching_fields(strategy)
    draw_fields("batching", [first])
    if ("batching", "strategy") not in sweep_form.list_fields():
        st.caption(config_form.describe_value("batching", "strategy", strategy))
    draw_fields("batching", shown)
    if _more("batching"):
        draw_fields("batching", [field for field in more if field not in SOURCES or summary.train_files > 1])


def _draw_loss(summary: DataSummary) -> None:
    if LAB_SETTINGS in st.session_state:
        st.button(
            "Use the loss lab's settings",
            key=f"{PAGE}.lab",
            type="tertiary",
            icon=":material/science:",
            help="Copies temperature, normalization and the other settings from the loss lab.",
            on_click=_copy_lab_settings,
        )
    elif st.button("Try losses in the lab", key=f"{PAGE}.lab", type="tertiary", icon=":material/science:"):
        page_layout.switch_page("learn")
    loss_form.draw(summary.shape)


def _copy_lab_settings() -> None:
    from bsc_core.lab.settings import LabSettings

    st.session_state[config_form.key(PAGE, "loss", "name")] = "bsc"
    for name, value in asdict(LabSettings.from_query(st.session_state[LAB_SETTINGS])).items():
        st.session_state[config_form.key(PAGE, "loss.bsc", name)] = value


def _draw_training() -> None:
    draw_fields("training", SHOWN["training"])
    draw_fields("training", ["seeds"])
    if not _more("training"):
        return
    titles = [*TRAINING_TABS, "Evaluation"]
    *tabs, evaluation_tab = st.tabs(titles, on_change="rerun", **url.bound(f"{PAGE}.tab", titles))
    for tab, fields in zip(tabs, TRAINING_TABS.values(), strict=True):
        with tab:
            draw_fields("training", fields)
    with evaluation_tab:
        draw_fields("evaluation", EVALUATION)


def read_values() -> dict[str, config_form.Values]:
    """Read the values of every section; of each list the first value, as in the first run of the sweep."""
    read = config_form.read(PAGE, FIELDS)
    lora = read.pop(LORA)
    read["encoder"]["lora"] = lora if st.session_state[f"{PAGE}.{LORA}"] else None
    values: dict[str, Any] = {**read, "loss": loss_form.read()}
    for section, field in sweep_form.list_fields():
        entries = sweep_form.list_values(section, field)
        if entries and is_active(section, field):
            first = "none" if entries[0] is None else entries[0]
            put(values, sweep_form.config_key(section, field), first, sweep_form.SOURCE)
    return values


def is_active(section: str, field: str) -> bool:
    """Whether a field affects the config; a field of another loss or another strategy does not."""
    if section.startswith("loss."):
        chosen = st.session_state[config_form.key(PAGE, "loss", "name")]
        if section == sweep_form.COMBINED_BSC:
            preset = st.session_state[config_form.key(PAGE, "loss.combined", "preset")]
            return bool(chosen == "combined" and preset != "custom")
        return bool(section == f"loss.{chosen}")
    if section == LORA:
        return bool(st.session_state[f"{PAGE}.{LORA}"])
    if section == "batching" and ("batching", "strategy") not in sweep_form.list_fields():
        shown, more = batching_fields(st.session_state[config_form.key(PAGE, "batching", "strategy")])
        return field in (*shown, *more)
    return True


def sweep_fields() -> list[sweep_form.Field]:
    """Return the fields that a sweep can vary in this form, those that are varied most first."""
    selected = st.session_state[config_form.key(PAGE, "loss", "name")]
    losses = {f"loss.{selected}": loss_form.fields(selected)}
    losses |= {sweep_form.COMBINED_BSC: loss_form.fields("bsc")} if selected == "combined" else {}
    sections = losses | {name: FIELDS[name] for name in ("training", "batching", "encoder", LORA, "data", "evaluation")}
    every = [(section, field) for section, fields in sections.items() for field in fields]
    return [field for field in every if sweep_form.can_be_list(*field) and is_active(*field)]


def draw_name() -> None:
    """Draw the field of the name, which is empty after a launch, since it described that run."""
    if st.session_state.pop(NAME_USED, False):
        st.session_state[NAME] = ""
    st.text_input("Run name", key=NAME, placeholder="generated from the settings", persist_state="session")


def read_config(context: page_layout.Context) -> RunConfig:
    """Build the config of the form; for a sweep, that of its first run.

    Raises:
        ConfigError: A setting is invalid.
    """
    values = read_values()
    data = data_cache.data_config(context.dataset_key).model_dump() | values.pop("data")
    name = st.session_state.get(NAME, "")
    return make_config({"name": name, "data": data, **values}, source=sweep_form.SOURCE)


def _swept_fields(section: str) -> str:
    """Return ` · sweep over temperature` where fields of a section are lists."""
    lists = [(path, field) for path, field in sweep_form.list_fields() if path.partition(".")[0] == section]
    fields = [field for path, field in lists if is_active(path, field)]
    return f" · sweep over {', '.join(field.replace('_', ' ') for field in fields)}" if fields else ""
