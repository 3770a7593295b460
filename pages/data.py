"""Data: source, columns, audit and shape of a dataset, each with its summary in view; and rows made of other rows."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from pages.ui import bringing, checks, data_view, exporting, frame, making, mapping, show, store

context = frame.page("Data", "What is in these pairs, and is it fit to train on?")
bringing.draw()

with show.calm_errors():
    data = store.experiment_data(context.dataset_key)
    findings = checks.found(context.dataset_key, context.encoder)

data_view.summaries(data, findings)
data_view.pictures(data)

source, columns, audit, make, shape, export = st.tabs(
    ["Source", "Columns", "Audit", "Make examples", "Shape", "Export"], key="data.tab"
)
with source:
    data_view.source(data)
with columns, show.calm_errors(stop=False):
    mapping.columns_of(context.dataset_key)
with audit, show.calm_errors(stop=False):
    checks.draw(context.dataset_key, data, findings)
with make, show.calm_errors(stop=False):
    making.draw(context)
with shape:
    data_view.shape(data)
with export:
    exporting.draw(data, context.dataset_key)

frame.next_step("Look at the batches", "batches", key="data.next")
