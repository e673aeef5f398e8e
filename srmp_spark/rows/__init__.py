"""Turn stored bytes into rows: the packed group, the sealed segment, the Arrow columns.

The queue manager stores each received message byte for byte. This package decodes everything that a
reader sees from those bytes. The reader process of the queue manager and the Spark executors run
the same code.
"""
