"""Figures of training curves and sweeps."""
