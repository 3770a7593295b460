"""Column roles, their mapping and class labels."""
