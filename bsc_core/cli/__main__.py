"""`python -m bsc_core.cli` is `bsc`."""

from bsc_core.cli import entry

entry()
