"""The calls to an open queue, and what their answers mean ([MS-MQRR] 3.2.4).

A call is an opnum and the parameters of the method. The owner makes it over any connection of the
client, and gets the response of :data:`.METHODS`. A receive has two calls: :meth:`QueueCalls.start`
locks a message for the connection and returns it, and :meth:`QueueCalls.end` removes or unlocks it.
"""

from __future__ import annotations

import itertools
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import (
    RR_ACK,
    RR_NACK,
    SHARE_DENY_NONE,
    EndReceiveRequest,
    HandleNumberRequest,
    HandleRequest,
    OpenRequest,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.packets.sections import ALL
from srmp_spark.mqrr.queue_format import QueueFormat
from srmp_spark.mqrr.status import END_REMOVED_NOTHING, Status

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


class Ended(Enum):
    """What the server did with a call of R_EndReceive."""

    CARRIED_OUT = auto()
    NOT = auto()
    """The server refused the call before it removed the message."""
    UNCLEAR = auto()
    """The call failed, perhaps while the message was being removed. Only a peek can show it."""


def ended(status: int) -> Ended:
    """Return what the server did with an R_EndReceive that it answered with ``status``."""
    if status == Status.MQ_OK:
        return Ended.CARRIED_OUT
    return Ended.NOT if status in END_REMOVED_NOTHING else Ended.UNCLEAR


def open_queue(
    queue: QueueFormat, access: int, share: int = SHARE_DENY_NONE
) -> tuple[int, OpenRequest]:
    """Return the call R_OpenQueue, whose response has the handle for :class:`QueueCalls`."""
    return 2, OpenRequest(queue, access, share)


class QueueCalls:
    """Makes the calls to one open queue, and numbers its reads.

    After :meth:`close` every method raises :class:`LocalProtocolError`, because a server may give
    the handle of a closed queue to another open queue.
    """

    def __init__(self, handle: ContextHandle) -> None:
        self._handle: ContextHandle | None = handle
        self._requests = itertools.count(1)

    @property
    def handle(self) -> ContextHandle:
        """Return the handle of the queue.

        Raises :class:`LocalProtocolError` if the queue was closed.
        """
        if self._handle is None:
            raise LocalProtocolError("the queue was closed; open it again")
        return self._handle

    def start(
        self,
        action: Action,
        *,
        wait_s: float = 0.0,
        lookup_id: int = 0,
        cursor: int = 0,
        max_body: int = ALL,
    ) -> tuple[int, StartReceiveRequest]:
        """Return the call R_StartReceive, which reads one message.

        ``wait_s`` is the longest wait for a message in seconds, ``max_body`` the limit of the body
        in bytes. ``lookup_id`` or ``cursor`` choose the message, if ``action`` needs one of them.
        The field ``request_id`` names the read in :meth:`end`.
        """
        return 7, StartReceiveRequest(
            self.handle,
            lookup_id,
            cursor,
            action,
            int(wait_s * 1000),
            next(self._requests),
            max_body,
            max_body,
        )

    def end(self, request: int, *, keep: bool) -> tuple[int, EndReceiveRequest]:
        """Return the call R_EndReceive: remove the message, or with ``keep`` unlock it."""
        return 9, EndReceiveRequest(self.handle, RR_NACK if keep else RR_ACK, request)

    def create_cursor(self) -> tuple[int, HandleRequest]:
        """Return the call R_CreateCursor."""
        return 4, HandleRequest(self.handle)

    def close_cursor(self, cursor: int) -> tuple[int, HandleNumberRequest]:
        """Return the call R_CloseCursor."""
        return 5, HandleNumberRequest(self.handle, cursor)

    def purge(self) -> tuple[int, HandleRequest]:
        """Return the call R_PurgeQueue, which deletes all messages that are not locked."""
        return 6, HandleRequest(self.handle)

    def close(self) -> tuple[int, HandleRequest]:
        """Return the call R_CloseQueue, and forget the handle."""
        handle, self._handle = self.handle, None
        return 3, HandleRequest(handle)
