"""Checks of the files of a model folder, before the libraries that build the model are imported."""
