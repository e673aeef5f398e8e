"""HTTP API of the queue manager (INTERFACE.md section 3): raw ASGI on uvicorn.

The API runs in the loop of the SRMP port. ``http`` reads requests and writes answers, ``router``
finds the handler, ``guard`` keeps out unauthenticated clients, and one module per resource holds
the handlers. There is no framework, because there are only some twenty routes.

Words of this package. "Raises a 400" means: raises an :class:`ApiError` with this HTTP status,
which becomes the answer. Paths of calls begin with ``/v1/``, which docstrings leave out. Every
handler may also raise a 404 for an unknown queue, a 400 for an invalid field or body, and a 503 if
a process that it asks does not answer. A *token* is an API token
(:mod:`srmp_spark.queue_manager.trust.tokens`), which covers some queues or all. A *row* is a
message in the log of a queue, and its *sequence* is its number in the log.
:mod:`srmp_spark.queue_manager.queues` explains consumer, mark, lease, hole and epoch. The *engine*
(:mod:`srmp_spark.srmp.receiving`) decides which messages are accepted. The *gate* is closed while
no message is accepted (:class:`.acceptor.Gate`). The *reader process*
(:mod:`srmp_spark.queue_manager.reader`) reads rows, and the *sender process* owns the outbox of
messages to be sent. Work in *slices* (:mod:`srmp_spark.queue_manager.slices`) lets other tasks of
the loop run between short steps.
"""
