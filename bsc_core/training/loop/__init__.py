"""Training loop: optimizer, one step, gradient caching, processes."""
