"""Benchmarks beside what a user would pick instead; start with ``python -m benchmarks --help``."""
