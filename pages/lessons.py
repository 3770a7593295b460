"""Lessons page: short lessons on contrastive learning, each with a control and a figure."""

import streamlit as st

from pages.ui.components import page_layout
from pages.ui.lessons import figures, view

page_layout.setup_page(
    "Lessons", "How does contrastive learning work?", bar=(), parameters=(*view.PARAMETERS, *figures.PARAMETERS)
)

lesson = view.select()
with st.container(key="lessons-body"):
    reading, figure = st.columns([2, 3])
with reading:
    view.heading(lesson)
    is_open = view.question(lesson) or view.is_known(lesson)
with figure:
    view.task(lesson, is_open=is_open)
    if is_open or not lesson.figure_after_guess:
        figures.draw(lesson, view.key(lesson, "picture"), locked=not is_open)
    else:
        view.frame_of_figure()
view.recap()
view.navigation(lesson)
view.write_link()
