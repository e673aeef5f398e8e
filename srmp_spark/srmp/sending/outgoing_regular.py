"""Outgoing regular and durable messages ([MC-MQSRM] 3.1.7.2.5): each is finished by its own 200.

These messages have no order. After a failure a message is sent again under the same identifier, so
that a receiver recognizes the repeat (3.1.5.1.11). The specification (3.1.7.2.2) as printed gives
each sending a new identifier, so that no repeat could be recognized. Express messages are stored
like the others, which is simpler than to explain a difference.
"""

from __future__ import annotations

from bisect import insort

from srmp_spark.message import Message
from srmp_spark.srmp.sending.outgoing_effects import DeadReason, Send, StoredMessage
from srmp_spark.srmp.sending.outgoing_queue import OutgoingQueue


class OutgoingRegular(OutgoingQueue):
    """Holds the regular and durable messages to one destination.

    Arguments and serials are those of :class:`.OutgoingQueue`.
    """

    def append(self, count: int) -> int:
        """Assign serials to ``count`` new messages and return the first serial."""
        first, self.end = self.end + 1, self.end + count
        self.touch()
        return first

    def previous_of(self, serial: int, at: int) -> int | None:
        """Return 0 always, because these messages have no order."""
        return 0

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        """Return the message as it was stored."""
        return stored.message

    def on_accepted(self, send: Send, now: float, at: int) -> None:
        """Finish the message after a 200: "the sending QM MUST delete the message".

        Nothing changes if the message was discarded while it was in flight.
        """
        # The message was discarded while it was in flight.
        if send.pass_number != self.pass_number:
            return
        self.ledger.finish(self.key, send.serial, send.serial)
        self.last_acknowledged_at = at
        self._gone(send)

    def on_refused(self, send: Send, at: int) -> None:
        """Move the message to the dead letters after a 400.

        The other messages need not wait for that.
        """
        if send.pass_number == self.pass_number:
            self.bury(
                send.serial,
                send.serial,
                "refused",
                status=400,
                in_doubt=self.may_be_held(send.serial),
            )
            self._gone(send)

    def put_back(self, send: Send) -> None:
        """Put the message of a failed sending back into the buffer, before all untried messages."""
        insort(self.buffer, send.stored, key=lambda each: each.serial)

    def _gone(self, send: Send) -> None:
        self.doubtful.discard(send.serial)
        self._settle()

    def removed(self, first: int, last: int) -> None:
        """Update ``acknowledged_to`` after expired messages were removed."""
        self._settle()

    def _settle(self) -> None:
        """Move ``acknowledged_to`` up to the first message that is not finished."""
        waiting = [send.serial for send in self.in_flight.values()]
        if self.buffer:
            waiting.append(self.buffer[0].serial)
        first = min(waiting, default=self.loaded_to + 1)
        if first - 1 > self.acknowledged_to:
            self.acknowledged_to = first - 1
        self.touch()

    def drop(self, at: int, reason: DeadReason = "dropped") -> None:
        """Make dead letters of all messages of the queue for ``reason``; keep nothing to send.

        Messages in flight may still arrive, and their dead letters are marked so.
        """
        first, last = self.acknowledged_to + 1, self.end
        unsure = max(
            [self.held_to, *self.doubtful, *(send.serial for send in self.in_flight.values())]
        )
        if first <= min(last, unsure):
            self.bury(first, min(last, unsure), reason, in_doubt=True)
        if max(first, unsure + 1) <= last:
            self.bury(max(first, unsure + 1), last, reason)
        self.go_back(self.end)
        self.acknowledged_to = self.held_to = self.left_to = self.end
        self.doubtful.clear()
        self.last_acknowledged_at = at
        self.touch()
