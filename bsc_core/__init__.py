"""BSC Lab's core: contrastive fine-tuning of sentence encoders, without any user interface."""

__version__ = "0.1.0"
