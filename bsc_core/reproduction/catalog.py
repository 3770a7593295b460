"""All claims by name: those of the papers, and one for each recommended setting.

Loss, batches and learning rate of a recommended setting were chosen on one half of the training queries by the gain on
the other half; its claim then trains on rows of the full training split and evaluates on dev, which was not used for
the choice.
"""

import tomllib
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from bsc_core.errors import ConfigError
from bsc_core.formatting import plural
from bsc_core.reproduction.claims import CLAIM_FILES, PAPER_CLAIMS, UNTRAINED, Arm, Claim, Sections, Statement
from bsc_core.reproduction.subsets import Subset

SPLITS: tuple[Literal["dev", "test"], ...] = ("dev", "test")
ARM = "best"
SELECTION = (
    "Loss, batching and learning rate were selected on the training queries only: candidates were trained on one half "
    "of these queries and evaluated on the other half, with a separate seed. The evaluation rows were not used for "
    "this selection or for choosing an epoch."
)


class RecommendedSetting(BaseModel):
    """Setting with the largest gain on one dataset.

    title, when: of the preset. metric: of the statements; other_metrics: displayed as well. note: remarks on the data.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    when: str
    subset: Subset
    metric: str
    other_metrics: tuple[str, ...]
    values: Sections
    note: str = ""

    def claim(self, name: str) -> Claim:
        """Return the claim that this setting improves on the untrained encoder, on all held-out splits."""
        folder, training = self.subset.folder, self.values["training"]
        return Claim(
            name=name,
            title=f"Recommended setting: {self.title}",
            paper="best",
            table="",
            claim=f"Training the bundled encoder with this setting improves {self.metric} on {folder}.",
            subsets={folder: self.subset},
            arms={ARM: Arm(title="Trained with the setting", values=self.values)},
            statements=tuple(
                Statement(
                    better=ARM,
                    worse=UNTRAINED,
                    metric=self.metric,
                    split=split,
                    text=f"{self.metric} on {split}: trained > untrained",
                )
                for split in SPLITS
                if split in self.subset.parts
            ),
            metrics=(self.metric, *self.other_metrics),
            budget=(
                f"{plural(training['epochs'], 'epoch')} for each seed with the loss {self.values['loss']['name']} on "
                f"{self.values['batching']['strategy']} batches of {training['batch_size']}, a learning rate of "
                f"{training['learning_rate']:g} and texts of at most {self.values['encoder']['max_seq_length']} tokens"
            ),
            note=f"{SELECTION} {self.note}".strip(),
        )


RECOMMENDED_SETTINGS: dict[str, RecommendedSetting] = TypeAdapter(dict[str, RecommendedSetting]).validate_python(
    tomllib.loads((CLAIM_FILES / "recommended.toml").read_text(encoding="utf-8"))
)
CLAIMS = PAPER_CLAIMS | {name: setting.claim(name) for name, setting in RECOMMENDED_SETTINGS.items()}
"""All claims by name, in the order in which they are listed."""


def select_claims(names: Sequence[str]) -> list[Claim]:
    """Return the claims of these names; `all` selects every claim.

    Raises:
        ConfigError: A name is unknown.
    """
    if "all" in names:
        return list(CLAIMS.values())
    unknown = [name for name in names if name not in CLAIMS]
    if unknown:
        raise ConfigError(f"claim {unknown[0]!r} is unknown; choose among {', '.join(CLAIMS)}, or all")
    return [CLAIMS[name] for name in names]
