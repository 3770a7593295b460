"""Guided lessons: a claim, a control, a question with options and its answer, and the numbers in them.

The texts, with placeholders for numbers, are in lessons.toml.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsc_core.lab.batch import LabBatch
from bsc_core.lab.lessons.facts import FACTS, Facts
from bsc_core.lab.presets import preset_batch
from bsc_core.lab.settings import LabSettings


@dataclass(frozen=True)
class Lesson:
    """One claim, one control, one question with an answer.

    title: two to four words that do not give the answer away.
    claim, before, move, question, options, answer, practice: texts whose {placeholders} `facts` fills; they contain no
    literal numbers. before: what the figure shows before the guess; empty if its caption says so or it appears after
    the guess. practice: what follows for a run.
    correct: index of the right option. replies: for each option, why it is wrong; empty for the right one. terms: names
    of the glossary. link: URL parameters that open the same batch in the loss lab; empty where it lacks the control.
    figure_after_guess: whether the figure shows the answer. findings: the claims on the Findings page that test on real
    data what the lesson explains, such as `losses_pfcc`, or a statement of a claim on two arms with a sentence, such as
    `margins: triplet_5 triplet_10: Both are equally good.`. table: rows of cells below the answer, with placeholders as
    in the texts; the first row is the header.
    """

    slug: str
    title: str
    claim: str
    move: str
    question: str
    options: tuple[str, ...]
    correct: int
    replies: tuple[str, ...]
    answer: str
    practice: str
    terms: tuple[str, ...]
    before: str = field(default="", kw_only=True)
    link: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    figure_after_guess: bool = field(default=False, kw_only=True)
    findings: tuple[str, ...] = field(default=(), kw_only=True)
    table: tuple[tuple[str, ...], ...] = field(default=(), kw_only=True)

    def facts(self) -> Facts:
        """Compute the numbers of the sentences."""
        return FACTS[self.slug]()

    def sentences(self) -> dict[str, str]:
        """Return the texts with their numbers by name.

        Options, replies and cells of the table are `option 0`, `reply 0`, `cell 0 0` and so on.
        """
        facts = dict(self.facts())
        texts = {name: getattr(self, name) for name in ("claim", "before", "move", "question", "answer", "practice")}
        texts |= {f"option {number}": option for number, option in enumerate(self.options)}
        texts |= {f"reply {number}": reply for number, reply in enumerate(self.replies)}
        for row, cells in enumerate(self.table):
            texts |= {f"cell {row} {column}": cell for column, cell in enumerate(cells)}
        return {name: text.format(**facts) for name, text in texts.items()}


@dataclass(frozen=True)
class LabLesson(Lesson):
    """A lesson that displays the loss lab with one control: preset batch, initial settings, controls and panels.

    shown: the settings after a guess, which show the answer.
    """

    preset: str
    controls: tuple[str, ...]
    settings: LabSettings = field(default_factory=LabSettings)
    shown: LabSettings = field(default_factory=LabSettings)
    panels: tuple[str, ...] = ("similarity", "softmax", "gradient")

    def batch(self) -> LabBatch:
        """Return the batch of the lesson."""
        return preset_batch(self.preset)


def _lesson(slug: str, table: dict[str, Any]) -> Lesson:
    table |= {name: tuple(table[name]) for name in ("options", "replies", "findings", "terms") if name in table}
    table["table"] = tuple(map(tuple, table.get("table", ())))
    if "preset" not in table:
        return Lesson(slug, **table)
    lab: dict[str, Any] = {name: tuple(table[name]) for name in ("controls", "panels") if name in table}
    settings = table.get("settings", {})
    lab |= {"settings": LabSettings(**settings), "shown": LabSettings(**settings | table.get("shown", {}))}
    return LabLesson(slug, **table | lab)


LESSONS: dict[str, Lesson] = {
    slug: _lesson(slug, table)
    for slug, table in tomllib.loads(Path(__file__).with_name("lessons.toml").read_text(encoding="utf-8")).items()
}
