"""The loss section of a form: a loss and its fields.

Each loss keeps its values while another is selected. A loss that is selected takes over changed values, such as the
temperature, in fields that still have its default.
"""

import streamlit as st

from bsc_core import formatting
from bsc_core.config import LOSS_CONFIGS
from bsc_core.losses.catalog import CATALOG, measured_masks
from bsc_core.presets.suitable_losses import DataShape, suitable_losses
from pages.ui.components import config_form, display, url
from pages.ui.components.glossary import help_text
from pages.ui.new_run.config_summary import LOSS_NAMES
from pages.ui.new_run.sweep_form import COMBINED_BSC, PAGE, draw_fields

SHOWN: dict[str, tuple[str, ...]] = {
    "bsc": ("temperature", "normalization", "duplicates", "learn_temperature", "symmetric"),
    "combined": ("preset", "mu"),
    "mse": (),
    "pearson": (),
    "cosent": ("temperature", "learn_temperature"),
    "angle": ("temperature", "learn_temperature"),
    "softmax": ("num_classes", "features"),
    "supcon": ("temperature", "normalization", "mix", "anchor"),
    "triplet": ("distance", "margin"),
    "contrastive": ("distance", "margin"),
    "online_contrastive": ("distance", "margin"),
    "simcse": ("temperature", "learn_temperature"),
    "mnrl": ("temperature", "learn_temperature"),
    "sigmoid": ("temperature", "bias"),
}
DATA_NAMES = {"cqa_a": "CQA-A", "cqa_b": "CQA-B", "wikiqa": "WikiQA", "qqp": "QQP"}
NO_WIDGET = ("name", "bsc", "parts")  # drawn by this module, not from the schema
SINGLE = [name for name in LOSS_CONFIGS if name != "combined"]


def fields(loss: str) -> tuple[str, ...]:
    """Return the fields of a loss that have a widget, those shown first in front."""
    return (*SHOWN[loss], *more_fields(loss))


def more_fields(loss: str) -> tuple[str, ...]:
    """Return the fields under More."""
    return tuple(name for name in LOSS_CONFIGS[loss].model_fields if name not in (*SHOWN[loss], *NO_WIDGET))


def fill(values: config_form.Values) -> None:
    """Set the widgets of every loss: those of the named loss from `values`, the others from their defaults."""
    selected = values.get("name", "bsc")
    st.session_state[_key("name")] = selected
    sections = {f"loss.{loss}": fields(loss) for loss in LOSS_CONFIGS} | {COMBINED_BSC: fields("bsc")}
    config_form.fill(PAGE, sections, {f"loss.{selected}": values, COMBINED_BSC: values.get("bsc") or {}})
    parts = {part["loss"].get("name", "bsc"): part for part in values.get("parts") or ()}
    st.session_state[_key("parts")] = list(parts) or ["bsc", "mse"]
    for loss in SINGLE:
        st.session_state[_key(f"weight.{loss}")] = parts.get(loss, {}).get("weight", 1.0)


def read() -> config_form.Values:
    """Read the values of the selected loss as `make_config` takes them."""
    selected = st.session_state[_key("name")]
    section = f"loss.{selected}"
    values = {"name": selected, **config_form.read(PAGE, {section: fields(selected)})[section]}
    if selected != "combined":
        return values
    if values["preset"] != "custom":
        return values | {"bsc": config_form.read(PAGE, {COMBINED_BSC: fields("bsc")})[COMBINED_BSC]}
    names = st.session_state[_key("parts")]
    return values | {
        "parts": [{"weight": st.session_state[_key(f"weight.{name}")], "loss": {"name": name}} for name in names]
    }


def override(preset: config_form.Values, sent: config_form.Values) -> config_form.Values:
    """Override a preset's loss with settings from another page: merged for the same loss, replaced for another.

    Settings without a name are those of the bsc loss and are ignored by other losses.
    """
    if sent.get("name", "bsc") == preset.get("name", "bsc"):
        return {**preset, **sent}
    return dict(sent) if "name" in sent else preset


def draw(shape: DataShape) -> None:
    """Draw the choice of a loss, its purpose, and its fields."""
    fitting = suitable_losses(shape)
    unfit = " (not suited to these data)"
    titles = {name: loss.title if name in fitting else loss.title + unfit for name, loss in CATALOG.items()}
    selected = st.selectbox(
        "Loss",
        [*fitting, *(name for name in LOSS_CONFIGS if name not in fitting)],
        format_func=titles.get,
        key=_key("name"),
        persist_state="session",
        help=help_text(st.session_state[_key("name")]),
    )
    before, st.session_state[_key("drawn")] = st.session_state.get(_key("drawn"), selected), selected
    if "combined" not in (before, selected):
        _take_over(before, selected)
    st.caption(f"{CATALOG[selected].when} Data: {CATALOG[selected].data}.")
    if selected == "combined":
        _draw_combined()
    else:
        _draw_fields(f"loss.{selected}", selected)


def _take_over(before: str, selected: str) -> None:
    """Copy the values that were changed in the loss before to fields of the selected one that have their default."""
    for name in set(fields(before)) & set(fields(selected)):
        old, new = (config_form.info_of(f"loss.{loss}", name) for loss in (before, selected))
        old_key, new_key = (config_form.key(PAGE, f"loss.{loss}", name) for loss in (before, selected))
        value = st.session_state[old_key]
        is_changed = value != old.get_default() and st.session_state[new_key] == new.get_default()
        if is_changed and old.annotation == new.annotation:
            st.session_state[new_key] = value


def _draw_fields(section: str, loss: str) -> None:
    draw_fields(section, SHOWN[loss])
    if more_fields(loss) and st.toggle("More", persist_state="session", **url.flag(f"{PAGE}.more.{section}")):
        draw_fields(section, more_fields(loss))
        if "mask" in more_fields(loss) and st.session_state[config_form.key(PAGE, section, "mask")] != "none":
            _draw_mask_measurements(section)


def _draw_mask_measurements(section: str) -> None:
    """Draw how many of the documents that a mask excludes are relevant, where the labels are known."""
    kind = st.session_state[config_form.key(PAGE, section, "mask_margin_kind")]
    margin = st.session_state[config_form.key(PAGE, section, "mask_margin")] or 0.0
    rows = measured_masks(kind, margin)

    def listed(measure: str) -> str:
        return ", ".join(f"{DATA_NAMES[row['data']]} {formatting.percent(row[measure])}" for row in rows)

    st.caption(
        f"Mask with margin {formatting.number(rows[0]['margin'])}, measured on labeled data with the bundled encoder "
        f"before training. Excluded documents that are relevant: {listed('precision')}. "
        f"Relevant documents that are excluded: {listed('recall')}."
    )


def _draw_combined() -> None:
    is_custom = st.session_state[config_form.key(PAGE, "loss.combined", "preset")] == "custom"
    draw_fields("loss.combined", ("preset",) if is_custom else SHOWN["combined"])
    if not is_custom:
        st.markdown("**Batch softmax part**")
        _draw_fields(COMBINED_BSC, "bsc")
        return
    names = st.multiselect("Parts", SINGLE, format_func=LOSS_NAMES.get, key=_key("parts"), persist_state="session")
    options = {"value": None, "step": 0.1, "format": "%g", "persist_state": "session"}
    for cell, name in zip(display.columns(max(1, len(names)), min_width=110), names, strict=False):
        cell.number_input(f"Weight of {LOSS_NAMES[name]}", key=_key(f"weight.{name}"), **options)
    st.caption("Each part uses its default settings. To change them, write `[[loss.parts]]` in a config file.")


def _key(name: str) -> str:
    return config_form.key(PAGE, "loss", name)
