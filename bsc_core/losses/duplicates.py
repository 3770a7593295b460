"""What repeated texts of a batch are to the batch-softmax loss: a rule for each direction.

"keep" needs no rule of its own. "merge" lets every other text be chosen once. "multi_positive" makes the copies of a
pair's own texts positives too, averaged outside the logarithm (equations 3 and 4 of the BSC paper).
"""

# B choosers; M choices, of which the first B belong to the choosers; r rows and c columns of a tile

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bsc_core.losses.rules import TileRule


@dataclass(frozen=True)
class Side:
    """One direction of a batch.

    chooser, choice: (B,) and (M,) text ids; counted: bool (B,), the positive pairs; candidates: bool (M,) or None:
    what may be chosen at all.
    """

    chooser: Tensor
    choice: Tensor
    counted: Tensor
    candidates: Tensor | None

    def merged(self) -> TileRule:
        """The rule "merge": chooser i sees its own choice, and of every other text the first that may be chosen."""
        first = _first_of_each(self.choice, self.candidates)  # (M,)

        def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
            own = _crossing(rows, columns, self.choice.device) & self.counted[rows, None]
            other = self.choice[: len(self.chooser)][rows, None] != self.choice[columns]
            return own, first[columns] & other

        return tile

    def multi_positive(self) -> TileRule:
        """The rule "multi_positive": copies of the own choice, and the positive choices of the chooser's own copies."""
        right = _padded(self.counted, len(self.choice), False)
        asked = _padded(self.chooser, len(self.choice), -1)

        def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
            copies = self.choice[: len(self.chooser)][rows, None] == self.choice[columns]
            same = (self.chooser[rows, None] == asked[columns]) & right[columns]
            allowed = None if self.candidates is None else self.candidates[columns].expand(copies.shape)
            return (copies | same) & self.counted[rows, None], allowed

        return tile


def _first_of_each(ids: Tensor, candidates: Tensor | None) -> Tensor:
    """bool (M,), the first row of each id that may be chosen."""
    places = torch.arange(len(ids), device=ids.device)
    if candidates is not None:
        places = torch.where(candidates, places, len(ids))
    where: Tensor = torch.unique(ids, return_inverse=True)[1]
    first = torch.full_like(places, len(ids)).scatter_reduce(0, where, places, "amin")  # by distinct id
    return places == first[where] if candidates is None else (places == first[where]) & candidates


def _crossing(rows: slice, columns: slice, device: torch.device) -> Tensor:
    """bool (r, c), the cells of the diagonal in a tile."""
    down = torch.arange(rows.start, rows.stop, device=device)
    return down[:, None] == torch.arange(columns.start, columns.stop, device=device)


def _padded(values: Tensor, length: int, filling: int | bool) -> Tensor:
    return torch.cat([values, values.new_full((length - len(values),), filling)]) if length > len(values) else values
