"""Small softmax matrix with a temperature slider, computed in the browser."""

# B pairs in a batch

import altair as alt

from bsc_core import formatting
from bsc_core.figures import theme

TEXT_LENGTH = 280
CELL = 44  # height in pixels


def interactive_softmax(
    similarity: list[list[float]], queries: list[str], documents: list[str], *, temperature: float = 0.1
) -> alt.LayerChart:
    """Plot the softmax of s_ij / temperature over each row i, updated in the browser by a slider.

    Args:
        similarity: B lists of B cosine similarities.
        queries: B query texts.
        documents: B document texts.
        temperature: initial temperature.
    """
    queries, documents = ([formatting.shorten(text, TEXT_LENGTH) for text in side] for side in (queries, documents))
    cells = [
        {"row": row, "column": column + 1, "number": row + 1, "query": queries[row], "document": documents[column]}
        | {"similarity": value}
        for row, values in enumerate(similarity)
        for column, value in enumerate(values)
    ]
    slider = alt.binding_range(min=0.02, max=1, step=0.01, name="temperature τ ")
    base = (
        alt.Chart(alt.Data(values=cells))
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
    color = alt.Color("p:Q", scale=alt.Scale(domain=[0, 1], range=list(theme.PROBABILITY)), legend=None)
    ink = alt.condition("datum.p > 0.86", alt.value(theme.ON_DARK), alt.value(theme.ON_LIGHT))
    numbers = base.mark_text(fontSize=11).encode(text=alt.Text("p:Q", format=".2f"), color=ink)
    return (
        alt.layer(base.mark_rect(cornerRadius=3).encode(color=color), numbers)
        .add_params(alt.param(name="temperature", value=temperature, bind=slider))
        .properties(height=CELL * len(queries))
    )
