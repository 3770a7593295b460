"""Lessons page: short lessons on contrastive learning, each with a control and a figure."""

from pages.ui.components import page_layout
from pages.ui.lessons import figures, view

page_layout.setup_page(
    "Lessons", "How does contrastive learning work?", bar=(), parameters=(*view.PARAMETERS, *figures.PARAMETERS)
)

lesson = view.select()
view.heading(lesson)
is_answered = view.question(lesson)
if is_answered or view.shows_figure(lesson):
    view.task(lesson)
    figures.draw(lesson, view.key(lesson, "picture"))
view.navigation(lesson)
view.write_link()
