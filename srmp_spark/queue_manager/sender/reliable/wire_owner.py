"""The callbacks of a reliable session's wire, and its changes that are to be written.

A *wire* (:class:`.reliable_wire.ReliableWire`) sends the messages of one destination.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send


class WireOwner(Protocol):
    """Receives the events of the wires of all reliable sessions."""

    def on_answer(self, send: Send, answer: PeerAnswer) -> object:
        """Note that a message is acknowledged, so that the engine finishes it."""

    def on_failure(self, send: Send, why: str, left: bool) -> object:
        """Return a message that is not acknowledged to the engine, with the reason ``why``.

        ``left`` states that the destination may have the message.
        """

    def on_expired(self, send: Send) -> object:
        """Note that a message expired before a number was assigned to it."""

    def on_left(self, send: Send) -> object:
        """Note that a message is being sent now, perhaps again, for its send history."""

    def on_trouble(self, key: QueueKey, why: str | None) -> object:
        """Note the reason ``why`` the destination accepts no message now.

        ``why`` is ``None`` when messages are accepted again.
        """

    def on_lost(self, key: QueueKey, why: str) -> object:
        """Hold the outgoing queue, because its sequence is lost, for the reason ``why``.

        The destination may have accepted some of its messages.
        """

    def on_change(self, key: QueueKey) -> object:
        """Note that the wire of a queue has a change to be written.

        :meth:`.reliable_wire.ReliableWire.take_change` returns the change.
        """


class Change(NamedTuple):
    """A change of a sequence that takes effect after it was written to the outbox."""

    numbered: tuple[Send, ...] = ()
    """Messages that get the next numbers."""
    ends: bool = False
    """Whether the sequence is to be closed, because it gets no more messages."""
    begins: bool = False
    """Whether CreateSequence may be sent after the write."""
    is_held: bool = False
    """Whether the queue was held meanwhile.

    Then the messages get their numbers nevertheless, and are posted again later.
    """
