"""JSON documents of a run folder: their names, the types of their values, and the status of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, field_validator, model_validator

from bsc_core.config.messages import first_problem

# Names of JSON documents
RESULT = "result"  # what the run returned
TEXTS = "texts"  # digest and number of the texts that the embeddings belong to
FIRST_BATCH = "first_batch"  # the first batch as the model read it
GROUP = "group"  # group of the run, with its setting and seed
LAUNCHED = "launch"  # settings of the launcher, written before the run is queued
WORKER = "worker"  # identity of the process that executes the run
ENDED = "ended"  # final state with exit code, message and error, written just before the status
RESUMED = "resumed"  # id of the run that this one resumes, in case the status gets damaged

EVALUATION_SIZES = "evaluation/results"  # sizes, digests and thresholds of the values stored per query and pair
INTERVALS = "evaluation/intervals"  # confidence intervals of the metrics
BEST_EPOCH = "evaluation/best_epoch"  # epoch and dev metric of the saved model
PREVIOUS_NAMES = {EVALUATION_SIZES: "evaluation/measured", BEST_EPOCH: "evaluation/kept"}  # in runs of earlier versions

# Names of evaluations
GENERAL = "general"  # metrics of the general suite: before training, of each epoch, and of the saved model (`after`)
GENERAL_SCORE = "general_score"  # mean of the metrics of the general suite

_MAX_EVALUATED = 1_000  # splits and metrics of an evaluation
_MAX_SETTING_LENGTH = 10_000  # characters of the setting of a run in its group

State = Literal["queued", "starting", "running", "stopping", "done", "failed", "stopped", "lost"]
STATES: tuple[State, ...] = get_args(State)
FINISHED: frozenset[State] = frozenset({"done", "failed", "stopped", "lost"})

# Types of the values in JSON documents, which another program may have changed
_LARGEST_NUMBER = 1e15
_Number = Annotated[float, Field(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER)] | None
_Time = Annotated[float, Field(ge=0, le=1e11)]  # until the year 5138
_Count = Annotated[int, Field(ge=0, le=10**12)]
_Name = Annotated[str, Field(max_length=200)]
_Metrics = Annotated[dict[_Name, _Number], Field(max_length=500)]
_Type = TypeVar("_Type")


class _MetricsLine(BaseModel, extra="allow"):
    """One line of the metrics; `dev` and `test` are the metrics of an evaluation, the other values are numbers."""

    __pydantic_extra__: dict[str, bool | _Number] = Field(init=False)
    kind: str = ""
    epoch: _Count = 0
    step: _Count = 0
    facts: Annotated[dict[str, bool | _Number | str], Field(max_length=100)] | None = None
    dev: _Metrics | None = None
    test: _Metrics | None = None

    @model_validator(mode="after")
    def _check_position(self) -> Self:
        needed = {"step": {"step"}, "evaluation": {"epoch"}, "plan": {"epoch"}}.get(self.kind, set())
        if missing := needed - self.model_fields_set:
            raise ValueError(f"a line of kind {self.kind} has no {min(missing)}")
        return self


class _Result(BaseModel):
    """Results of a split, without the arrays, which have separate files."""

    digest: str
    labeled: bool = False
    threshold: _Number = None
    decision: _Number = None
    accuracy_decision: _Number = None


class _BestEpoch(BaseModel):
    epoch: _Count
    value: _Number


class _RunResult(BaseModel, extra="allow"):
    """What the run returned; only the values that other code computes with."""

    state: str = ""
    best_epoch: _Count | None = None
    precision: Literal["", "fp32", "bf16", "fp16"] = ""
    device: str = ""
    steps: _Count | None = None
    train_characters_per_second: _Number = None
    encode_characters_per_second: _Number = None
    peak_memory_bytes: _Number = None
    disk_bytes: _Number = None
    checkpoints: _Count | None = None
    checkpoint_bytes: _Number = None


class _Group(BaseModel):
    group: str | None = None
    setting: Annotated[dict[str, Any], Field(max_length=50)] = {}
    seed: int | None = None

    @field_validator("setting")
    @classmethod
    def _check_length(cls, setting: dict[str, Any]) -> dict[str, Any]:
        if len(json.dumps(setting)) > _MAX_SETTING_LENGTH:
            raise ValueError("its setting is longer than those of sweeps")
        if not _has_usual_numbers(setting):
            raise ValueError("its setting has a number that no config has")
        return setting


def _has_usual_numbers(value: Any) -> bool:
    """Whether all numbers in a JSON value are in the range of those of a config."""
    if isinstance(value, dict | list):
        return all(map(_has_usual_numbers, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int | float) or abs(value) <= _LARGEST_NUMBER


class _FirstBatch(BaseModel):
    epoch: _Count
    size: _Count
    pairs: list[dict[str, str | bool | _Number]]


def _check_values(splits: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    if sum(1 + len(metrics) for metrics in splits.values()) > _MAX_EVALUATED:
        raise ValueError("it has more metrics than an evaluation writes")
    return splits


class _Texts(BaseModel):
    digest: str
    count: _Count


SCHEMAS: dict[str, TypeAdapter[Any]] = {
    EVALUATION_SIZES: TypeAdapter(Annotated[dict[str, dict[str, _Result]], Field(max_length=100)]),
    INTERVALS: TypeAdapter(Annotated[dict[str, dict[str, dict[str, tuple[_Number, _Number]]]], Field(max_length=100)]),
    BEST_EPOCH: TypeAdapter(_BestEpoch),
    TEXTS: TypeAdapter(_Texts),
    RESULT: TypeAdapter(_RunResult),
    GROUP: TypeAdapter(_Group),
    FIRST_BATCH: TypeAdapter(_FirstBatch),
}
EVALUATION: TypeAdapter[Any] = TypeAdapter(Annotated[dict[str, _Metrics], AfterValidator(_check_values)])
OBJECT: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
METRICS: TypeAdapter[Any] = TypeAdapter(_MetricsLine)


def _checked(content: bytes, schema: TypeAdapter[_Type]) -> _Type:
    """Parse JSON as an instance of a type. Raises ValueError with one sentence."""
    try:
        return schema.validate_json(content, strict=True)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def parse_json(content: bytes, schema: TypeAdapter[Any]) -> Any:
    """Parse JSON and check its types, without converting the values. Raises ValueError with one sentence."""
    _checked(content, schema)
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@dataclass(frozen=True)
class RunStatus:
    """Status of a run. Times are Unix timestamps from a clock that can be adjusted."""

    state: State = "queued"
    step: _Count = 0
    steps: _Count | None = None
    epoch: _Count = 0
    epochs: _Count | None = None
    created: _Time = 0.0
    started: _Time | None = None
    updated: _Time = 0.0
    finished: _Time | None = None
    pid: int | None = None
    process_created: _Time | None = None
    process_mark: str | None = None  # identifier of the process that does not depend on the clock
    pulse: _Number = None  # last heartbeat of the process, from a monotonic clock
    message: str = ""
    error: str | None = None
    eta_seconds: _Number = None
    metric_name: _Name | None = None
    metric_best: _Number = None
    metric_low: _Number = None  # lower end of the confidence interval of `metric_best`, once finished
    metric_high: _Number = None  # upper end
    exit_code: int | None = None
    resumed_from: str | None = None
    group: str | None = None
    backend: str = "local"

    @property
    def is_finished(self) -> bool:
        """Whether the run is done, failed, stopped or lost."""
        return self.state in FINISHED

    @property
    def is_readable(self) -> bool:
        """Whether the status was read from a valid file, which always contains the creation time."""
        return self.created > 0

    @property
    def progress(self) -> float:
        """Completed share of the steps, in [0, 1]; 0 if their number is unknown."""
        return min(1.0, self.step / self.steps) if self.steps else 0.0

    @property
    def percent(self) -> int:
        """Completed percentage as pages show it; below 100 until the model is evaluated after the last step."""
        if self.state == "done":
            return 100
        return min(int(100 * self.progress), 100 if self.is_finished else 99)


_STATUS: TypeAdapter[RunStatus] = TypeAdapter(RunStatus)


@lru_cache(maxsize=8192)  # a page reads the statuses of many unchanged runs several times
def status_from_json(content: bytes) -> RunStatus:
    """Parse a status; unknown fields are ignored.

    Raises:
        ValueError: The content is not a valid status.
    """
    if "state" not in parse_json(content, OBJECT):
        raise ValueError("it contains no state of a run")
    return _checked(content, _STATUS)
