"""Probing classifiers and semantic textual similarity."""
