"""The controls of the Batches page, and the plan's settings as they go on to the New run page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from bsc_core.batching import STRATEGIES
from bsc_core.config import BatchingConfig, BSCLossConfig, TrainingConfig
from bsc_core.data import PairDataset
from pages.ui import frame, plans, store
from pages.ui.batch_source import Source
from pages.ui.plans import Wanted
from pages.ui.words import WORDS, help_text

URL = {"bind": "query-params"}
ORDER = ("random", "sequential", "examples", "words", "clusters", "neighbours", "premises")
LARGEST_BATCH = 2048
GROUPED = {"examples", "words", "clusters", "neighbours"}
SEARCHED = {"examples", "neighbours"}
USED_BY: dict[str, set[str]] = {
    "by": GROUPED,
    "neighbours": {"examples"},
    "distinct_texts": {"examples"},
    "reverse": {"examples"},
    "shingle_size": {"words", "neighbours"},
    "stop_count": {"words"},
    "shingle_neighbours": {"neighbours"},
    "clusters": {"clusters"},
    "metric": SEARCHED | {"clusters"},
    "search": SEARCHED,
}
"""Which strategies read a setting; the others are of every strategy."""
FEWEST_IN_CLUSTER = 4


@dataclass(frozen=True)
class Chosen:
    """What the controls say: a config for each strategy, and batch size, seed and epoch."""

    strategies: dict[str, BatchingConfig]
    batch_size: int
    seed: int
    epoch: int
    labelled_negatives: bool

    def rows(self, source: Source) -> PairDataset:
        """The rows that are trained on: all, or the positive ones where labelled negatives are switched off."""
        train = source.train
        if self.labelled_negatives or source.run is not None or train.positive.all():
            return train
        return train.take(np.flatnonzero(train.positive))

    def wanted(self, source: Source) -> dict[str, Wanted]:
        """The plans to look at. A run's own is the one saved for the epoch, in the run's batches."""
        found = {}
        for name, config in self.strategies.items():
            found[name] = Wanted(config, self.batch_size, self.seed, self.epoch - 1)  # plans count epochs from 0
            if name == plans.OWN and source.run is not None:
                training, saved = source.run.config().training, source.saved_plans()
                epoch = min(self.epoch, len(saved))
                found[name] = Wanted(config, training.batch_size, training.seed, epoch - 1, saved[epoch - 1])
        return found


def draw(source: Source) -> Chosen:
    """Draw the controls; their values stand in the URL."""
    default, names = BatchingConfig(), _strategies(source)
    own = [plans.OWN] if source.saved_plans() else []
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        group_size = _number("Group size", "group_size", (1, 64), default.group_size)
        batch_size = _number("Batch size", "batch_size", (2, LARGEST_BATCH), TrainingConfig().batch_size)
        epoch = _number("Epoch", "epoch", (1, 100), 1)
        seed = _number("Seed", "seed", (0, 2**31 - 1), 0)
        with st.popover("More", icon=":material/tune:"):
            more = _more(default, set(names), source.train)
            labelled = True if source.run is not None else _labelled()
    configs = {name: _config(name, group_size, more) for name in names if name not in own}
    if own and plans.OWN in names and source.run is not None:
        configs[plans.OWN] = source.run.config().batching
    return Chosen(configs, batch_size, seed, epoch, labelled)


def _strategies(source: Source) -> list[str]:
    known = [name for name in ORDER if name in STRATEGIES]
    own = [plans.OWN] if source.saved_plans() else []
    first = [*(own or ["examples"]), "random"]
    chosen = st.pills(
        "Strategies",
        [*own, *known],
        selection_mode="multi",
        default=first,
        key="batches.strategies",
        help=help_text("strategy"),
        **URL,
    )
    wanted = [name for name in [*known, *own] if name in (chosen or first[:1])]
    return wanted or ["examples"]


def _config(name: str, group_size: int, more: dict[str, Any]) -> BatchingConfig:
    read = {field: value for field, value in more.items() if field not in USED_BY or name in USED_BY[field]}
    return BatchingConfig.model_validate({"strategy": name, "group_size": group_size, **read})


def _number(label: str, name: str, limits: tuple[int, int], value: int, *, width: int | str = 124) -> int:
    field = BatchingConfig.model_fields.get(name)
    help_ = help_text(name) if name in WORDS else field.description if field else None
    return int(st.number_input(label, *limits, value, key=f"batches.{name}", help=help_, width=width, **URL))


def _more(default: BatchingConfig, names: set[str], pairs: PairDataset) -> dict[str, Any]:
    """The settings that any of the chosen strategies reads, those of every strategy last."""
    few = max(1, min(default.clusters, len(pairs.distinct_queries) // FEWEST_IN_CLUSTER))
    fields, found = BatchingConfig.model_fields, dict[str, Any]()
    numbers = {
        "neighbours": 5000,
        "shingle_size": 16,
        "stop_count": 10_000,
        "shingle_neighbours": 100,
        "clusters": 10**6,
    }
    for name in [*USED_BY, "keep_groups", "forbid_collisions"]:
        if not names & USED_BY.get(name, names):
            continue
        title, value, key = str(fields[name].title), getattr(default, name), f"batches.{name}"
        about = fields[name].description
        if name in numbers:
            start = few if name == "clusters" else value
            least = 0 if name == "stop_count" else 1
            found[name] = _number(title, name, (least, numbers[name]), start, width="stretch")
        elif isinstance(value, bool):
            found[name] = st.toggle(title, value, key=key, help=about, **URL)
        else:
            options = {"by": ["query", "document"], "metric": ["cosine", "l2"]}
            search = ["auto", "exact", "approximate"]
            found[name] = st.segmented_control(
                title, options.get(name, search), default=value, required=True, key=key, help=about, **URL
            )
    return found


def _labelled() -> bool:
    field = BSCLossConfig.model_fields["labelled_negatives"]
    about = help_text("labelled_negatives")
    return st.toggle(str(field.title), field.default, key="batches.labelled", help=about, **URL)


def strategy_in_view(names: list[str]) -> str:
    """Which of the strategies the batch below is taken from; the last one at first."""
    if st.session_state.get("batches.view") not in names:
        st.session_state["batches.view"] = names[-1]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader("One batch of", anchor=False, width="content")
        name = st.segmented_control(
            "Strategy in view", names, key="batches.view", required=True, label_visibility="collapsed"
        )
    return name or names[-1]


def train_with(chosen: Chosen, strategy: str) -> None:
    """The button that carries the plan's settings to the New run page."""
    config = chosen.strategies[strategy]
    if st.button(
        "Train with this plan",
        key="batches.train",
        type="primary",
        icon=":material/arrow_forward:",
        icon_position="right",
    ):
        store.keep_plan(
            {
                "batching": config.model_dump(),
                "training": {"batch_size": chosen.batch_size, "seed": chosen.seed},
                "loss": {"labelled_negatives": chosen.labelled_negatives},
            }
        )
        frame.go("train")
