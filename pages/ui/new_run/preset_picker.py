"""Starting point of the New run form: a preset, the dataset and encoder of the bar, and settings from other pages."""

import streamlit as st

from bsc_core.config import make_config
from bsc_core.config.reading import parse_value, put
from bsc_core.errors import BscError
from bsc_core.presets.catalog import FAMILIES, PRESETS, family_of, suggested
from bsc_core.reproduction.findings import measured_gain
from pages.ui.components import config_form, data_cache, display, page_layout
from pages.ui.new_run import loss_form, sweep_form
from pages.ui.new_run.config_summary import DataSummary
from pages.ui.new_run.form import FIELDS, LORA
from pages.ui.new_run.sweep_form import PAGE

LINKED_SECTIONS = ("batching", "loss", "training", "evaluation")  # settings that a link of the page may contain
LINK = f"{PAGE}.link"  # session key: the settings of the last link
PRESET, FAMILY, FITTING, SOURCE = f"{PAGE}.preset", f"{PAGE}.family", f"{PAGE}.fitting", f"{PAGE}.source"


def draw(context: page_layout.Context, summary: DataSummary) -> None:
    """Draw the preset picker and fill the form when the preset, the dataset or settings from another page change.

    Data of another shape select the preset that fits them. Settings from the Batches page or the loss lab override the
    preset's; when another preset is chosen, batch settings stay and the loss is the preset's.
    """
    fitting = suggested(summary.shape)
    if st.session_state.get(FITTING) != fitting:
        st.session_state[PRESET] = st.session_state[FITTING] = fitting
    preset = st.session_state.setdefault(PRESET, fitting)
    st.session_state[FAMILY] = family_of(preset)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("Presets", list(FAMILIES), key=FAMILY, persist_state="session", on_change=_select_family)
        preset = st.selectbox(
            "Start from",
            list(FAMILIES[st.session_state[FAMILY]]),
            format_func=lambda name: PRESETS[name].title,
            key=PRESET,
            persist_state="session",
            on_change=_drop_sent_loss,
        )
    st.caption(" ".join(filter(None, (PRESETS[preset].when, measured_gain(preset)))))
    _read_link(preset, context)
    source = [preset, context.dataset_key, context.encoder, page_layout.sent_settings()]
    if st.session_state.get(SOURCE) != source:
        _fill(preset, context)
        st.session_state[SOURCE] = source


def _read_link(preset: str, context: page_layout.Context) -> None:
    """Apply the settings of a link, such as `loss.temperature=0.1`, over the preset's; report the invalid ones."""
    given = {name: text for name, text in st.query_params.items() if name.partition(".")[0] in LINKED_SECTIONS}
    if not given or given == st.session_state.get(LINK):
        return
    st.session_state[LINK] = given
    for name in sorted(given, key=lambda name: name != "loss.name"):  # the other settings of a loss need its name
        values: config_form.Values = {}
        sent = page_layout.sent_settings()
        try:
            put(values, name, parse_value(given[name]), "link")
            merged = {section: {**sent.get(section, {}), **part} for section, part in values.items()}
            page_layout.send_settings(sent | merged)
            make_config(start_values(preset, context), source="link")
        except BscError as error:
            page_layout.send_settings(sent)
            display.error_box(f"{error}. The setting {name} of this link is not used.")


def _select_family() -> None:
    st.session_state[PRESET] = next(iter(FAMILIES[st.session_state[FAMILY]]))
    _drop_sent_loss()


def _drop_sent_loss() -> None:
    """Forget the loss that another page sent but not its batch settings; forget a complete config entirely."""
    sent = page_layout.sent_settings()
    complete = "evaluation" in sent
    page_layout.send_settings({section: part for section, part in sent.items() if section != "loss" and not complete})


def _fill(preset: str, context: page_layout.Context) -> None:
    values = start_values(preset, context)
    lora = values.get("encoder", {}).get("lora")
    config_form.fill(PAGE, FIELDS, {**values, LORA: lora})
    st.session_state[f"{PAGE}.{LORA}"] = lora is not None
    loss_form.fill(values.get("loss", {}))
    sweep_form.fill(PRESETS[preset].sweep, values.get("loss", {}).get("name", "bsc"))


def start_values(preset: str, context: page_layout.Context) -> config_form.Values:
    """Return the preset's values with the dataset of the bar, its encoder if chosen, and what another page sent."""
    values = {section: dict(part) for section, part in PRESETS[preset].values.items()}
    values["data"] = data_cache.data_config(context.dataset_key).model_dump()
    if context.encoder != "bundled":
        values["encoder"] = {**values.get("encoder", {}), "name": context.encoder}
    for section, part in page_layout.sent_settings().items():
        preset_values = values.get(section, {})
        values[section] = loss_form.override(preset_values, part) if section == "loss" else {**preset_values, **part}
    return values
