"""HTTP API of the queue manager (INTERFACE.md section 3): raw ASGI on uvicorn.

The API runs in the loop of the SRMP port. ``http`` reads requests and writes answers, ``router``
finds the handler, ``guard`` keeps out unauthenticated clients, and one module per resource holds
the handlers. There is no framework, because there are only some twenty routes.

Words of this package: "a 400" is an :class:`ApiError` with this HTTP status. Paths of calls begin
with ``/v1/``, which docstrings leave out. A *token* is an API token
(:mod:`srmp_spark.queue_manager.trust.tokens`), which covers some queues or all. A *row* is a
message in the log of a queue, and its *sequence* is its number in the log. Work in *slices*
(:mod:`srmp_spark.queue_manager.slices`) lets other tasks of the loop run between short steps.
"""
