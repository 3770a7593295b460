"""Figures of batches, batch plans and datasets."""
