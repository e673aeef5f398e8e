"""Every limit of the server of remote read, with its reason."""

from __future__ import annotations

CURSORS_MAX = 1_000
"""Cursors of one handle: a reader needs one."""
REQUESTS_MAX = 1_000
"""Requests of one handle that are not ended: calls that wait, and messages that are locked."""
WAITING_MAX = 1_000
"""Reads that wait for a message of one queue; each is looked at when one comes."""
OPEN_MAX = 10_000
"""Handles of one queue."""
TRANSACTIONS_MAX = 1_000
"""Transactions that have no outcome yet; each ends by itself after TRANSACTION_TIMEOUT_S."""
TIMED_OUT_KEPT = 10_000
"""Transactions that had no outcome in time, whose coordinator must be told so when it commits after all: the last ones."""
OPERATIONS_MAX = 10_000
"""Messages received and moved in one transaction: they are stored in one commit."""
LOCKS_OF_A_TURN = 1_000
"""Locked messages that a purge looks at before other calls have their turn: a millisecond or two. There may be OPEN_MAX times
REQUESTS_MAX of them."""

CLEANUP_S = 300.0
"""Pending Request Cleanup Timer: 300,000 ms ([MS-MQRR] 3.1.2.2, appendix B <11>)."""
TRANSACTION_TIMEOUT_S = 300.0
"""From the enlistment to the outcome: one whose coordinator says nothing for so long is aborted."""
TIMERS_KEPT = 4_096
"""Timers, those of locks that ended among them, before the latter are taken out; then twice as many as mean something. A reader
that takes 8,000 messages a second would else leave two million behind within CLEANUP_S."""
CATCH_UP_S = 10.0
"""Longest wait of a reader that does not want to wait, for messages that are in the queue and whose priorities are not known
yet: it takes milliseconds."""
INFINITE_TIMEOUT = 0xFFFFFFFF
"""ulTimeout of a reader that waits for as long as it takes."""
