"""What a lesson is: sentences with places for numbers, and the function that computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bsc_core.lab.batch import LabBatch
from bsc_core.lab.settings import LabSettings
from bsc_core.losses.explain import Explanation, explain

Facts = Mapping[str, str]


@dataclass(frozen=True)
class Lesson:
    """One claim, one control, one question with an answer.

    claim, move, question, answer: sentences whose {places} `facts` fills; no number is written in them. link: the URL
    parameters with which the loss lab opens the same thing.
    """

    slug: str
    title: str
    claim: str
    move: str
    question: str
    answer: str
    facts: Callable[[], Facts]
    link: Mapping[str, str] = field(default_factory=dict)

    def said(self) -> dict[str, str]:
        """Claim, move, question and answer with their numbers."""
        facts = dict(self.facts())
        sentences = {name: getattr(self, name) for name in ("claim", "move", "question", "answer")}
        return {name: text.format(**facts) for name, text in sentences.items()}


@dataclass(frozen=True)
class LabLesson(Lesson):
    """A lesson whose picture is the loss lab with one control: the batch, where it starts, and what can be moved."""

    batch: Callable[[], LabBatch] = field(kw_only=True)
    settings: LabSettings = field(default_factory=LabSettings)
    controls: tuple[str, ...] = ("temperature",)
    panels: tuple[str, ...] = ("similarity", "softmax", "gradient")


def seen(batch: LabBatch, **settings: object) -> Explanation:
    """What the loss sees in a batch under some settings of the lab."""
    chosen = LabSettings(**settings)  # type: ignore[arg-type]
    return explain(
        batch.queries,
        batch.documents,
        batch.labels,
        config=chosen.config(),
        query_ids=batch.query_ids,
        document_ids=batch.document_ids,
    )


def decimal(value: float, digits: int = 3) -> str:
    """A number as a sentence holds it: `0.917`, with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def percent(value: float) -> str:
    """A share as a sentence holds it: `42%`."""
    return f"{100 * value:.0f}%"
