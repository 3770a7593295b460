"""Array type aliases, and the largest size of vectors."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]  # row numbers, text ids or group ids
Vectors = NDArray[np.float32]  # one row for each text
Matrix = NDArray[np.float32]  # queries x documents
Mask = NDArray[np.bool_]
Numbers = NDArray[np.float64]  # metrics, weights, scores in double precision
Indices = NDArray[np.int64]  # positions in an array
MAX_DIMENSIONS = 8_192  # of the vectors of an encoder
Progress = Callable[[int, int], object]  # (done, total)
