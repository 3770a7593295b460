"""The file that `bsc app` starts, with `python -P`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))  # `pages` is not a package of the installed project

from pages.ui.server.startup import main

if __name__ == "__main__":
    raise SystemExit(main())
