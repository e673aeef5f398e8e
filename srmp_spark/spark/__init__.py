"""Spark's side: the formats and their schemas."""
