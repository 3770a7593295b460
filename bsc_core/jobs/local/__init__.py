"""Runs as detached processes of this machine."""
