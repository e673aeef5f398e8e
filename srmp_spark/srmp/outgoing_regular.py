"""Regular and durable messages on their way out ([MC-MQSRM] 3.1.7.2.5): each is finished by its own 200.

They have no place in an order. In trouble they go again under the same identifier, by which a receiver knows a repeat
(3.1.5.1.11); 3.1.7.2.2 as printed gives each sending a new identifier, and no repeat could be known. Express messages are
stored like the others: cheaper than to explain the difference.
"""

from __future__ import annotations

from bisect import insort

from srmp_spark.message import Message
from srmp_spark.srmp.outgoing_effects import DeadReason, Send, StoredMessage
from srmp_spark.srmp.outgoing_queue import OutgoingQueue


class OutgoingRegular(OutgoingQueue):
    """The regular and durable messages to one destination."""

    def append(self, count: int) -> int:
        """Give out ``count`` serials; the first of them."""
        first, self.end = self.end + 1, self.end + count
        self.touch()
        return first

    def previous_of(self, serial: int, at: int) -> int | None:
        """Nothing comes before anything."""
        return 0

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        """As it was stored."""
        return stored.message

    def taken(self, send: Send, now: float, at: int) -> None:
        """200: "the sending QM MUST delete the message"."""
        if send.pass_number != self.pass_number:
            return  # it was dropped meanwhile
        self.ledger.finish(self.key, send.serial, send.serial)
        self.last_acknowledged_at = at
        self._gone(send)

    def refused(self, send: Send, at: int) -> None:
        """400: it is a dead letter; the others need not wait for that."""
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
        """It goes again, before what has not been tried."""
        insort(self.buffer, send.stored, key=lambda each: each.serial)

    def _gone(self, send: Send) -> None:
        self.doubtful.discard(send.serial)
        self._settle()

    def removed(self, first: int, last: int) -> None:
        """Expired messages are gone."""
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
        """Give up everything; what is under way may still arrive."""
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
