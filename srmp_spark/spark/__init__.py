"""The part that runs inside Spark: the data source formats and their schemas."""
