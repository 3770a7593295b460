"""Controls of training curves: smoothing, logarithmic axis, and steps or time; the URL stores them."""

import streamlit as st

from bsc_core.figures.runs.curves import CurveView
from pages.ui.components import url

MAX_SMOOTHING = 0.99
SMOOTHING, AXIS, LOGARITHMIC = "smoothing", "curve_axis", "log_axis"
AXES = ["step", "time"]
PARAMETERS = (SMOOTHING, AXIS, LOGARITHMIC)


def select_view() -> CurveView:
    """Draw the controls and return their values."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        smoothing = st.slider(
            "Smoothing",
            0.0,
            MAX_SMOOTHING,
            0.0,
            0.01,
            width=220,
            help="Weight of the previous values in an exponential moving average. The values stay visible as faint "
            "lines. Metrics after each epoch and exact values, such as the learning rate, are not smoothed.",
            **url.bound(SMOOTHING, limits=(0, MAX_SMOOTHING)),
        )
        axis = st.segmented_control("Horizontal axis", AXES, default="step", required=True, **url.bound(AXIS, AXES))
        about = "Curves with values of 0 or below keep a linear axis."
        log = st.toggle("Logarithmic axis", help=about, **url.flag(LOGARITHMIC))
    return CurveView(smoothing, log=log, by_time=axis == "time")
