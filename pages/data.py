"""Data: source, columns, audit and shape of a dataset, each with its summary in view."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

import streamlit as st

from bsc_core.data import audit
from pages.ui import data_view, frame, mapping, show, store

context = frame.page("Data", "What is in these pairs, and is it fit to train on?")
mapping.upload()

with show.calm_errors():
    data = store.experiment_data(context.dataset_key)

findings = audit(data)
data_view.summaries(data, findings)
data_view.pictures(data)

source, columns, checks, shape = st.tabs(["Source", "Columns", "Audit", "Shape"])
with source:
    data_view.source(data)
with columns, show.calm_errors():
    mapping.columns_of(context.dataset_key)
with checks:
    data_view.findings(data, findings)
with shape:
    data_view.shape(data)

frame.next_step("Look at the batches", "batches", key="data.next")
