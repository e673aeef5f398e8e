"""Whom the wire of a reliable session tells, and what it asks to be written."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from srmp_spark.queue_manager.http_answer import PeerAnswer
from srmp_spark.srmp.outgoing_effects import QueueKey, Send


class WireOwner(Protocol):
    """All sessions together."""

    def on_answer(self, send: Send, answer: PeerAnswer) -> object:
        """It is acknowledged."""

    def on_failure(self, send: Send, why: str, left: bool) -> object:
        """It is not, and goes back to the engine; ``left``: the destination may have it."""

    def on_expired(self, send: Send) -> object:
        """Its time was over before it had a number."""

    def on_left(self, send: Send) -> object:
        """It goes out now, perhaps again."""

    def on_trouble(self, key: QueueKey, why: str | None) -> object:
        """Why nothing is taken; ``None``: it is again."""

    def on_lost(self, key: QueueKey, why: str) -> object:
        """The sequence is lost with messages that may have been taken: hold the queue."""

    def on_change(self, key: QueueKey) -> object:
        """There is something to write: :meth:`.reliable_wire.ReliableWire.take_change`."""


class Change(NamedTuple):
    """What a write makes true."""

    numbered: tuple[Send, ...] = ()
    """They get the next numbers."""
    ends: bool = False
    """The sequence gets no more messages."""
    begins: bool = False
    """It may be asked for."""
    is_held: bool = False
    """The queue was held meanwhile: they get their numbers all the same, and are posted again."""
