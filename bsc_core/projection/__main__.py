"""`python -m bsc_core.projection FOLDER`: make the map that the folder asks for."""

import sys

from bsc_core.projection import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
