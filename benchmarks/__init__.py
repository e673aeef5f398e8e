"""Benchmarks against the programs that a user would choose instead of srmp-spark.

``python -m benchmarks --help`` lists them.
"""
