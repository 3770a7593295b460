"""Controls that store their value in the URL."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.helpers.pages import page_text


def script() -> None:
    import streamlit as st

    from pages.ui.components import url

    url.setup(("batches.seed",), arrived="opened" not in st.session_state)
    st.session_state["opened"] = True
    st.number_input("Seed", 0, 9, 3, **url.bound("batches.seed", limits=(0, 9)))


def test_the_first_change_after_an_invalid_number_of_a_link_is_in_the_url() -> None:
    app = AppTest.from_function(script)
    app.query_params["batches.seed"] = "1e400"
    app.run()
    assert "batches.seed is '1e400'; it must be a number from 0 to 9." in page_text(app)
    assert "batches.seed" not in app.query_params
    app.number_input(key="batches.seed").set_value(8).run()
    assert app.number_input(key="batches.seed").value == 8
    assert app.query_params["batches.seed"] == "8"
