"""Effects that the server returns. Effects are values, never actions.

The owner executes the effects in their order.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from srmp_spark.mqrr.ndr.transfer_syntax import TransferSyntax
from srmp_spark.mqrr.packets.message_packet import EncodedPacket
from srmp_spark.mqrr.queue_format import QueueFormat


class QueueView(Protocol):
    """Interface by which the server asks the owner about one queue.

    Each call answers for the present moment. Two views are equal if they are views of the same
    queue.
    """

    @property
    def name(self) -> str:
        """Return the canonical name of the queue.

        Examples: ``private$/orders``, ``private$/orders;retry`` (a subqueue),
        ``private$/orders;journal``.
        """
        ...

    @property
    def transactional(self) -> bool:
        """Return whether the queue accepts transactional messages."""
        ...

    def floor(self) -> int:
        """Return the sequence up to which, included, every message has left the queue."""
        ...

    def is_behind(self) -> bool:
        """Return whether the queue has messages that its owner did not yet report to the server.

        If the result is True, the owner calls :meth:`.RemoteReadServer.add_arrived` later in any
        case, at the latest when the result would be False.
        """
        ...

    def holds_receivers(self) -> bool:
        """Return whether an operator lets nobody receive from the queue now.

        When that ends, the owner calls :meth:`.RemoteReadServer.add_arrived`, with or without
        messages.
        """
        ...

    def has_left(self, sequence: int) -> bool:
        """Return whether the message ``sequence`` has left the queue.

        Sequences up to the floor have left; some above it may have left too.
        """
        ...


class CallId(NamedTuple):
    """Identifies the call that is to be answered, and the syntax of its answer."""

    connection: Hashable
    number: int
    syntax: TransferSyntax


class RemovalReason(Enum):
    """Reason why a message leaves its queue ([MS-MQDMPR] 3.1.7.2.1)."""

    RECEIVED = auto()
    PURGED = auto()
    MOVED = auto()
    """The message is in another queue now. No decision about it is made or reported."""


class ServedMessage(NamedTuple):
    """One message that the owner of the server has read from the store."""

    packet: EncodedPacket
    srmp: bool
    """Whether the message was sent over HTTP, so that the other limit applies."""
    arrived_at: int
    """Time of arrival in seconds since 1970, UTC."""


class AnswerCall(NamedTuple):
    """Order to answer a call with a response, whose bytes are ``stub``."""

    call: CallId
    stub: bytes


class FaultCall(NamedTuple):
    """Order to answer a call with a fault, because no response can state its failure."""

    call: CallId
    status: int


class FindQueue(NamedTuple):
    """Order to find a queue, then call :meth:`.RemoteReadServer.opened` or ``not_opened``.

    ``opening`` is the number to call them with. If ``receive`` is set, hold the queue against other
    receivers. Each queue that was opened is closed once, with :class:`ReleaseQueue`.
    """

    opening: int
    queue: QueueFormat
    receive: bool
    move: bool = False
    """Whether messages are to be moved to the queue.

    A queue that accepts no messages is refused.
    """
    caller: str | None = None
    """Name of the authenticated caller; ``None`` without authentication."""


class ReadMessage(NamedTuple):
    """Order to read a message.

    Then call :meth:`.RemoteReadServer.read`, ``not_read`` or ``vanished`` with ``reading``, the
    number of this order.
    """

    reading: int
    queue: QueueView
    sequence: int
    connection: Hashable
    """Connection to which the message is sent.

    The owner may wait until that reader has accepted earlier answers.
    """


class Take(NamedTuple):
    """Order to store that a message has left its queue, for a reason.

    A moved message is stored in its new queue in the same commit. Then call
    :meth:`.RemoteReadServer.stored` or ``not_stored`` with ``storing``, the number of this order.
    """

    storing: int
    queue: QueueView
    sequence: int
    reason: RemovalReason
    to: QueueView | None = None
    """For ``MOVED``: the queue in which the message is afterwards."""


class Purge(NamedTuple):
    """Order to remove all messages of a queue but those in ``spared``, which are locked.

    Then call :meth:`.RemoteReadServer.purged` with ``purging``, the number of this order, and with
    the status if the purge failed.
    """

    purging: int
    queue: QueueView
    spared: tuple[int, ...]
    """Sequences of the locked messages, in the order in which they were locked."""


class LookOn(NamedTuple):
    """Order to call ``look_on(purging)`` in a later turn of the loop.

    The purge with the number ``purging`` has more locked messages than one turn examines
    (LOCKS_OF_A_TURN).
    """

    purging: int


class ReleaseQueue(NamedTuple):
    """Order to release a queue that the owner opened because of :class:`FindQueue`.

    One handle of the queue was closed, and everything that was received through this handle is
    settled.
    """

    queue: QueueView
    receive: bool


Effect = AnswerCall | FaultCall | FindQueue | ReadMessage | Take | Purge | LookOn | ReleaseQueue
