"""Ten guided lessons: a claim, a control, a question with its answer, and the numbers in them."""

from bsc_core.lab.lessons.lesson import LESSONS, LabLesson, Lesson

__all__ = ["LESSONS", "LabLesson", "Lesson"]
