"""Training: data, samplers, the loop, callbacks, checkpoints and the run log."""
