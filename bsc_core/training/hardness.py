"""How hard a batch is: how near the nearest wrong document of a query comes to the right one."""

# B rows in a batch, K extra negative documents, A rows that are looked at, D dimensions

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

MOST_ROWS = 256


@torch.no_grad()
def batch_hardness(
    queries: Tensor, documents: Tensor, query_ids: Tensor, document_ids: Tensor, positive: Tensor | None = None
) -> float | None:
    """Mean over positive rows of the largest cosine with a wrong document minus the cosine with the own one.

    queries: (B, D); documents: (B + K, D); ids: of their texts, (B,) and (B + K,); positive: (B,) bool, None: all rows.
    Below 0 the own document is nearest on average; towards 0 and above the batch is hard. A document is not wrong when
    its text is the own one's, or stands in a positive row of the same query. At most 256 rows, evenly chosen, are
    looked at. None where no row has a wrong document.
    """
    size = len(queries)
    right = torch.ones(size, dtype=torch.bool, device=queries.device) if positive is None else positive
    rows = right.nonzero().squeeze(1)
    rows = rows[:: max(1, -(-len(rows) // MOST_ROWS))]  # (A,)
    scores = normalize(queries[rows].float(), dim=1) @ normalize(documents.float(), dim=1).T  # (A, B + K)
    own = scores.gather(1, rows[:, None]).squeeze(1)
    wrong = document_ids != document_ids[rows, None]
    wrong[:, :size] &= (query_ids != query_ids[rows, None]) | ~right
    hardest = scores.masked_fill_(~wrong, -torch.inf).amax(dim=1) if len(rows) else own
    gaps = (hardest - own)[wrong.any(dim=1)]
    return float(gaps.mean()) if len(gaps) else None
