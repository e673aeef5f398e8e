"""Define the answers of a remote queue for both processes.

The main process decides by these answers (:mod:`.moving`, :mod:`.copying`). Its gateway makes them
from a server's answers (:mod:`.remote`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.queue_calls import Ended
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled


class UnreadableMessage(NamedTuple):
    """A message in the remote queue whose parts do not fit together.

    It never becomes a row of a queue and is never removed.
    """

    request: int
    """The dwRequestId of this queue manager's lock on the message, if the read was a receive.

    :meth:`ReadableQueue.end` with ``keep`` unlocks it.
    """
    reason: str


def unreadable_text(count: int, reason: str) -> str:
    """Return the text for operators about ``count`` unreadable messages that were skipped.

    ``reason`` states why one of these messages cannot be read.
    """
    if count == 1:
        return f"a message cannot be read and stays where it is: {reason}"
    return f"{count} messages cannot be read and stay where they are; one of them: {reason}"


class ReadableQueue(Protocol):
    """An open remote queue: :class:`.remotes.CrossedQueue` or :class:`.remote.GatewayQueue`.

    All methods raise the errors of :mod:`srmp_spark.mqrr.client.failures`.
    """

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight at the same time."""
        ...

    async def read(
        self, action: Action, *, wait_s: float = 0.0, lookup_id: int = 0, cursor: int = 0
    ) -> Pulled | UnreadableMessage | Status:
        """Read (R_StartReceive) and return one message, an :class:`UnreadableMessage`, or a status.

        A status means that there is no message. If ``action`` receives, the message is locked for
        this connection until :meth:`end`. ``wait_s`` is the longest wait for a message, in seconds.
        ``lookup_id`` or ``cursor`` choose the message, if ``action`` needs one of them.
        """
        ...

    async def end(self, request: int, *, keep: bool = False) -> Ended:
        """Remove the message that the read ``request`` locked, or with ``keep`` unlock it.

        Return what the server did.
        """
        ...

    async def cursor(self) -> int:
        """Create a cursor in the remote queue, and return its number for :meth:`read`."""
        ...

    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor of the remote queue."""
        ...
