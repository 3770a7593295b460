"""Planted faults that `diagnose` names first, and alarms on clean runs.

    python benchmarks/diagnosis.py FOLDER [--data fourth] [--runs FOLDER]

FOLDER contains the datasets by name. The thresholds of the checks were set on the runs of `--data development` and
corrected on those of `second` and `third`; those of `fourth` were not used for it. Each fault is planted in one run,
with one thread. With `--runs`, runs that exist there are not trained again.
"""

import csv
import gzip
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import parser, print_header, print_row

from bsc_core.config import make_config
from bsc_core.diagnosis import Diagnosis, diagnose
from bsc_core.pipeline import run_experiment
from bsc_core.runs import RunStore

Row = dict[str, str]
Rows = dict[str, list[Row]]
SHARES = {"train": 1.0, "dev": 0.3125, "test": 0.3125}  # rows by split, relative to the training rows
RATES = {"static": 2e-3, "bundled": 3e-5}  # encoders, and a usual learning rate of each
COPIES = ("{}", "Question: {}", "{} Please explain.", "Hello, {}", "I would like to know: {}", "{} Thank you.")
SOURCES: dict[str, dict[str, tuple[str, ...]]] = {  # dataset, its columns, the label of positives or the highest label
    "development": {
        "pairs": ("qqp", "sentence1", "sentence2", "label", "1"),
        "graded": ("stsb", "sentence1", "sentence2", "score", "5"),
        "other_pairs": ("mrpc", "sentence1", "sentence2", "label", "1"),
    },
    "second": {
        "pairs": ("snli", "premise", "hypothesis", "label", "entailment"),
        "graded": ("sick", "sentence1", "sentence2", "score", "5"),
        "other_pairs": ("wikiqa", "query", "doc", "label", "1"),
    },
    "third": {
        "pairs": ("mnli", "premise", "hypothesis", "label", "entailment"),
        "graded": ("cqa_a", "query_body", "doc", "label", "1"),
        "other_pairs": ("clef2020_task2", "query", "doc", "label", "1"),
    },
    "fourth": {
        "pairs": ("mrpc", "sentence1", "sentence2", "label", "1"),
        "graded": ("wikiqa", "query", "doc", "label", "1"),
        "other_pairs": ("cqa_b", "query_body", "doc_body", "label", "1"),
    },
}


@dataclass(frozen=True)
class Case:
    """A run with one fault, or a clean one.

    Attributes:
        name: Name in the table.
        codes: Codes of findings that name the fault; empty for a clean run.
        rows: The rows by split.
        settings: Config by section, over the defaults of `base_config`; `rate` is a factor of the learning rate.
    """

    name: str
    codes: tuple[str, ...]
    rows: Rows
    settings: dict[str, Any] = field(default_factory=dict)


class Datasets:
    """Samples of the datasets of a set of `SOURCES`."""

    def __init__(self, folder: Path, sources: dict[str, tuple[str, ...]], rows: int) -> None:
        self.folder, self.sources = folder, sources
        self.sizes = {split: int(rows * share) for split, share in SHARES.items()}

    def positives(self, name: str, seed: int = 0) -> Rows:
        """Return distinct positive pairs without shared texts, by split."""
        dataset, query, document, label, positive = self.sources[name]
        found, seen = [], set()
        for row in _shuffled(self._read(dataset), seed):
            texts = {row[query], row[document]}
            if row[label] == positive and len(texts) == 2 and not texts & seen:
                seen |= texts
                found.append({"query": row[query], "document": row[document]})
        share = min(1.0, len(found) / sum(self.sizes.values()))
        return _cut(found, {split: int(size * share) for split, size in self.sizes.items()})

    def graded(self, seed: int = 0) -> Rows:
        """Return pairs with labels, by their own splits."""
        dataset, query, document, label, _ = self.sources["graded"]
        rows = _shuffled(self._read(dataset), seed)
        return {
            split: [
                {"query": row[query], "document": row[document], "label": row[label]}
                for row in rows
                if row["split"] == split
            ][:size]
            for split, size in self.sizes.items()
        }

    @property
    def label_range(self) -> tuple[float, float]:
        """Lowest and highest label of the graded pairs."""
        dataset, *_, highest = self.sources["graded"]
        return (1.0 if dataset == "sick" else 0.0), float(highest)

    def _read(self, dataset: str) -> list[Row]:
        with gzip.open(self.folder / dataset / "pairs.tsv.gz", "rt", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t"))


def _shuffled(rows: list[Row], seed: int) -> list[Row]:
    return random.Random(seed).sample(rows, len(rows))


def _cut(rows: list[Row], sizes: dict[str, int]) -> Rows:
    parts, start = {}, 0
    for split, size in sizes.items():
        parts[split] = rows[start : start + size]
        start += size
    return parts


def faulty_cases(data: Datasets) -> list[Case]:
    """Return the twelve faults."""
    pairs, graded = data.positives("pairs"), data.graded()
    lowest, highest = data.label_range
    labels = {"loss": {"name": "cosent"}, "data": {"label_min": lowest, "label_max": highest}}
    reversed_rows = [{**row, "label": f"{highest + lowest - float(row['label'])}"} for row in graded["train"]]
    documents = _shuffled(pairs["train"], 1)
    shuffled = [{**row, "document": other["document"]} for row, other in zip(pairs["train"], documents, strict=True)]
    copied = [
        {"query": form.format(row["query"]), "document": row["document"]}
        for row in pairs["train"][: len(pairs["train"]) // len(COPIES)]
        for form in COPIES
    ]
    few = pairs["train"][:32]
    return [
        Case("rate x 100", ("learning_rate_high",), pairs, {"training": {"rate": 100}}),
        Case("rate / 1000", ("learning_rate_low",), pairs, {"training": {"rate": 0.001}}),
        Case("temperature 0.001", ("temperature_low",), pairs, {"loss": {"temperature": 0.001}}),
        Case("temperature 1", ("temperature_high",), pairs, {"loss": {"temperature": 1.0}}),
        Case("batch of 2", ("batch_small",), pairs, {"training": {"batch_size": 2, "epochs": 1}}),
        Case("4 tokens per text", ("truncation",), pairs, {"encoder": {"max_seq_length": 4}}),
        Case("labels reversed", ("label_direction",), {**graded, "train": reversed_rows}, labels),
        Case("pairs shuffled", ("labels_random",), {**pairs, "train": shuffled}),
        Case("dev rows in train", ("leak",), {**pairs, "train": pairs["train"][len(pairs["dev"]) :] + pairs["dev"]}),
        Case("copies under other queries", ("false_negatives",), {**pairs, "train": copied}),
        Case(
            "another domain",
            ("forgetting",),
            data.positives("other_pairs"),
            {"evaluation": {"general": True}, "training": {"rate": 5, "epochs": 4}},
        ),
        Case(
            "80 epochs of 32 rows",
            ("overfitting",),
            {**pairs, "train": few},
            {"training": {"epochs": 80, "rate": 3, "batch_size": 16}},
        ),
    ]


def clean_cases(data: Datasets) -> list[Case]:
    """Return five runs without a fault."""
    lowest, highest = data.label_range
    scale = {"label_min": lowest, "label_max": highest}
    return [
        Case("clean: pairs, seed 1", (), data.positives("pairs", 1), {"training": {"seed": 1}}),
        Case("clean: pairs, seed 2", (), data.positives("pairs", 2), {"training": {"seed": 2, "epochs": 1}}),
        Case("clean: labels, cosent", (), data.graded(1), {"loss": {"name": "cosent"}, "data": scale}),
        Case("clean: labels, mse", (), data.graded(2), {"loss": {"name": "mse"}, "data": scale}),
        Case(
            "clean: other pairs, general score",
            (),
            data.positives("other_pairs"),
            {"evaluation": {"general": True}, "loss": {"name": "bsc", "temperature": 0.05}},
        ),
    ]


def train(case: Case, store: RunStore, encoder: str) -> Diagnosis:
    """Train the run of a case unless it exists, and diagnose it."""
    run_id = "".join(letter if letter.isalnum() else "-" for letter in case.name).strip("-")
    folder = store.root / "data" / run_id
    if not folder.exists():
        write_rows(case.rows, folder)
    run = store.create(base_config(case, folder, encoder), run_id)
    if run.read_json("result") is None:
        run_experiment(run.config(), run)
    return diagnose(run)


def write_rows(rows: Rows, folder: Path) -> None:
    """Write a file of each split."""
    folder.mkdir(parents=True)
    for split, part in rows.items():
        with (folder / f"{split}.tsv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(part[0]), delimiter="\t")
            writer.writeheader()
            writer.writerows(part)


def base_config(case: Case, folder: Path, encoder: str) -> Any:
    """Return the config of a case, whose files are in a folder."""
    columns = {name: name for name in case.rows["train"][0]}
    files = {split: str(folder / f"{split}.tsv") for split in case.rows}
    values: dict[str, dict[str, Any]] = {
        "data": {**files, "columns": columns},
        "encoder": {"name": encoder, "max_seq_length": 64},
        "batching": {"strategy": "random"},
        "loss": {"name": "mnrl"},
        "training": {"epochs": 2, "batch_size": 32, "threads": 1},
    }
    for section, settings in case.settings.items():
        replaced = section == "loss" and "name" in settings
        values[section] = settings if replaced else values.get(section, {}) | settings
    training = values["training"]
    training["learning_rate"] = RATES[encoder] * training.pop("rate", 1)
    return make_config(values, source=case.name)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--data", choices=list(SOURCES), default="fourth")
    options.add_argument("--encoder", choices=list(RATES), default="static")
    options.add_argument("--rows", type=int, default=960, help="training rows of a run")
    options.add_argument("--runs", type=Path)
    given = options.parse_args()
    data = Datasets(given.folder, SOURCES[given.data], given.rows)
    store = RunStore(given.runs or tempfile.mkdtemp())
    right, alarms = 0, 0
    faults, clean = faulty_cases(data), clean_cases(data)
    print_header("run", "first finding", "severity", "right", "then")
    for case in (*faults, *clean):
        found = train(case, store, given.encoder)
        first = found.findings[0] if found.findings else None
        others = ", ".join(finding.code for finding in found.findings[1:] if finding.severity != "info")
        is_right = first is not None and first.code in case.codes if case.codes else not found.alarms
        right += is_right and bool(case.codes)
        alarms += bool(not case.codes and found.alarms)
        cells = ("none", "-") if first is None else (first.code, first.severity)
        print_row(case.name, *cells, "yes" if is_right else "no", others or "-")
    print(f"\n{right} of {len(faults)} faults are named first; alarms on {alarms} of {len(clean)} clean runs.")


if __name__ == "__main__":
    main()
