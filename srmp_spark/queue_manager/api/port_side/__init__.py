"""The API's HTTP: connections, guard, routes, and long bodies in slices.

The handlers of calls are in the modules of :mod:`srmp_spark.queue_manager.api`.
"""
