"""The visible training loop: seeds, optimiser, one step, the loop, checkpoints."""
