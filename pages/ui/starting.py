"""Where the New run form starts: a preset, the dataset and encoder of the bar, and what another page sent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import streamlit as st

from bsc_core.recipes.gains import measured_gain
from bsc_core.recipes.presets import FAMILIES, PRESETS, family_of, suggested
from pages.ui import forms, frame, loss_form, plan_words, store, sweeping
from pages.ui.train_fields import FIELDS, LORA, PAGE

PRESET, FAMILY = f"{PAGE}.preset", f"{PAGE}.family"
LAB = "learn.written"  # the lab's settings as they stand in its link


def preset_picker(context: frame.Context, known: plan_words.Facts | None) -> None:
    """Choose a starting point. Choosing one fills the form anew; so do another dataset and settings sent by a page.

    Data of another shape bring the preset that fits them. What Batches or the loss lab sent lies over the preset; when
    another preset is chosen, the plan stays and the loss is the preset's.
    """
    fitting = suggested(known.shape if known else None)
    if known and st.session_state.get(f"{PAGE}.fitting") != fitting:
        st.session_state[PRESET] = st.session_state[f"{PAGE}.fitting"] = fitting
    preset = st.session_state.setdefault(PRESET, fitting)
    st.session_state[FAMILY] = family_of(preset)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("Presets", list(FAMILIES), key=FAMILY, persist_state="session", on_change=_first_of_family)
        preset = st.selectbox(
            "Start from",
            list(FAMILIES[st.session_state[FAMILY]]),
            format_func=lambda name: PRESETS[name].title,
            key=PRESET,
            persist_state="session",
            on_change=_keep_plan_alone,
        )
    st.caption(" ".join(filter(None, (PRESETS[preset].when, measured_gain(preset)))))
    source = [preset, context.dataset_key, context.encoder, store.kept_plan()]
    if st.session_state.get(f"{PAGE}.source") != source:
        _fill(preset, context)
        st.session_state[f"{PAGE}.source"] = source


def _first_of_family() -> None:
    st.session_state[PRESET] = next(iter(FAMILIES[st.session_state[FAMILY]]))
    _keep_plan_alone()


def _keep_plan_alone() -> None:
    """Forget the loss that another page sent, and keep its plan; of a whole run that was sent nothing is kept."""
    kept = store.kept_plan()
    whole = "evaluation" in kept
    store.keep_plan({section: part for section, part in kept.items() if section != "loss" and not whole})


def _fill(preset: str, context: frame.Context) -> None:
    """Set every widget of the form."""
    values = start_values(preset, context)
    lora = values.get("encoder", {}).get("lora")
    forms.fill(PAGE, FIELDS, {**values, LORA: lora})
    st.session_state[f"{PAGE}.{LORA}"] = lora is not None
    loss_form.fill(PAGE, values.get("loss", {}))
    sweeping.fill(PAGE, PRESETS[preset].sweep, values.get("loss", {}).get("name", "bsc"))


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


def lab_button() -> None:
    """Take over what was set in the loss lab; before the lab was opened, the way there."""
    if LAB in st.session_state:
        st.button(
            "Use the lab's settings",
            key=f"{PAGE}.lab",
            type="tertiary",
            icon=":material/science:",
            help="Temperature, normalization and the other switches as they stand in the loss lab.",
            on_click=_take_lab,
        )
    elif st.button("Try losses in the lab", key=f"{PAGE}.lab", type="tertiary", icon=":material/science:"):
        frame.go("learn")


def _take_lab() -> None:
    from bsc_core.lab.settings import LabSettings

    settings: dict[str, Any] = asdict(LabSettings.from_query(st.session_state[LAB]))
    st.session_state[forms.key(PAGE, "loss", "name")] = "bsc"
    for name, value in settings.items():
        st.session_state[forms.key(PAGE, "loss.bsc", name)] = value
