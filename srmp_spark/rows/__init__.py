"""From stored bytes to rows: the packed group, the sealed segment, the Arrow columns.

The queue manager stores what arrived, byte for byte; everything a reader sees is decoded from it here, by the same code
in the queue manager's reader process and on a Spark executor.
"""
