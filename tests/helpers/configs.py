"""Variations of a run config."""

from __future__ import annotations

from bsc_core.config import RunConfig, make_config


def with_changes(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    """Return the config with fields of its sections replaced, such as `training={"max_steps": 2}`."""
    values = config.model_dump()
    for name, fields in sections.items():
        values[name] = {**values[name], **fields}
    return make_config(values)
