"""Configs that are known to work: the presets of the New run page."""
