"""Saving the rows of a dataset as they stand: after remedies and with what was made of them."""

from __future__ import annotations

import streamlit as st

from bsc_core.data import ExperimentData
from bsc_core.data.export import as_parquet, as_tsv, exported_columns
from bsc_core.figures import theme

FORMATS = {
    "TSV": ("tsv", "text/tab-separated-values", as_tsv),
    "Parquet": ("parquet", "application/octet-stream", as_parquet),
}
PREVIEW = 5


def draw(data: ExperimentData, name: str) -> None:
    """Choose parts and format, see the first rows, and save; the file is made when it is asked for."""
    left, right = st.columns(2, vertical_alignment="bottom")
    every = list(data.parts)
    parts = left.pills("Parts", every, selection_mode="multi", default=every, key="data.export.parts") or every
    kind = right.segmented_control("Format", list(FORMATS), default="TSV", required=True, key="data.export.format")
    suffix, mime, written = FORMATS[kind or "TSV"]
    rows = sum(len(data.parts[part]) for part in parts)
    few = exported_columns(data, parts[:1], rows=PREVIEW)
    st.caption(
        f"{theme.many(rows, 'row')} with the columns {', '.join(few)}; the first of them below. The file can be "
        "brought back here, or trained on by `bsc train`."
    )
    st.dataframe(few, hide_index=True, key="data.export.first", alt="The first rows of the file")
    st.download_button(
        f"Save {theme.many(rows, 'row')} as {kind}",
        data=lambda: written(exported_columns(data, parts)),
        file_name=f"{name}.{suffix}",
        mime=mime,
        key="data.export.save",
        icon=":material/download:",
        type="primary",
        on_click="ignore",
    )
