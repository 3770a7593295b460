"""Optional extra: everything that imports or talks to Ray."""
