"""The loss section of a form: choose a loss by name, then only its own fields; each loss keeps its values meanwhile."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bsc_core.config import LOSS_CONFIGS
from bsc_core.losses.catalogue import CATALOGUE
from bsc_core.recipes.fitting import DataShape, fitting_losses
from pages.ui import forms, loss_words, show
from pages.ui.words import help_text

SHOWN: dict[str, tuple[str, ...]] = {
    "bsc": ("temperature", "normalization", "learn_temperature", "symmetric"),
    "combined": ("preset", "mu"),
    "mse": (),
    "pearson": (),
    "softmax": ("num_classes", "features"),
    "supcon": ("temperature", "normalization", "mix", "anchor"),
    "triplet": ("distance", "margin"),
    "contrastive": ("distance", "margin"),
    "online_contrastive": ("distance", "margin"),
    "simcse": ("temperature", "learn_temperature"),
    "mnrl": ("temperature", "learn_temperature"),
}
APART = ("name", "bsc", "parts")  # drawn in ways of their own
PART = "loss.combined.bsc"
SINGLE = [name for name in LOSS_CONFIGS if name != "combined"]


def fields(loss: str) -> tuple[str, ...]:
    """The fields of a loss that have a widget each: the shown ones first."""
    return (*SHOWN[loss], *more(loss))


def more(loss: str) -> tuple[str, ...]:
    """The fields that are drawn when more is asked for."""
    return tuple(name for name in LOSS_CONFIGS[loss].model_fields if name not in (*SHOWN[loss], *APART))


def fill(page: str, values: forms.Values) -> None:
    """Set the widgets of every loss: of the one that the values name from them, of the others from their defaults."""
    chosen = values.get("name", "bsc")
    st.session_state[_key(page, "name")] = chosen
    for loss in LOSS_CONFIGS:
        section = f"loss.{loss}"
        forms.fill(page, {section: fields(loss)}, {section: values if loss == chosen else {}})
    forms.fill(page, {PART: fields("bsc")}, {PART: values.get("bsc") or {}})
    parts = {part["loss"].get("name", "bsc"): part for part in values.get("parts") or ()}
    st.session_state[_key(page, "parts")] = list(parts) or ["bsc", "mse"]
    for loss in SINGLE:
        st.session_state[_key(page, f"weight.{loss}")] = parts.get(loss, {}).get("weight", 1.0)


def read(page: str) -> forms.Values:
    """The values of the chosen loss as `make_config` takes them."""
    chosen = st.session_state[_key(page, "name")]
    section = f"loss.{chosen}"
    values = {"name": chosen, **forms.read(page, {section: fields(chosen)})[section]}
    if chosen != "combined":
        return values
    if values["preset"] != "custom":
        return values | {"bsc": forms.read(page, {PART: fields("bsc")})[PART]}
    names = st.session_state[_key(page, "parts")]
    parts = [{"weight": st.session_state[_key(page, f"weight.{name}")], "loss": {"name": name}} for name in names]
    return values | {"parts": parts}


def laid_over(given: forms.Values, sent: forms.Values) -> forms.Values:
    """Settings that another page sent over a preset's: of the same loss merged, of another instead of them.

    Sent without a name they are bsc's switches, and another loss has no use for them.
    """
    name = given.get("name", "bsc")
    if sent.get("name", "bsc") == name:
        return {**given, **sent}
    return dict(sent) if "name" in sent else given


def draw(page: str, shape: DataShape, drawn: forms.Drawn = forms.field_widget) -> None:
    """The choice of a loss, what it is for, and its fields."""
    fitting = fitting_losses(shape)
    chosen = st.selectbox(
        "Loss",
        [*fitting, *(name for name in LOSS_CONFIGS if name not in fitting)],
        format_func=lambda name: _option(name, fitting),
        key=_key(page, "name"),
        persist_state="session",
        help=help_text(st.session_state[_key(page, "name")]),
    )
    st.caption(f"{CATALOGUE[chosen].when} Data: {CATALOGUE[chosen].data}.")
    if chosen == "combined":
        _draw_sum(page, drawn)
        return
    _draw_fields(page, f"loss.{chosen}", chosen, drawn)


def _option(name: str, fitting: list[str]) -> str:
    title = CATALOGUE[name].title
    return title if name in fitting else f"{title}: does not fit these data"


def _draw_fields(page: str, section: str, loss: str, drawn: forms.Drawn) -> None:
    forms.draw(page, section, SHOWN[loss], drawn=drawn)
    if more(loss) and st.toggle("More", key=f"{page}.more.{section}", persist_state="session"):
        forms.draw(page, section, more(loss), drawn=drawn)


def _draw_sum(page: str, drawn: forms.Drawn) -> None:
    custom = st.session_state[forms.key(page, "loss.combined", "preset")] == "custom"
    forms.draw(page, "loss.combined", ("preset",) if custom else SHOWN["combined"], drawn=drawn)
    if not custom:
        st.markdown("**Its batch softmax**")
        _draw_fields(page, PART, "bsc", drawn)
        return
    names = st.multiselect(
        "Parts", SINGLE, format_func=loss_words.TITLES.get, key=_key(page, "parts"), persist_state="session"
    )
    for place, name in zip(show.columns(max(1, len(names)), least=110), names, strict=False):
        place.number_input(
            f"Weight of {loss_words.TITLES[name]}",
            value=None,
            step=0.1,
            format="%g",
            key=_key(page, f"weight.{name}"),
            persist_state="session",
        )
    st.caption("Each part has its default settings here; the config file takes any, under `[[loss.parts]]`.")


def _key(page: str, name: str) -> Any:
    return forms.key(page, "loss", name)
