"""Train, dev, test and corpus on one table of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bsc_core.data.mix import alike_classes
from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.data.reports import ReadReport
from bsc_core.data.stages import Stage
from bsc_core.data.texts import TextTable, unite


@dataclass(frozen=True, eq=False)
class ExperimentData:
    """What a run reads. All parts share `texts`.

    unused: (split name, rows) of the training file that no part takes. funnel: what was left of the training data at
    each step in which rows were made from them. remedied: (remedy, rows dropped) in the order of the remedies.
    mix_reports: of the further training files.
    """

    train: PairDataset
    dev: PairDataset
    test: PairDataset | None
    corpus: Corpus | None
    unused: tuple[tuple[str, int], ...] = ()
    funnel: tuple[Stage, ...] = ()
    remedied: tuple[tuple[str, int], ...] = ()
    mix_reports: tuple[ReadReport, ...] = ()

    @property
    def texts(self) -> TextTable:
        """The distinct texts of all parts, each once."""
        return self.train.texts

    @property
    def parts(self) -> dict[str, PairDataset]:
        """The pair datasets that are there, by name: train, dev and perhaps test."""
        named = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    @property
    def reports(self) -> tuple[ReadReport, ...]:
        """One report for each file that was read."""
        first, *others = [part.report for part in self.parts.values()]
        reports = [first, *self.mix_reports, *others, *([self.corpus.report] if self.corpus is not None else [])]
        return tuple({id(report): report for report in reports}.values())


def share_texts(pairs: Sequence[PairDataset], corpus: Corpus | None) -> ExperimentData:
    """Train, dev and perhaps test, and the corpus, on one table that holds no text but theirs."""
    own = [part.compact() for part in alike_classes(pairs)]
    texts, maps = unite([part.texts for part in own] + ([corpus.texts] if corpus is not None else []))
    train, dev, *test = [part.moved_to(texts, new_ids) for part, new_ids in zip(own, maps, strict=False)]
    return ExperimentData(
        train=train,
        dev=dev,
        test=test[0] if test else None,
        corpus=corpus.moved_to(texts, maps[-1]) if corpus is not None else None,
    )
