"""The array types that strategies and plans exchange."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]  # row numbers, text ids or group ids
Vectors = NDArray[np.float32]  # one row a text
Matrix = NDArray[np.float32]  # queries x documents
Mask = NDArray[np.bool_]
Groups = tuple[Ids, Ids]  # rows in plan order, and the group id of each
Progress = Callable[[int, int], object]  # (done, total)
