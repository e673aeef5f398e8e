r"""SRMP without I/O ([MC-MQSRM]): takes bytes and ``now``; returns messages and effects.

Words of this package:

- The *peer* is the queue manager at the other end of a connection.
- A *row* is an accepted message in a queue of this queue manager; its *sequence* is the number of
  the row in its queue, from 1. A row of a table is called a database row.
- A *serial* is the number of a message in its outgoing queue, from 1. A *position* is its number in
  its stream, from 1. The *ordinal* of a stream is the N in its identifier ``uid:GUID\N``.
- A *lineage* is the GUID of the queue manager that created a message, and a *uniquifier* its number
  there. Both together are the identifier of the message.
- A receipt is *owed* until it is delivered. A row is *decided* when it leaves its queue, because it
  was received, purged, or expired.
- An *effect* is a value that asks the caller to act. The engines never act themselves.
- ``now`` is in seconds on the monotonic clock. ``at`` is in microseconds since 1970, UTC.
"""
