"""Claims of the papers as data: the schema of the files in `claims/`, and their loader."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from bsc_core.errors import ConfigError
from bsc_core.reproduction.subsets import Subset

CLAIM_FILES = Path(__file__).parent / "claims"
WEAK_SUFFIX = "_weak"
"""End of the names of claims that are repeated from a weak start."""
WEAK_NOTE = (
    "The runs start from the bundled encoder with random weights in the upper three of its six layers and in its "
    "pooler (encoder.reinit_layers), since the paper starts from a model that was not trained for sentence similarity."
)
UNTRAINED = "untrained"
"""Arm of every claim: the encoder before training, on the data of the arm it is compared with."""
FormName = Literal["full", "small"]
Sections = dict[str, dict[str, Any]]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Arm(_Record):
    """One setting of a comparison.

    values: config sections, without `data`, that override those of the claim. data: the name of one of the claim's
    subsets, the first by default. after: the arm whose model, with the same seed, this one starts from.
    """

    title: str
    values: Sections = {}
    data: str = ""
    after: str | None = None


class Statement(_Record):
    """One comparison of a claim: `better` is above `worse` in a metric on a split.

    expects: `better`, or `same` within `margin` either way. text: the statement for a reader, by default built from the
    titles of the arms. paper: the difference that the paper reports, in units of the metric. smallest_difference: the
    smallest difference of interest, by default that of the metric, see `verdicts`. informational: not stated in the
    paper; displayed, but not part of the verdict.
    """

    better: str
    worse: str
    metric: str
    split: Literal["dev", "test"] = "test"
    expects: Literal["better", "same"] = "better"
    margin: float | None = None
    text: str = ""
    paper: float | None = None
    smallest_difference: float | None = None
    informational: bool = False


SETTINGS = {"subsets", "arms", "statements", "values", "metrics_source", "extra_data"}


class Claim(_Record):
    """A claim of a paper and the experiment that tests it.

    paper: key of PAPERS; table: where the paper reports it; claim: the claim as a sentence. values: config sections
    shared by all arms. subsets: the data by name. metrics: displayed for every arm. metrics_source: key of
    METRICS_SOURCES. seeds: of the full form. budget: training budget that is equal for all arms. note: remarks on the
    result. extra_data: datasets that only the metrics source reads, by name. repeats: name of the claim that this one
    repeats from a weak start; empty: it starts from the bundled encoder.
    """

    name: str
    title: str
    paper: str
    table: str
    claim: str
    subsets: dict[str, Subset]
    arms: dict[str, Arm]
    statements: tuple[Statement, ...]
    metrics: tuple[str, ...]
    values: Sections = {}
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    budget: str = ""
    note: str = ""
    metrics_source: Literal["run", "nli", "polarity"] = "run"
    extra_data: dict[str, Subset] = {}
    repeats: str = ""

    def settings_hash(self) -> str:
        """Return the SHA-256 of the data, arms with their titles, hyperparameters and statements.

        Seeds and the other texts do not count.
        """
        settings = self.model_dump(mode="json", include=SETTINGS)
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        known = {*self.arms, UNTRAINED}
        unknown = [name for one in self.statements for name in (one.better, one.worse) if name not in known]
        if unknown:
            raise ValueError(f"claim {self.name}: a statement names the unknown arm {unknown[0]!r}")
        missing = [arm.data for arm in self.arms.values() if arm.data and arm.data not in self.subsets]
        if missing:
            raise ValueError(f"claim {self.name}: an arm names the unknown subset {missing[0]!r}")
        return self

    def subset_of(self, arm: str) -> str:
        """Return the name of the subset that an arm is trained and evaluated on."""
        return self.arms[arm].data or next(iter(self.subsets))

    def untrained_arm(self, subset: str) -> str:
        """Return an arm on the subset whose runs start from the untrained encoder.

        Raises:
            ConfigError: There is no such arm.
        """
        for name, arm in self.arms.items():
            if self.subset_of(name) == subset and arm.after is None:
                return name
        raise ConfigError(f"claim {self.name}: no arm on {subset} starts from the untrained encoder")


def read_claims(path: Path) -> tuple[str, dict[str, Claim]]:
    """Return the citation of a paper and its claims by name, in the order of the file.

    A claim has the fields of its task and those of its entry, which override them; the entry lists names of the task's
    arms and subsets (by default all subsets). A task with a table `weak` has each of its claims twice: a second claim,
    with the suffix WEAK_SUFFIX, repeats the first from a weak start.

    Raises:
        ValueError: the file does not follow the schema, or names an unknown task, arm or subset.
    """
    file = tomllib.loads(path.read_text(encoding="utf-8"))
    claims: dict[str, Claim] = {}
    for entry in file["claims"]:
        try:
            task = dict(file["tasks"][entry["task"]])
            weak = task.pop("weak", None)
            claims[entry["name"]] = _claim(file, task, entry)
            if weak is not None:
                repeated = _claim(file, _with_weak_start(task, weak), entry)
                changes = {
                    "name": f"{repeated.name}{WEAK_SUFFIX}",
                    "repeats": repeated.name,
                    "title": f"{repeated.title}, from a weak start",
                    "note": f"{repeated.note} {WEAK_NOTE}".strip(),
                }
                claims[changes["name"]] = repeated.model_copy(update=changes)
        except KeyError as error:
            raise ValueError(f"{path}: claim {entry['name']} names {error}, which is not in the file") from None
    return file["citation"], claims


def _claim(file: Mapping[str, Any], task: Mapping[str, Any], entry: Mapping[str, Any]) -> Claim:
    arms = {name: task["arms"][name] for name in entry["arms"]}
    subsets = {name: task["subsets"][name] for name in entry.get("subsets", task["subsets"])}
    fields = {key: value for key, value in entry.items() if key != "task"}
    return Claim.model_validate({**task, **fields, "paper": file["paper"], "arms": arms, "subsets": subsets})


def _with_weak_start(task: Mapping[str, Any], weak: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task with the fields of its table `weak`.

    Its subsets replace those of the task; the sections in `values` and, by arm, in `arms` override single settings.
    """
    arms = {
        name: {**arm, "values": merge_sections([arm.get("values", {}), weak.get("arms", {}).get(name, {})])}
        for name, arm in task["arms"].items()
    }
    return {
        **task,
        **{key: weak[key] for key in ("budget", "seeds") if key in weak},
        "subsets": {**task["subsets"], **weak.get("subsets", {})},
        "values": merge_sections([task["values"], weak["values"]]),
        "arms": arms,
    }


def merge_sections(layers: Sequence[Mapping[str, Mapping[str, Any]]]) -> Sections:
    """Merge config sections key by key; later layers win, and a `loss` with a name replaces the earlier `loss`."""
    merged: Sections = {}
    for layer in layers:
        for section, values in layer.items():
            base = {} if section == "loss" and "name" in values else merged.get(section, {})
            merged[section] = {**base, **values}
    return merged


_FILES = {
    paper: read_claims(CLAIM_FILES / f"{paper}.toml")
    for paper in ("bsc", "article", "margins", "scl", "negatives", "beliefs")
}
PAPER_CLAIMS: dict[str, Claim] = {name: claim for _, claims in _FILES.values() for name, claim in claims.items()}
"""The claims of the papers by name, in the order in which they are listed."""
PAPERS: dict[str, str] = {paper: citation for paper, (citation, _) in _FILES.items()} | {"best": "Recommended settings"}
"""Citations by the key of the paper; `best` means the recommended settings."""
