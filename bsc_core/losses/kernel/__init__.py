"""Masked softmax over in-batch similarities, dense and tiled."""
