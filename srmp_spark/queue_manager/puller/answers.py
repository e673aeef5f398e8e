"""The vocabulary of both processes: what a remote queue answers, and how a call to it fails.

The main process decides what to do by these (:mod:`.moving`, :mod:`.copying`); its gateway makes them of what a server sends
(:mod:`.remote`, :mod:`.connection`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Protocol

from srmp_spark.errors import SrmpSparkError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.next_steps import refusal_text
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.pulled import Pulled

NOTHING = frozenset((Status.MQ_ERROR_IO_TIMEOUT, Status.MQ_ERROR_MESSAGE_NOT_FOUND))
"""Both are "empty"; which one depends on the cursor."""
REMOVED = frozenset((Status.MQ_ERROR_MESSAGE_NOT_FOUND, Status.MQ_ERROR_MESSAGE_ALREADY_RECEIVED))
"""What a peek by lookup identifier says of a message that is gone."""
HELD = frozenset(
    (Status.MQ_ERROR_TRANSACTION_USAGE, Status.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION)
)
"""What it says of one that somebody has locked."""


class RefusedError(SrmpSparkError):
    """The other queue manager says no; ``status`` is its HRESULT or fault."""

    def __init__(self, status: int, what: str, *, perhaps_done: bool = False) -> None:
        """``perhaps_done``: a fault that does not say that the call was not carried out."""
        super().__init__(refusal_text(what, status))
        self.status = status
        self.what = what
        self.perhaps_done = perhaps_done


class LostError(SrmpSparkError):
    """There is no connection, or it ended: whether a call that was in flight was carried out is not known."""


class NotSentError(LostError):
    """There was no connection any more: the call was not sent."""


class Unreadable(NamedTuple):
    """A message that does not hold together: never a row, never removed."""

    request: int
    """dwRequestId of its lock, if the read was a receive: to be given back with :meth:`ReadableQueue.end`."""
    reason: str


def unreadable_text(count: int, reason: str) -> str:
    """Return what an operator is told of ``count`` messages that were passed by; ``reason``: of one of them."""
    if count == 1:
        return f"a message cannot be read and stays where it is: {reason}"
    return f"{count} messages cannot be read and stay where they are; one of them: {reason}"


class Ended(Enum):
    """What an answer of R_EndReceive says."""

    CARRIED_OUT = auto()
    NOT = auto()
    """Refused before anything was removed."""
    UNCLEAR = auto()
    """It failed, perhaps in the removal itself: only a peek can tell."""


class ReadableQueue(Protocol):
    """An open remote queue: :class:`.remotes.CrossedQueue`, :class:`.remote.RemoteQueue`, or a test's.

    All methods raise :class:`RefusedError` and :class:`LostError`.
    """

    @property
    def calls_at_once(self) -> int:
        """How many calls may be made without waiting for the first."""
        ...

    async def read(
        self, action: Action, *, wait_s: float = 0.0, lookup_id: int = 0, cursor: int = 0
    ) -> Pulled | Unreadable | Status:
        """Return a message, locked by us if ``action`` receives; or why there is none."""
        ...

    async def end(self, request: int, *, keep: bool = False) -> Ended:
        """Remove the message that ``request`` locked, or with ``keep`` unlock it."""
        ...

    async def cursor(self) -> int:
        """Make a cursor."""
        ...

    async def close_cursor(self, cursor: int) -> None:
        """Forget a cursor."""
        ...
