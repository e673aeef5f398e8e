"""Run the reader process: it decodes, seals and publishes outside the main process's loop.

Sealing copies rows from the database to segment files. Publishing writes rows to the Delta state.
``link`` is the main process's side, and ``crossing`` defines the commands, answers and events.
``process`` is the child; ``answer`` and ``events`` hold the answers and events that only this child
sends. ``dense_rows`` frames stored pieces for Spark, and ``frames`` messages for remote readers.
The code that reader and sender share is in ``queue_manager/child``. The main process loads
``link``, ``crossing`` and ``frames`` only, because the other modules import Arrow.
"""
