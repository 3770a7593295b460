"""Batch strategies: one module for each order of rows."""
