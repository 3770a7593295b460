"""SetFit's training pairs: for every sentence one of its class and one of another, a few times over.

Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts", section 3.1, as the released code draws them.
"""

from __future__ import annotations

import numpy as np


def same_and_other(rows: list[dict[str, str]], rounds: int, *, seed: int) -> list[dict[str, str]]:
    """Two pairs of each sentence in every round: labelled 1 with a sentence of its class, 0 with one of another.

    rows: sentences with `text`, `label` and `query_id`. The sentence itself is never drawn; one whose class has no
    other, or that has no other class beside it, makes no such pair. Returns rows of query, document, label and ids.
    """
    generator = np.random.default_rng(seed)
    classes = np.asarray([row["label"] for row in rows])
    members = {name: np.flatnonzero(classes == name) for name in dict.fromkeys(classes.tolist())}
    others = {name: np.flatnonzero(classes != name) for name in members}
    made = []
    for _ in range(rounds):
        for place, row in enumerate(rows):
            same = members[row["label"]]
            choices = (("1", same[same != place]), ("0", others[row["label"]]))
            for label, candidates in choices:
                if len(candidates):
                    other = int(generator.choice(candidates))
                    made.append(_pair(row, rows[other], label, key=f"{place}-{other}"))
    return made


def _pair(row: dict[str, str], other: dict[str, str], label: str, *, key: str) -> dict[str, str]:
    return {
        "query": row["text"],
        "document": other["text"],
        "label": label,
        "query_id": row["query_id"],
        "document_id": key,
    }
