"""Starting point of the New run form: a preset, the dataset and encoder of the bar, and settings from other pages."""

from collections.abc import Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core.config import RunConfig, SweepConfig, setting_name
from bsc_core.presets.catalog import FAMILIES, PRESETS, family_of, suggested
from bsc_core.reproduction.findings import measured_gain
from pages.ui.components import config_form, data_cache, display, page_layout, url
from pages.ui.new_run import link, loss_form, sweep_form
from pages.ui.new_run.config_summary import DataSummary
from pages.ui.new_run.form import FIELDS, FROM_AUDIT, LORA
from pages.ui.new_run.sweep_form import PAGE

PRESET, FAMILY, FITTING, SOURCE = f"{PAGE}.preset", f"{PAGE}.family", f"{PAGE}.fitting", f"{PAGE}.source"
CHANGED = f"{PAGE}.changed"  # session key: the preset and the settings that differ from it


def draw(context: page_layout.Context, summary: DataSummary) -> DeltaGenerator:
    """Draw the preset picker and fill the form when the preset, the dataset or settings from another page change.

    Returns the cell for the settings that differ from the preset.

    Data of another shape select the preset that fits them; with another dataset of the same shape, the settings that
    were changed stay. Settings from the Batches page or the loss lab override the
    preset's; when another preset is chosen, batch settings stay and the loss is the preset's.
    """
    fitting, previous = suggested(summary.shape), st.session_state.get(FITTING)
    if previous != fitting:
        st.session_state[PRESET] = st.session_state[FITTING] = fitting
        if previous is not None:
            title = PRESETS[fitting].title
            st.toast(f"The form now starts from the preset {title}, which fits this dataset.", icon=":material/info:")
    given = link.changed()
    if given is not None:
        named = given.get(link.PRESET, fitting)
        st.session_state[PRESET] = named if named in PRESETS else fitting
        if named not in PRESETS:
            text = f"The preset {url.shorten(named)} does not exist; the form starts from the one that fits."
            url.report(link.PRESET, text)
        link.read(given, preset_values(st.session_state[PRESET], context))
        st.session_state.pop(SOURCE, None)
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
    st.caption("Preset: " + " ".join(filter(None, (PRESETS[preset].when, measured_gain(preset)))))
    changed_cell = st.container()
    source = [context.dataset_key, preset, context.encoder, page_layout.sent_settings()]
    filled = st.session_state.get(SOURCE)
    if filled is not None and filled[1:] == source[1:] and filled != source:
        config_form.fill(PAGE, {"data": FIELDS["data"]}, start_values(preset, context))
    elif filled != source:
        _fill(preset, context)
    st.session_state[SOURCE] = source
    return changed_cell


def _select_family() -> None:
    st.session_state[PRESET] = next(iter(FAMILIES[st.session_state[FAMILY]]))
    _drop_sent_loss()


def _drop_sent_loss() -> None:
    """Forget the loss that another page sent but not its batch settings; forget a complete config entirely."""
    if sweep_form.list_fields() and not PRESETS[st.session_state[PRESET]].sweep:
        st.toast("The sweep is off now: the preset has one value for each setting.", icon=":material/info:")
        st.session_state[sweep_form.ENDED_BY_PRESET] = True
    st.session_state.pop(link.LINKED_SWEEP, None)
    st.session_state.pop(link.SAMPLED, None)
    sent = page_layout.sent_settings()
    dropped = tuple(sent) if _is_complete(sent) else ("loss",)
    page_layout.send_settings({name: part for name, part in sent.items() if name not in dropped})


def _is_complete(sent: Mapping[str, object]) -> bool:
    """Whether another page sent all settings of a config, not only those of batches or of a loss."""
    return "evaluation" in sent


def _drop_batches() -> None:
    """Forget the batch settings that the Batches page sent."""
    sent = page_layout.sent_settings()
    page_layout.send_settings({name: part for name, part in sent.items() if name not in ("batching", "training")})


def _fill(preset: str, context: page_layout.Context) -> None:
    for name in (FROM_AUDIT, CHANGED):
        st.session_state.pop(name, None)
    values = start_values(preset, context)
    lora = values.get("encoder", {}).get("lora")
    config_form.fill(PAGE, FIELDS, {**values, LORA: lora})
    st.session_state[f"{PAGE}.{LORA}"] = lora is not None
    loss_form.fill(values.get("loss", {}))
    sweep_form.fill(
        link.sweep_of(preset), values.get("loss", {}).get("name", "bsc"), st.session_state.get(link.SAMPLED)
    )


def write_link(
    config: RunConfig, sweep: SweepConfig | None, context: page_layout.Context, cell: DeltaGenerator
) -> None:
    """Write the settings that differ from the preset into the URL, and draw them in the cell."""
    preset = st.session_state[PRESET]
    changed = link.write(config, sweep, preset_values(preset, context), fitting=st.session_state[FITTING])
    titled = {key: config_form.value_title(key, value) for key, value in changed.items()}
    st.session_state[CHANGED] = preset, ", ".join(f"{setting_name(key)} = {value}" for key, value in titled.items())
    draw_changed(cell)
    if changed:
        sent = page_layout.sent_settings()
        if "batching" in sent and not _is_complete(sent):
            row = cell.container(horizontal=True, vertical_alignment="center")
            row.caption("The batch settings are those of the Batches page.", width="content")
            row.button("Use those of the preset", key=f"{PAGE}.drop_batches", type="tertiary", on_click=_drop_batches)


def draw_changed(cell: DeltaGenerator) -> None:
    """Draw the settings that differ from the preset, as they last were valid."""
    preset, settings = st.session_state.get(CHANGED, ("", ""))
    if settings and preset == st.session_state[PRESET]:
        cell.caption(f"Changed from the preset: {display.escaped(settings)}")


def start_values(preset: str, context: page_layout.Context) -> config_form.Values:
    """Return the preset's values with the encoder of the bar if chosen, and what a link or another page sent."""
    values = preset_values(preset, context)
    if context.encoder != "bundled":
        values["encoder"] = {**values.get("encoder", {}), "name": context.encoder}
    return link.with_settings(values, page_layout.sent_settings())


def preset_values(preset: str, context: page_layout.Context) -> config_form.Values:
    """Return the preset's values with the dataset of the bar."""
    values = {section: dict(part) for section, part in PRESETS[preset].values.items()}
    return values | {"data": data_cache.data_config(context.dataset_key).model_dump()}
