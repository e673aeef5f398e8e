"""Turn stored bytes into rows: the packed group, the sealed segment, the Arrow columns.

The queue manager stores each received message byte for byte. This package decodes everything that a
reader sees from those bytes. The reader process of the queue manager and the Spark executors run
the same code.

These words have one meaning in the package:

- A *post* is the received message, byte for byte: the HTTP head and the body of the POST.
- A *record* is a post with the facts of its arrival (:class:`.group.Record`).
- A *packed group* holds the records of one commit and one queue (:mod:`.group`).
- A *segment* holds some thousand rows that were sealed, as two files (:mod:`.segment`).
- A *hole* is a range of sequences whose rows were purged or given up.
"""
