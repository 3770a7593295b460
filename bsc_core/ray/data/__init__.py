"""Batch plans over Parquet files with Ray Data."""
