"""Define the answers of a remote queue, and the errors of a call to it, for both processes.

The main process decides by these answers (:mod:`.moving`, :mod:`.copying`). Its gateway makes them
from a server's answers (:mod:`.remote`, :mod:`.connection`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Protocol

from srmp_spark.errors import SrmpSparkError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.next_steps import refusal_text
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled

NOTHING = frozenset((Status.MQ_ERROR_IO_TIMEOUT, Status.MQ_ERROR_MESSAGE_NOT_FOUND))
"""Statuses of a read that found no message.

A read without a cursor and one with a cursor return different statuses.
"""
REMOVED = frozenset((Status.MQ_ERROR_MESSAGE_NOT_FOUND, Status.MQ_ERROR_MESSAGE_ALREADY_RECEIVED))
"""Statuses of a peek by lookup identifier for a message that is gone."""
HELD = frozenset(
    (Status.MQ_ERROR_TRANSACTION_USAGE, Status.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION)
)
"""Statuses of a peek by lookup identifier for a message that another reader has locked."""


class RefusedError(SrmpSparkError):
    """Raised when the remote queue manager refused a call.

    ``status`` is its HRESULT or RPC fault.
    """

    def __init__(self, status: int, what: str, *, perhaps_done: bool = False) -> None:
        """Describe a refused call. ``what`` names the call or the server.

        ``perhaps_done`` is set for a fault that does not state that the call was not carried out.
        """
        super().__init__(refusal_text(what, status))
        self.status = status
        self.what = what
        self.perhaps_done = perhaps_done


class LostError(SrmpSparkError):
    """Raised when there is no connection, or when the connection ended.

    A call in flight may have been carried out.
    """


class NotSentError(LostError):
    """Raised when the connection had ended before a call was sent.

    So the call was not carried out.
    """


class Unreadable(NamedTuple):
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


class Ended(Enum):
    """What the server did with a call of R_EndReceive."""

    CARRIED_OUT = auto()
    NOT = auto()
    """The server refused the call before it removed the message."""
    UNCLEAR = auto()
    """The call failed, perhaps while the message was being removed. Only a peek can show it."""


class ReadableQueue(Protocol):
    """An open remote queue: :class:`.remotes.CrossedQueue` or :class:`.remote.RemoteQueue`.

    All methods raise :class:`RefusedError` if the server refuses the call, :class:`LostError` if
    the connection ends, and :class:`NotSentError`, which is a LostError, if the call was not sent.
    """

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight at the same time."""
        ...

    async def read(
        self, action: Action, *, wait_s: float = 0.0, lookup_id: int = 0, cursor: int = 0
    ) -> Pulled | Unreadable | Status:
        """Read (R_StartReceive) and return one message, an :class:`Unreadable`, or a status.

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
