"""Computations of the loss lab and the lessons: small batches, settings, toy training and the lessons' numbers."""
