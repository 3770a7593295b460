"""Training rows generated from other data."""
