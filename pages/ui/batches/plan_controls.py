"""Controls of the Batches page, and the button that trains with a plan."""

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core.batching import STRATEGIES
from bsc_core.batching.strategies.clusters import cluster_count
from bsc_core.config import BatchingConfig, BSCLossConfig, TrainingConfig
from bsc_core.data import PairDataset
from bsc_core.data.decisions import decided_rows
from bsc_core.data.generation.negatives import with_negatives
from bsc_core.figures.batches.similarity import BatchMask
from bsc_core.presets.catalog import PRESETS, suggested
from bsc_core.presets.suitable_losses import shape_of
from pages.ui.batches.plans import RUN_PLANS, PlanRequest
from pages.ui.batches.source import BatchSource
from pages.ui.components import config_form, page_layout, url
from pages.ui.components.glossary import TERMS, help_text
from pages.ui.new_run.config_summary import SOURCES, batching_fields
from pages.ui.runs.actions import SECTIONS, saved_dataset_key

ORDER = (
    *("random", "sequential", "nearest", "words", "clusters", "neighbors", "premises"),
    *("communities", "cuthill_mckee"),
)
MAX_BATCH_SIZE = 2048
LIMITS = {
    "neighbors": (1, 5000),
    "shingle_size": (1, 16),
    "stop_count": (0, 10_000),
    "shingle_neighbors": (1, 100),
    "clusters": (1, 10**6),
    "graph_neighbors": (1, 1000),
    "skip_ranks": (0, 1000),
}
ELSEWHERE = {"strategy", "group_size", "refresh", "refresh_epochs"}
"""Settings with a control of their own, and those that no plan of a single epoch has."""
NEEDS: dict[str, tuple[str, object]] = {
    "mixing": ("single_source", True),
    "mixing_temperature": ("mixing", "temperature"),
}
"""Setting -> the setting and value that it depends on."""
OPTIONS = {
    "group_by": ["query", "document"],
    "metric": ["cosine", "l2"],
    "search": ["auto", "exact", "approximate"],
    "mixing": ["proportional", "round_robin", "temperature"],
}
VIEW = "batches.view"
STRATEGIES_KEY = "batches.strategies"
START = "batches.start"  # session key: the run or the preset that the defaults of the controls come from
RESTARTED = "batches.restarted"  # session key: whether it has changed in this run of the page
PARAMETERS = (
    VIEW,
    *(f"batches.{name}" for name in ("strategies", "batch_size", "epoch", "seed", "labeled")),
    *(f"batches.{name}" for name in BatchingConfig.model_fields),
)


@dataclass(frozen=True)
class PlanSettings:
    """Values of the controls: a config per strategy, and batch size, seed and epoch."""

    strategies: dict[str, BatchingConfig]
    batch_size: int
    seed: int
    epoch: int
    labeled_negatives: bool

    def training_rows(self, source: BatchSource) -> PairDataset:
        """Return the rows after the decisions, without labeled negatives if these are switched off."""
        train = source.train
        if source.run is not None:
            negatives = source.run.mined_negatives(min(self.epoch, len(source.saved_plans())))
            return train if negatives is None else with_negatives(train, negatives)
        train = decided_rows(train)
        if self.labeled_negatives or train.positive.all():
            return train
        return train.take(np.flatnonzero(train.positive))

    def requests(self, source: BatchSource) -> dict[str, PlanRequest]:
        """Return the plans to show. A run's plan is the one saved for the epoch, with the run's batch size.

        A batch size above MAX_BATCH_SIZE is replaced by that, since the page compares all pairs of a batch.
        """
        requests = {}
        for name, config in self.strategies.items():
            requests[name] = PlanRequest(config, self.batch_size, self.seed, self.epoch - 1)  # plans count from 0
            if name == RUN_PLANS and source.run is not None:
                training, saved = source.run.config().training, source.saved_plans()
                epoch = min(self.epoch, len(saved)) - 1
                size = min(training.batch_size, MAX_BATCH_SIZE)
                requests[name] = PlanRequest(config, size, training.seed, epoch, saved[epoch])
        return requests


def select_settings(source: BatchSource, strategies: DeltaGenerator, row: DeltaGenerator) -> PlanSettings:
    """Draw the controls, whose values the URL stores: the choice of strategies, and a row with the others."""
    default, training = _start_values(source)
    with strategies:
        names = _select_strategies(source, default.strategy)
    with row:
        group_size = _number_input("Group size", "group_size", (1, 64), default.group_size)
        batch_size = _number_input("Batch size", "batch_size", (2, MAX_BATCH_SIZE), training.batch_size)
        epoch = _number_input("Epoch", "epoch", (1, 100), 1)
        seed = _number_input("Seed", "seed", (0, 2**31 - 1), training.seed)
        with st.popover("More", icon=":material/tune:"):
            more = _more_settings(default, set(names), source.train)
            field, labeled = BSCLossConfig.model_fields["labeled_negatives"], True
            if source.run is None:
                about = help_text("labeled_negatives")
                start = _default("batches.labeled", bool(field.default))
                labeled = st.toggle(str(field.title), start, help=about, **url.flag("batches.labeled"))
    configs = {name: _config(name, group_size, more) for name in names if name != RUN_PLANS}
    if RUN_PLANS in names and source.run is not None:
        size = source.run.config().training.batch_size
        if size > MAX_BATCH_SIZE:
            st.caption(f"The batches of the run have {size:,} rows; batches of {MAX_BATCH_SIZE:,} rows are shown.")
        configs[RUN_PLANS] = source.run.config().batching
    return PlanSettings(configs, batch_size, seed, epoch, labeled)


def _start_values(source: BatchSource) -> tuple[BatchingConfig, TrainingConfig]:
    """Return the settings of the run, else those of the preset that the New run page selects for these rows.

    When these change, the controls whose values are not in the URL get the new ones, see `_default`.
    """
    if source.run is not None:
        start, config = source.run.id, source.run.config()
        values = config.batching, config.training
    else:
        start = suggested(shape_of(source.train))
        preset = PRESETS[start].values
        values = BatchingConfig.model_validate(preset["batching"]), TrainingConfig.model_validate(preset["training"])
    st.session_state[RESTARTED] = st.session_state.get(START, start) != start
    st.session_state[START] = start
    return values


def _default(key: str, value: Any) -> Any:
    """Return the default of a control.

    If the run or the dataset has changed, the default is also written to the session state. Otherwise, the browser
    would keep the previous value.
    """
    if st.session_state[RESTARTED] and key not in st.query_params:
        st.session_state[key] = value
    return value


def _select_strategies(source: BatchSource, strategy: str) -> list[str]:
    """Draw the choice of strategies, at first the saved plans of the run or `strategy`, and random, with hints."""
    known = [name for name in ORDER if name in STRATEGIES]
    saved = [RUN_PLANS] if source.saved_plans() else []
    default = list(dict.fromkeys([*(saved or [strategy]), "random"]))
    selected = st.pills(
        "Strategies",
        [*saved, *known],
        selection_mode="multi",
        default=_default(STRATEGIES_KEY, default),
        help=help_text("strategy"),
        **url.bound(STRATEGIES_KEY, [*saved, *known]),
    )
    names = [name for name in [*known, *saved] if name in (selected or default[:1])] or ["nearest"]
    described = {name: config_form.describe_value("batching", "strategy", name) for name in names if name != RUN_PLANS}
    st.caption("  \n".join(f"**{name}**: {text}" for name, text in described.items()))
    return names


def _config(name: str, group_size: int, more: dict[str, Any]) -> BatchingConfig:
    used = {field: value for field, value in more.items() if field in chain(*batching_fields(name))}
    return BatchingConfig.model_validate({"strategy": name, "group_size": group_size, **used})


def _number_input(label: str, name: str, limits: tuple[int, int], value: int, *, width: int | str = 124) -> int:
    field = BatchingConfig.model_fields.get(name)
    about = help_text(name) if name in TERMS else field.description if field else None
    bound = url.bound(f"batches.{name}", limits=limits)
    value = _default(f"batches.{name}", min(max(value, limits[0]), limits[1]))
    return int(st.number_input(label, *limits, value, help=about, width=width, **bound))


def _more_settings(default: BatchingConfig, names: set[str], pairs: PairDataset) -> dict[str, Any]:
    """Draw the settings that any selected strategy uses, those that apply to every strategy last."""
    clusters = cluster_count(default.clusters, len(pairs.distinct_queries))
    values = dict[str, Any]()
    several = pairs.source is not None and len(np.unique(pairs.source)) > 1
    used = {field for strategy in names for field in chain(*batching_fields(strategy))} - ELSEWHERE
    for name in BatchingConfig.model_fields:
        needed = NEEDS.get(name)
        if name not in used or (name in SOURCES and not several) or (needed and values.get(needed[0]) != needed[1]):
            continue
        field, value, key = BatchingConfig.model_fields[name], getattr(default, name), f"batches.{name}"
        title, about = str(field.title), field.description
        if name in LIMITS:
            start = clusters if name == "clusters" else value
            values[name] = _number_input(title, name, LIMITS[name], start, width="stretch")
        elif isinstance(value, bool):
            values[name] = st.toggle(title, _default(key, value), help=about, **url.flag(key))
        elif isinstance(value, float):
            bound = url.bound(key, limits=(1, 1000))
            values[name] = st.number_input(title, 1.0, 1000.0, _default(key, value), help=about, **bound)
        else:
            selected = st.segmented_control(
                title,
                OPTIONS[name],
                default=_default(key, value),
                required=True,
                help=about,
                **url.bound(key, OPTIONS[name]),
            )
            values[name] = selected or value  # an empty parameter of a link selects nothing
    return values


def select_strategy(names: list[str]) -> str:
    """Return the strategy whose batch is shown, by default the last one."""
    if st.session_state.get(VIEW) not in names:
        st.session_state.pop(VIEW, None)
    name = st.segmented_control(
        "Batch of", names, default=_default(VIEW, names[-1]), required=True, **url.bound(VIEW, names)
    )
    return name or names[-1]


def draw_train_button(settings: PlanSettings, strategy: str, source: BatchSource, mask: BatchMask | None) -> None:
    """Draw the button that opens the New run page with the settings of the plan and the encoder of its vectors.

    The plans of a run are sent with all its settings. A mask of the run uses the similarities of the trained model.
    """
    encoder = source.encoder if source.run is None else source.run.config().encoder
    sent: dict[str, dict[str, Any]] = {
        "encoder": {"name": encoder.name},
        "batching": settings.strategies[strategy].model_dump(),
        "training": {"batch_size": settings.batch_size, "seed": settings.seed},
        "loss": {"labeled_negatives": settings.labeled_negatives},
    }
    order = f"Batch order: {strategy}, as selected in One batch, with this encoder."
    about = f"{order} The other settings are those of the preset."
    if strategy == RUN_PLANS and source.run is not None:
        config = source.run.config().model_dump()
        sent, about = {section: config[section] for section in SECTIONS}, "All settings are those of the run."
    if mask is not None:
        kind = "relative" if mask.relative else "absolute"
        sent["loss"] |= {"mask": "self", "mask_margin": mask.margin, "mask_margin_kind": kind}
    run = source.run
    dataset = None if run is None else lambda: saved_dataset_key(run.config().data, run)  # that of the planned rows
    with page_layout.action_bar():
        page_layout.next_step_button(
            "Train with this plan", "train", key="batches.train", settings=sent, dataset=dataset
        )
        st.caption(about, width="content")
