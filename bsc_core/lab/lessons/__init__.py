"""Ten guided lessons: what each claims, what one moves in it, and the numbers behind its words."""

from bsc_core.lab.lessons.batch_softmax import BATCH_SOFTMAX
from bsc_core.lab.lessons.further import FURTHER
from bsc_core.lab.lessons.lesson import LabLesson, Lesson

LESSONS: dict[str, Lesson] = {lesson.slug: lesson for lesson in (*BATCH_SOFTMAX, *FURTHER)}

__all__ = ["LESSONS", "LabLesson", "Lesson"]
