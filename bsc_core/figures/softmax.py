"""A small matrix whose softmax follows its temperature slider in the browser."""

# B pairs in a batch

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bsc_core.figures import theme

if TYPE_CHECKING:
    import altair as alt

LIVE_LIMIT = 64
"""Largest batch whose softmax is recomputed in the browser at every move of the slider."""
TEXT_LENGTH = 280


def live_softmax(
    similarity: list[list[float]], queries: list[str], documents: list[str], *, temperature: float = 0.1, cell: int = 44
) -> alt.LayerChart:
    """A matrix of p_ij, the softmax over row i of s_ij / temperature, recomputed as the slider moves.

    similarity: B lists of B cosines, B <= LIVE_LIMIT. The slider is part of the figure; no server is asked.
    """
    import altair as alt

    size = len(queries)
    if size > LIVE_LIMIT:
        raise ValueError(f"{size} rows; a live matrix holds at most {LIVE_LIMIT}")
    slider = alt.binding_range(min=0.02, max=1, step=0.01, name="temperature τ ")
    tau = alt.param(name="temperature", value=temperature, bind=slider)
    base = (
        alt.Chart(alt.Data(values=_live_values(similarity, queries, documents)))
        .transform_joinaggregate(highest="max(similarity)", groupby=["row"])
        .transform_calculate(weight="exp((datum.similarity - datum.highest) / temperature)")
        .transform_joinaggregate(total="sum(weight)", groupby=["row"])
        .transform_calculate(p="datum.weight / datum.total")
        .encode(
            x=alt.X("column:O", title="answers", axis=alt.Axis(labelAngle=0, ticks=False, domain=False)),
            y=alt.Y("number:O", title="questions", axis=alt.Axis(ticks=False, domain=False)),
            tooltip=[
                alt.Tooltip("query:N"),
                alt.Tooltip("document:N", title="answer"),
                alt.Tooltip("similarity:Q", title="cosine", format=".3f"),
                alt.Tooltip("p:Q", title="probability", format=".3f"),
            ],
        )
    )
    colour = alt.Color("p:Q", scale=alt.Scale(domain=[0, 1], range=list(theme.PROBABILITY)), legend=None)
    number = base.mark_text(fontSize=11).encode(
        text=alt.Text("p:Q", format=".2f"),
        color=alt.condition("datum.p > 0.55", alt.value("#FFFFFF"), alt.value("#26323D")),
    )
    return (
        alt.layer(base.mark_rect(cornerRadius=3).encode(color=colour), number)
        .add_params(tau)
        .properties(height=cell * size)
    )


def _live_values(similarity: list[list[float]], queries: list[str], documents: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "row": row,
            "column": column + 1,
            "number": row + 1,
            "query": theme.short(queries[row], TEXT_LENGTH),
            "document": theme.short(documents[column], TEXT_LENGTH),
            "similarity": value,
        }
        for row, values in enumerate(similarity)
        for column, value in enumerate(values)
    ]
