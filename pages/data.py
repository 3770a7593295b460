"""Data page: source, columns, audit, generated rows, shape and export of a dataset."""

import streamlit as st

from pages.ui.components import data_cache, display, page_layout, url
from pages.ui.data import audit, column_mapping, funnel, generate, import_form, overview

TAB, TABS = audit.TAB, ("Source", "Columns", "Audit", "Generate rows", "Shape", "Export")

context = page_layout.setup_page(
    "Data",
    "What is in this dataset, and what is wrong with it?",
    bar=("dataset", "encoder"),
    parameters=(TAB, f"{import_form.OPEN}*", audit.LINKED, *overview.PARAMETERS, *generate.PARAMETERS, "data.edit.*"),
)
if import_form.draw():
    st.stop()  # the rest of the page is about another dataset

with display.show_errors():
    audit.draw_filters_of_link(context.dataset_key)
    data = data_cache.dataset_splits(context.dataset_key)
    findings = audit.audit_dataset(context.dataset_key, context.encoder)

overview.problems(data, findings, lambda: url.open_tab(TAB, "Audit"))
overview.summaries(data, findings)

source_tab, columns_tab, audit_tab, generate_tab, shape_tab, export_tab = st.tabs(
    TABS, on_change="rerun", **url.tabs(TAB, TABS)
)
with source_tab:
    overview.source(data)
    overview.sharing(context.dataset_key)
with columns_tab, display.show_errors(stop=False):
    column_mapping.draw(context.dataset_key)
with audit_tab, display.show_errors(stop=False):
    audit.draw(context.dataset_key, data, findings)
has_form = False
with generate_tab, display.show_errors(stop=False):
    if data.funnel:
        funnel.draw(data, name="data")
    has_form = generate.draw(context)
with shape_tab:
    overview.shape(data)
with export_tab:
    overview.export(data, context.dataset_key)

with page_layout.action_bar():
    page_layout.next_step_button(
        "Inspect the batches", "batches", key="data.next", primary=not (has_form and generate_tab.open)
    )
    page_layout.next_step_button("Train on this dataset", "train", key="data.train", primary=False)
