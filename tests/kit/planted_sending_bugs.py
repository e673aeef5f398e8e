"""Planted bugs of the sending half, which the simulator must find (``tests/simulation``).

As in :mod:`.planted_bugs`, each class is a queue manager, or a part of its engine, with one fault.
The class's docstring says what is wrong and what a customer would see.
"""
# The class's docstring says what is wrong with its one method.
# ruff: noqa: D102

from __future__ import annotations

from srmp_spark.message import Message, Receipt
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.srmp.sending.outgoing_effects import (
    OutgoingQueueRow,
    ReceiptVerdict,
    Send,
    StoredMessage,
)
from srmp_spark.srmp.sending.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.sending.outgoing_regular import OutgoingRegular
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.sender import Sender
from tests.kit.sim_net import Answer
from tests.kit.sim_outbox import SimSender


class ReceiptAnsweredBeforeStored(SimSender):
    """Answers a receipt with 200 before the acknowledgement is stored.

    After a crash the acknowledged messages wait for the receipt forever.
    """

    def answer_receipt(self, answer: Answer) -> None:
        answer(200)


class EndsNotStored(SimSender):
    """Keeps dead letters only in memory.

    After a restart the messages that the peer refused are sent again, after their successors.
    """

    def _begin(self) -> None:
        super()._begin()
        transaction = self.disk.under_way
        assert transaction is not None
        self.disk.under_way = transaction._replace(
            changes=transaction.changes._replace(dead_letters=[])
        )


class BatchSkippedById(SimSender):
    """Skips a batch whose number is committed already, whatever rows it has.

    When Spark plans the batch again with more rows, these rows are lost without an error.
    """

    def new_of(self, batch: str, rows: list[str]) -> list[str]:
        return [] if batch in self.batches else super().new_of(batch, rows)


class RepeatIsNew(SimSender):
    """Gives rows no identities. A batch whose answer was lost is sent twice."""

    def new_of(self, batch: str, rows: list[str]) -> list[str]:
        return rows


def _with_stream(stream: type[OutgoingStream]) -> type[SimSender]:
    sender = type("Sender", (Sender,), {"stream_class": stream})
    return type(
        f"With{stream.__name__}", (SimSender,), {"sender_class": sender, "__doc__": stream.__doc__}
    )


class SequenceAtSendTime(OutgoingStream):
    """Assigns a position when a message is sent, as 3.1.7.2.3 is printed.

    A message that is sent again has another position.
    """

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        message = super().message_of(stored, previous)
        self.numbers = max(getattr(self, "numbers", 0), previous - self.base) + 1
        assert message.stream is not None
        return message._replace(
            stream=message.stream._replace(current=self.numbers, previous=self.numbers - 1)
        )


class PreviousAsPrinted(OutgoingStream):
    """Writes the preceding number as ``<previous>``, even if that message was removed.

    The peer waits for the removed message forever.
    """

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        return super().message_of(stored, max(stored.serial - 1, self.base))


class BridgeBeforeStored(OutgoingStream):
    """Lets ``<previous>`` skip a dead message before the message's end is stored.

    After a crash the skipped message is sent, and the peer ignores it without notice.
    """

    def removed(self, first: int, last: int) -> None:
        before = self.waits_for
        super().removed(first, last)
        self.waits_for = before


class StartNotRepeated(OutgoingStream):
    """Writes ``<start>`` only the first time.

    If that request is lost, no peer can begin the stream.
    """

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        message = super().message_of(stored, previous)
        assert message.stream is not None
        if stored.serial > self.left_to:
            return message
        return message._replace(stream=message.stream._replace(start=False, send_receipts_to=None))


class StartWithEachPass(OutgoingStream):
    """Writes ``<start>`` whenever sending begins again, as on a new connection."""

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        message = super().message_of(stored, previous)
        assert message.stream is not None
        if previous > self.acknowledged_to:
            return message
        return message._replace(
            stream=message.stream._replace(start=True, send_receipts_to=self.receipts_url)
        )


class SentIsDelivered(OutgoingStream):
    """Deletes a stream message after a 200. A peer answers 200 also when it ignores the message."""

    def on_accepted(self, send: Send, now: float, at: int) -> None:
        super().on_accepted(send, now, at)
        if send.pass_number == self.pass_number and send.serial > self.acknowledged_to:
            self._acknowledge(send.serial, now, at)


class ReceiptBeyondSent(OutgoingStream):
    """Accepts a receipt for more messages than were sent, as if it acknowledged all messages."""

    def receipt(self, receipt: Receipt, now: float, at: int, message_class: int) -> ReceiptVerdict:
        assert receipt.last_ordinal is not None
        most = min(receipt.last_ordinal, self.end - self.base)
        self.sent_to = max(self.sent_to, self.base + most)
        return super().receipt(receipt._replace(last_ordinal=most), now, at, message_class)


class HeldMessagesExpire(OutgoingStream):
    """Expires messages that the peer may hold already, as 3.1.7.2.1 is printed.

    A message arrives and is also reported as a dead letter.
    """

    def may_be_held(self, serial: int) -> bool:
        return False


class ReleaseNotStored(OutgoingStream):
    """Does not store how far messages were sent.

    After a crash messages expire although they arrived.
    """

    def row(self) -> OutgoingQueueRow:
        return super().row()._replace(released_to=self.acknowledged_to)

    def was_stored(self, row: OutgoingQueueRow | None, generation: int, proof: Committed) -> None:
        released = max(self.released_to, self.acknowledged_to)
        super().was_stored(
            None if row is None else row._replace(released_to=released), generation, proof
        )


class ResendWithoutTimer(OutgoingStream):
    """Sends nothing again when the wait for a receipt ends.

    A message that the peer ignored and answered 200 is never delivered.
    """

    def _receipt_missing(self, now: float) -> None:
        self.receipt_wait_at = now + self.resend_interval


class NewIdentifierEachTime(OutgoingRegular):
    """Gives a message a new identifier for each sending, as 3.1.7.2.2 is printed.

    No receiver can recognise a repeat.
    """

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        return stored.message._replace(
            uniquifier=stored.message.uniquifier * 100_000 + self.ledger.next_number()
        )


class AnyStreamsReceipt(Sender):
    """Applies a receipt to the destination's current stream, whichever stream it names.

    A receipt for an old stream deletes messages of the new stream.
    """

    def receipt(self, message: Message, now: float, at: int) -> ReceiptVerdict | None:
        receipt = message.receipt
        streams = [queue for queue in self if isinstance(queue, OutgoingStream) and queue.ordinal]
        if receipt is not None and receipt.stream_id is not None and streams:
            stream = streams[-1]
            most = min(receipt.last_ordinal or 0, stream.sent_to - stream.base)
            message = message._replace(
                receipt=receipt._replace(stream_id=stream.id, last_ordinal=most)
            )
        return super().receipt(message, now, at)


class SecondAttemptDecides(Sender):
    """Counts a message as never sent if its automatic second attempt failed.

    The peer may have accepted the first attempt.
    """

    def doubted(self, send: Send) -> None:
        """Ignore the report that the first attempt is in doubt."""


class _ClockOrdinals(OutgoingLedger):
    def new_stream_ordinal(self, at: int) -> int:
        self.last_stream_ordinal = at // 1_000_000 << 32
        return self.last_stream_ordinal


class OrdinalByWallClock(Sender):
    """Names a stream only by the wall clock.

    When the clock is set back, the peer treats a new stream as a late copy.
    """

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # handed through
        self._ledger = _ClockOrdinals()


def _with_sender(sender: type[Sender]) -> type[SimSender]:
    return type(
        f"With{sender.__name__}", (SimSender,), {"sender_class": sender, "__doc__": sender.__doc__}
    )


PLANTED_SENDING: dict[str, type[SimSender]] = (
    {
        bug.__name__: bug
        for bug in (ReceiptAnsweredBeforeStored, EndsNotStored, BatchSkippedById, RepeatIsNew)
    }
    | {
        stream.__name__: _with_stream(stream)
        for stream in (
            SequenceAtSendTime,
            PreviousAsPrinted,
            BridgeBeforeStored,
            StartNotRepeated,
            StartWithEachPass,
            SentIsDelivered,
            ReceiptBeyondSent,
            HeldMessagesExpire,
            ReleaseNotStored,
            ResendWithoutTimer,
        )
    }
    | {
        NewIdentifierEachTime.__name__: _with_sender(
            type("Sender", (Sender,), {"regular_class": NewIdentifierEachTime})
        ),
    }
    | {
        sender.__name__: _with_sender(sender)
        for sender in (AnyStreamsReceipt, SecondAttemptDecides, OrdinalByWallClock)
    }
)
"""Every planted bug by name."""
