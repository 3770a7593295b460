"""Presets of the New run page by name and family; their texts and values are in catalog.toml.

Presets of papers differ from the papers in the encoder, the bundled one, and in the learning rate, which decays
linearly to 0 also where the paper's is constant.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsc_core.config import DataConfig, RunConfig, make_config
from bsc_core.presets.suitable_losses import DataShape
from bsc_core.reproduction.catalog import RECOMMENDED_SETTINGS

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TASKS: dict[str, dict[str, Any]] = _TABLES["tasks"]
"""Settings of the BSC paper by task."""
ORDERS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "random": ("random batches", {"strategy": "random"}, ("antique", "cqa_a", "cqa_b", "pfcc")),
    "clusters": ("300 clusters", {"strategy": "clusters", "clusters": 300}, ("cqa_a", "cqa_b")),
    "sequential": ("the order of the file", {"strategy": "sequential"}, ("cqa_a", "cqa_b")),
}
"""Batch orders that the BSC paper compares with nearest neighbors, with their tasks."""


@dataclass(frozen=True)
class Preset:
    """Starting point of the New run page."""

    title: str  # display name
    when: str  # one sentence on the task that it suits
    values: dict[str, Any]  # config sections without `data`
    sweep: dict[str, list[Any]] = field(default_factory=dict)  # lists of values by key, for a preset of several runs


def _family(table: dict[str, Any]) -> dict[str, Preset]:
    """Return the presets of a family; sections of a preset replace those of the family."""
    shared = {key: values for key, values in table.items() if key not in ("family", "presets")}
    return {name: _preset(**shared | preset) for name, preset in table["presets"].items()}


def _preset(title: str, when: str, sweep: dict[str, list[Any]] | None = None, **sections: dict[str, Any]) -> Preset:
    return Preset(title, when, sections, sweep or {})


def _on_task(task: str, title: str, when: str, *, sweep: Any = None, **changes: dict[str, Any]) -> Preset:
    """Return a preset of a task of the BSC paper with changed keys; a loss with a name replaces the task's."""
    sections: dict[str, dict[str, Any]] = {"encoder": {"name": "bundled", "max_seq_length": 90}}
    sections |= {section: TASKS[task][section] for section in ("batching", "loss", "training")}
    sections = {section: values | changes.get(section, {}) for section, values in sections.items()}
    if "name" in changes.get("loss", {}):
        sections["loss"] = changes["loss"]
    return _preset(title, when, sweep, **sections)


def _bsc_paper() -> dict[str, Preset]:
    """Return the presets of the BSC paper: its tasks with several losses and orders, its comparisons and its grids."""
    tasks: dict[str, Preset] = {}
    triplets, learned, orders = {}, {}, {}
    random = {"strategy": "random"}
    for name, task in TASKS.items():
        title, data, mu = task["title"], task["data"], task["mu"]
        combined = {"name": "combined", "preset": "bsc_mse", "mu": mu, "bsc": task["loss"]}
        tasks |= {
            f"paper_{name}": _on_task(name, title, f"Batch softmax as the paper trains it on {title}: {data}."),
            f"paper_{name}_combined": _on_task(
                name,
                f"{title}: with regression",
                f"{mu:g} × batch softmax + {1 - mu:g} × regression (equation 6), the paper's choice for {title}: "
                f"{data}; needs labels.",
                loss=combined,
            ),
            f"paper_{name}_mse": _on_task(
                name,
                f"{title}: regression alone",
                f"Squared error of cosine and label, the paper's baseline on {title}; needs labels.",
                loss={"name": "mse"},
                batching=random,
            ),
        }
        if margin := task.get("triplet_margin"):
            triplets[f"paper_{name}_triplet"] = _on_task(
                name,
                f"{title}: triplet loss",
                f"Euclidean distance and a margin of {margin:g}, the paper's baseline on {title}; needs a wrong "
                "document for each query.",
                loss={"name": "triplet", "distance": "euclidean", "margin": margin},
                batching=random,
            )
        if rate := task.get("temperature_rate"):
            learned[f"paper_{name}_tau"] = _on_task(
                name,
                f"{title}: temperature learned",
                "Learns the temperature, starting at 1; the paper uses the learned value as the fixed temperature of "
                "its other runs.",
                loss={"temperature": 1.0, "learn_temperature": True, "temperature_parameter": "linear"},
                training={"temperature_learning_rate": rate},
            )
    for order, (label, batching, names) in ORDERS.items():
        for name in names:
            title = TASKS[name]["title"]
            when = f"The paper's comparison on {title}: the same loss with {label} instead of nearest neighbors."
            orders[f"paper_{name}_{order}"] = _on_task(name, f"{title}: {label}", when, batching=batching)
    comparisons, grids = (
        {name: _on_task(**table) for name, table in _TABLES[kind].items()} for kind in ("comparisons", "grids")
    )
    return tasks | triplets | orders | comparisons | learned | grids


RECOMMENDED: dict[str, Preset] = {
    name: Preset(setting.title, setting.when, {section: dict(values) for section, values in setting.values.items()})
    for name, setting in RECOMMENDED_SETTINGS.items()
}
FAMILIES: dict[str, dict[str, Preset]] = {
    "Recommended by dataset": RECOMMENDED,
    "By task": _family(_TABLES["by_task"]),
    "BSC paper": _bsc_paper(),
    **{_TABLES[key]["family"]: _family(_TABLES[key]) for key in ("article", "margins", "scl", "simcse")},
}
PRESETS: dict[str, Preset] = {name: preset for family in FAMILIES.values() for name, preset in family.items()}


def family_of(name: str) -> str:
    """Return the family of a preset.

    Raises:
        KeyError: The preset is unknown.
    """
    families = {preset: family for family, presets in FAMILIES.items() for preset in presets}
    return families[name]


def preset_config(name: str, data: DataConfig) -> RunConfig:
    """Return the config of a preset on these data.

    Raises:
        KeyError: The preset is unknown.
    """
    return make_config({**PRESETS[name].values, "data": data.model_dump()})


def suggested(shape: DataShape | None) -> str:
    """Return the name of the preset to start from with data of this shape."""
    return "task_nli" if shape is not None and shape.classes > 1 else "recommended"


def recommended(data: DataConfig) -> RunConfig:
    """Return the config that the app offers first."""
    return preset_config("recommended", data)
