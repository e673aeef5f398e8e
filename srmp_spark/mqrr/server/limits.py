"""Every limit of the server of remote read, with its reason.

A call above a limit gets MQ_ERROR_INSUFFICIENT_RESOURCES, unless the limit says otherwise.
"""

from __future__ import annotations

CURSORS_MAX = 1_000
"""Most cursors of one handle. A reader needs one cursor.

One more is refused with MQ_ERROR_INSUFFICIENT_RESOURCES.
"""
REQUESTS_MAX = 1_000
"""Most requests of one handle that are not ended: waiting calls and locked messages.

One more is refused with MQ_ERROR_INSUFFICIENT_RESOURCES.
"""
WAITING_MAX = 1_000
"""Most reads that wait for a message of one queue. Each is examined when a message arrives.

One more is refused with MQ_ERROR_INSUFFICIENT_RESOURCES.
"""
OPEN_MAX = 10_000
"""Most open handles of one queue. A further attempt to open the queue is refused."""
LOCKS_OF_A_TURN = 1_000
"""Most locked messages that a purge examines before other calls are processed.

This work takes a millisecond or two. There may be OPEN_MAX times REQUESTS_MAX locked messages.
"""

CLEANUP_S = 300.0
"""Pending Request Cleanup Timer in seconds ([MS-MQRR] 3.1.2.2, appendix B <11>: 300,000 ms).

A message that a reader has received but not acknowledged for that long is unlocked.
"""
CATCH_UP_S = 10.0
"""Longest wait in seconds of a reader that does not want to wait.

The reader waits for messages that are in the queue but whose priorities are not known yet. The wait
usually takes milliseconds.
"""
INFINITE_TIMEOUT = 0xFFFFFFFF
"""ulTimeout of a reader that waits without limit."""
