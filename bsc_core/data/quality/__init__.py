"""Audit of a dataset and filters for the problems it finds."""
