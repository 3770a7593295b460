"""Runs as jobs of a Ray cluster."""
