"""Figures of reproduced claims."""
