"""Figures of metrics, embeddings and retrieval results."""
