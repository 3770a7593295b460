"""The controls of the Batches page, and the plan's settings as they go on to the New run page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from bsc_core.config import BatchingConfig, BSCLossConfig, TrainingConfig
from bsc_core.data import PairDataset
from pages.ui import frame, store
from pages.ui.words import WORDS, help_text

STRATEGIES = ("random", "examples", "sequential")
URL = {"bind": "query-params"}


@dataclass(frozen=True)
class Chosen:
    """What the controls say: a config for each strategy, and batch size, seed and epoch."""

    strategies: dict[str, BatchingConfig]
    batch_size: int
    seed: int
    epoch: int
    labelled_negatives: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.batch_size, self.seed, self.epoch - 1  # plans count epochs from 0

    def rows(self, train: PairDataset) -> PairDataset:
        """The rows that are trained on: all, or the positive ones where labelled negatives are switched off."""
        return train if self.labelled_negatives else train.take(np.flatnonzero(train.positive))


def draw() -> Chosen:
    """Draw the controls; their values stand in the URL."""
    default = BatchingConfig()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        names = st.pills(
            "Strategies",
            STRATEGIES,
            selection_mode="multi",
            default=["random", "examples"],
            key="batches.strategies",
            help=help_text("strategy"),
            **URL,
        )
        group_size = _number("Group size", "group_size", (1, 64), default.group_size)
        batch_size = _number("Batch size", "batch_size", (2, 512), TrainingConfig().batch_size)
        epoch = _number("Epoch", "epoch", (1, 100), 1)
        seed = _number("Seed", "seed", (0, 2**31 - 1), 0)
        with st.popover("More", icon=":material/tune:"):
            more = _more(default)
            field = BSCLossConfig.model_fields["labelled_negatives"]
            labelled = st.toggle(
                str(field.title), field.default, key="batches.labelled", help=help_text("labelled_negatives"), **URL
            )
    names = names or ["examples"]
    kept = [name for name in STRATEGIES if name in names]
    configs = {name: BatchingConfig(strategy=name, group_size=group_size, **more) for name in kept}
    return Chosen(configs, batch_size, seed, epoch, labelled)


def _number(label: str, name: str, limits: tuple[int, int], value: int) -> int:
    help_ = help_text(name) if name in WORDS else None
    return int(st.number_input(label, *limits, value, key=f"batches.{name}", help=help_, width=124, **URL))


def _more(default: BatchingConfig) -> dict[str, Any]:
    fields = BatchingConfig.model_fields
    by = st.segmented_control(
        "Grouped by",
        ["query", "document"],
        default=default.by,
        required=True,
        key="batches.by",
        help=fields["by"].description,
        **URL,
    )
    neighbours = st.number_input(
        "Neighbours looked at",
        1,
        5000,
        default.neighbours,
        key="batches.neighbours",
        help=fields["neighbours"].description,
        **URL,
    )
    switches = {
        name: st.toggle(
            str(fields[name].title), getattr(default, name), key=f"batches.{name}", help=fields[name].description, **URL
        )
        for name in ("distinct_texts", "reverse", "keep_groups")
    }
    return {"by": by or default.by, "neighbours": int(neighbours), **switches}


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
