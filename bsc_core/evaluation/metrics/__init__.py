"""Metrics of rankings, scored pairs and embedding spaces."""
