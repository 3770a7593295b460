"""`python -m bsc_core.projection FOLDER`: build the map that FOLDER/request.json describes."""

import sys

from bsc_core.projection import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
