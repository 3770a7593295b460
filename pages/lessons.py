"""Lessons: ten claims about contrastive learning, each with one thing to move and a picture that proves it."""

import sys
from pathlib import Path

sys.path.extend({str(Path(__file__).parents[1])} - set(sys.path))  # so that the page also runs alone

from pages.ui import frame, lesson_pictures, lessons

frame.page("Lessons", "How does contrastive learning work, one claim at a time?", bar=False)

lesson = lessons.choose()
lessons.heading(lesson)
lesson_pictures.draw(lesson, lessons.key(lesson, "picture"))
lessons.question(lesson)
lessons.onward(lesson)
lessons.write_link()
