"""Search over a corpus and analysis of its results."""
