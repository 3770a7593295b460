"""The player of a toy training: Python beside it, JavaScript within it."""
