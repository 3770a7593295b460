"""Data of an experiment with generated examples, negatives and NLI pairs, and batch plans in the background."""
