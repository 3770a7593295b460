"""Base classes of config sections, and the aliases of renamed keys and values."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.fields import ComputedFieldInfo, FieldInfo

logger = logging.getLogger("bsc_core.config")

MAX_NUMBER = 2**53 - 1  # above, floating-point numbers and JavaScript skip whole numbers

_deprecations: ContextVar[list[str] | None] = ContextVar("deprecations", default=None)


def flatten(
    values: BaseModel | Mapping[str, Any], sections: Collection[str] | None = None, *, exclude_none: bool = False
) -> dict[str, Any]:
    """Return nested values under dotted names: {"loss": {"temperature": 0.1}} -> {"loss.temperature": 0.1}.

    Args:
        values: A config or a mapping.
        sections: The top-level keys to return; None: all.
        exclude_none: Leave out keys that are None.
    """
    if isinstance(values, BaseModel):
        values = values.model_dump(mode="json")
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if sections is not None and key not in sections:
            continue
        if isinstance(value, Mapping):
            inner = flatten(value, exclude_none=exclude_none)
            flat |= {f"{key}.{name}": item for name, item in inner.items()}
        elif value is not None or not exclude_none:
            flat[key] = value
    return flat


def _may_be_truth_value(kind: Any) -> bool:
    """Whether a type is no number, or also has truth values."""
    parts = get_args(kind) or (kind,)
    return bool in parts or not {int, float} & set(parts)


def _title(name: str, info: FieldInfo | ComputedFieldInfo) -> str:
    return name.replace("_", " ").capitalize()


class Section(BaseModel):
    """A frozen section that rejects unknown keys; the docstring of a field is its help text.

    Attributes:
        aliases: Old names of keys, each with the current name.
        value_aliases: For a key, old names of its values, each with the current name.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        field_title_generator=_title,
    )
    aliases: ClassVar[Mapping[str, str]] = {}
    value_aliases: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Join the lines of each help text."""
        for info in cls.model_fields.values():
            info.description = " ".join((info.description or "").split()) or None

    @model_validator(mode="before")
    @classmethod
    def _apply_aliases(cls, values: Any) -> Any:
        return cls.with_current_names(values) if isinstance(values, Mapping) else values

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` in place of a number, which pydantic takes for 1."""
        if isinstance(value, bool) and not _may_be_truth_value(cls.model_fields[info.field_name or ""].annotation):
            raise ValueError(f"{info.field_name} is {str(value).lower()}; give a number")
        return value

    @field_validator("*")
    @classmethod
    def _limit_number(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise ValueError(f"the number has {len(str(abs(value)))} digits; give at most {MAX_NUMBER:,}")
        return value

    @classmethod
    def with_current_names(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values with the current names of keys and values.

        Raises:
            ValueError: The old and the current name of a key are set to different values.
        """
        current: dict[str, Any] = {}
        for key, value in values.items():
            name = cls.aliases.get(key, key)
            if name != key:
                note_deprecation(f"{key} is now {name}")
            value = cls.current_value(name, value)
            if name in current and current[name] != value:
                raise ValueError(both_set(next(old for old in values if cls.aliases.get(old) == name), name))
            current[name] = value
        return current

    @classmethod
    def current_value(cls, name: str, value: Any) -> Any:
        """Return a value, or each value of a list, by its current name."""
        known = cls.value_aliases.get(name, {})
        if isinstance(value, list | tuple):
            return type(value)(cls.current_value(name, item) for item in value)
        if isinstance(value, str) and value in known:
            note_deprecation(f"{name} = {value!r} is now {known[value]!r}")
            return known[value]
        return value


class MatryoshkaSection(Section):
    """Truncated dimensions at which any loss can be computed in addition to the full embeddings."""

    matryoshka_dims: tuple[Annotated[int, Field(ge=1)], ...] = Field((), title="Matryoshka dimensions", max_length=32)
    """Numbers of dimensions d. The loss is the weighted sum over d of the loss on the first d coordinates of the
    embeddings; empty: the loss on the full embeddings. Include the full width, or it is not trained."""
    matryoshka_weights: tuple[Annotated[float, Field(ge=0)], ...] = Field((), title="Matryoshka weights")
    """Weight of each dimension in the sum; empty: 1 for all."""

    @model_validator(mode="after")
    def _matching_weights(self) -> MatryoshkaSection:
        dims, weights = self.matryoshka_dims, self.matryoshka_weights
        if len(set(dims)) != len(dims):
            raise ValueError(f"matryoshka_dims is {list(dims)}; name each dimension once")
        if weights and (len(weights) != len(dims) or not any(weights)):
            raise ValueError(
                f"matryoshka_weights has {len(weights)} number(s) for {len(dims)} dimension(s); give one for each, "
                "not all 0, or leave it empty"
            )
        if dims and self.has_classifier:
            raise ValueError("matryoshka_dims is set and the loss has a classifier of the full width; remove one")
        return self

    @property
    def has_classifier(self) -> bool:
        """Whether the loss trains a classifier on the embeddings."""
        return False


class LossSection(MatryoshkaSection):
    """Base class of the sections of all losses."""

    needs: ClassVar[frozenset[str]] = frozenset()
    takes_negatives: ClassVar[bool] = False

    @property
    def guide(self) -> str | None:
        """Name of the encoder whose vectors the loss needs, or None."""
        return None


def all_sections() -> list[type[Section]]:
    """Return all sections, base classes first."""
    sections: list[type[Section]] = [Section]
    for section in sections:
        sections.extend(section.__subclasses__())
    return sections


def sections_in(annotation: Any) -> list[type[Section]]:
    """Return the sections that a type annotation contains."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections_in(part)]


def both_set(old: str, new: str) -> str:
    """Return the message for a key that is set under its old and its current name."""
    return f"{old} and {new} are both set; {old} is the old name of {new}, keep only {new}"


def json_with_previous_names(text: str) -> str:
    """Return the compact JSON of a config with the previous names of its keys and values."""
    for section in all_sections():
        for old, new in section.aliases.items():
            text = text.replace(f'"{new}":', f'"{old}":')
        for known in section.value_aliases.values():
            for old, new in known.items():
                text = text.replace(f'"{new}"', f'"{old}"')
    return text


def note_deprecation(change: str) -> None:
    """Log the use of an old name, or collect it for the enclosing `log_deprecations`."""
    collected = _deprecations.get()
    if collected is None:
        logger.warning("Deprecated config key: %s", change)
    elif change not in collected:
        collected.append(change)


@contextmanager
def log_deprecations(source: str) -> Iterator[None]:
    """Log the old names that are read in the block in one line; an outer block collects those of inner blocks."""
    if _deprecations.get() is not None:
        yield
        return
    with _collect() as collected:
        try:
            yield
        finally:
            if collected:
                logger.warning("%s: deprecated config keys: %s", source, "; ".join(collected))


@contextmanager
def ignore_deprecations() -> Iterator[None]:
    """Read old names without logging, as in the stored config of an earlier run."""
    with _collect():
        yield


@contextmanager
def _collect() -> Iterator[list[str]]:
    collected: list[str] = []
    token = _deprecations.set(collected)
    try:
        yield collected
    finally:
        _deprecations.reset(token)
