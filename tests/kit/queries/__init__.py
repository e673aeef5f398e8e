"""Checks that no row is lost between a queue and a query, with random schedules and a model.

The schedules use Spark in the many ways in which people use it.
"""
