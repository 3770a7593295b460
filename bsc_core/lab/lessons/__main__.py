"""Train the maps of the lessons and write their results to sample_data/lessons.npz."""

import numpy as np

from bsc_core.lab.lessons.training import RESULTS, train
from bsc_core.paths import sample_data_folder

if __name__ == "__main__":
    np.savez_compressed(sample_data_folder() / RESULTS, **train())  # type: ignore[arg-type]
