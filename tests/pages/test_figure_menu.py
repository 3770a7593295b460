"""The title and the menu that every figure has."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from tests.helpers.pages import figure_titles
from tests.helpers.waiting import PATIENCE_SECONDS


def draw(kind: str) -> AppTest:
    def page(kind: str) -> None:
        import altair as alt
        import pandas as pd
        import plotly.graph_objects as go

        from pages.ui.components import display

        table = pd.DataFrame({"step": [1, 2, 3], "loss": [2.0, 1.5, 1.0]})
        title = alt.TitleParams(["The loss falls", "from 2 to 1."], subtitle=["a [1, 2] *b*"])
        chart = alt.Chart(table).mark_line().encode(x="step:Q", y="loss:Q").properties(title=title)
        values = alt.layer(alt.Chart(alt.Data(values=table.to_dict("records"))).mark_line()).properties(title=title)
        inline = {"inline": values, "inline spec": display.vega_lite_spec(values)}
        drawn = {**inline, "altair": chart, "spec": display.vega_lite_spec(chart), "plotly": go.Figure()}
        title = "The loss falls from 2 to 1." if kind == "plotly" else None
        display.figure(drawn[kind], alt="Loss by step", name="loss", title=title, data=table if title else None)

    app = AppTest.from_function(page, args=(kind,), default_timeout=PATIENCE_SECONDS).run()
    assert not app.exception
    return app


@pytest.mark.parametrize("kind", ["altair", "spec", "inline", "inline spec", "plotly"])
def test_a_figure_has_a_title_and_one_menu_for_its_data_and_picture(kind: str) -> None:
    app = draw(kind)
    assert figure_titles(app) == ["The loss falls from 2 to 1"]
    assert [button.key for button in app.get("download_button")] == ["figure.loss.data"]
    [menu] = app.get("bidi_component")
    sent = json.loads(menu.proto.json)
    assert sent == {"frame": "st-key-figure-loss-frame", "name": "loss", "title": "The loss falls from 2 to 1"}
    if kind != "plotly":
        assert "title" not in json.loads(app.get("vega_lite_chart")[0].proto.spec)
        assert app.markdown[0].value.endswith(r":small[:gray[a \[1, 2\] \*b\*]]")
