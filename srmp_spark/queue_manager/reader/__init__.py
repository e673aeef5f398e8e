"""Run the reader process: it decodes, seals and publishes outside the main process's loop.

Words of this package. Sealing copies rows from the database to segment files; a *segment* is such
files, a *group* is a blob of rows in the database. Publishing writes rows to the Delta state. A
*command* is a request of the main process, and its *answer* is packets
(:mod:`srmp_spark.queue_manager.child.packets`). :mod:`srmp_spark.queue_manager.queues` explains
row, sequence, epoch and hole. A range (after, to] excludes the sequence ``after`` and includes
``to``.

``link`` is the main process's side, and ``crossing`` defines the commands, answers and events.
``process`` is the child; ``answer`` and ``events`` hold the answers and events that only this child
sends. ``dense_rows`` frames stored pieces for Spark, and ``frames`` messages for remote readers.
The code that reader and sender share is in ``queue_manager/child``. The main process loads
``link``, ``crossing`` and ``frames`` only, because the other modules import Arrow.
"""
