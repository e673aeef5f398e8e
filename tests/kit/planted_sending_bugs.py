"""Bugs that somebody could write one day into the sending half, to see that the simulator catches them (``tests/simulation``).

As in :mod:`.planted_bugs`: each is a queue manager with one fault, and the docstring says what a customer would have seen.
"""
# ruff: noqa: D102  # the class says what is wrong with its one method

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
    """A receipt is answered 200 before what it acknowledges is stored: after a crash the messages wait for it for ever."""

    def answer_receipt(self, answer: Answer) -> None:
        answer(200)


class EndsNotStored(SimSender):
    """Dead letters are kept in memory alone: after a restart what the peer refused goes out again, behind its successors."""

    def _begin(self) -> None:
        super()._begin()
        transaction = self.disk.under_way
        assert transaction is not None
        self.disk.under_way = transaction._replace(
            changes=transaction.changes._replace(dead_letters=[])
        )


class BatchSkippedById(SimSender):
    """A batch that was committed is skipped by its number: what a replanned batch holds besides is gone, and nobody hears."""

    def new_of(self, batch: str, rows: list[str]) -> list[str]:
        return [] if batch in self.batches else super().new_of(batch, rows)


class RepeatIsNew(SimSender):
    """Rows have no identities: a batch whose answer was lost is sent twice."""

    def new_of(self, batch: str, rows: list[str]) -> list[str]:
        return rows


def _with_stream(stream: type[OutgoingStream]) -> type[SimSender]:
    sender = type("Sender", (Sender,), {"stream_class": stream})
    return type(
        f"With{stream.__name__}", (SimSender,), {"sender_class": sender, "__doc__": stream.__doc__}
    )


class SequenceAtSendTime(OutgoingStream):
    """A position is given out when a message leaves, as 3.1.7.2.3 is printed: what is sent again has another one."""

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        message = super().message_of(stored, previous)
        self.numbers = max(getattr(self, "numbers", 0), previous - self.base) + 1
        assert message.stream is not None
        return message._replace(
            stream=message.stream._replace(current=self.numbers, previous=self.numbers - 1)
        )


class PreviousAsPrinted(OutgoingStream):
    """``<previous>`` is the number before, also when that message was taken out: the peer waits for it for ever."""

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        return super().message_of(stored, max(stored.serial - 1, self.base))


class BridgeBeforeStored(OutgoingStream):
    """``<previous>`` skips a dead message before its end is stored: after a crash it leaves, and is dropped unseen."""

    def removed(self, first: int, last: int) -> None:
        before = self.waits_for
        super().removed(first, last)
        self.waits_for = before


class StartNotRepeated(OutgoingStream):
    """``<start>`` is written the first time alone: if that request is lost no peer can ever begin the stream."""

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        message = super().message_of(stored, previous)
        assert message.stream is not None
        if stored.serial > self.left_to:
            return message
        return message._replace(stream=message.stream._replace(start=False, send_receipts_to=None))


class StartWithEachPass(OutgoingStream):
    """``<start>`` is written whenever sending begins anew, as on a new connection."""

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        message = super().message_of(stored, previous)
        assert message.stream is not None
        if previous > self.acknowledged_to:
            return message
        return message._replace(
            stream=message.stream._replace(start=True, send_receipts_to=self.receipts_url)
        )


class SentIsDelivered(OutgoingStream):
    """200 frees a stream message. A peer answers 200 to what it ignores, too."""

    def taken(self, send: Send, now: float, at: int) -> None:
        super().taken(send, now, at)
        if send.pass_number == self.pass_number and send.serial > self.acknowledged_to:
            self._acknowledge(send.serial, now, at)


class ReceiptBeyondSent(OutgoingStream):
    """A receipt for more than was sent counts for everything that there is."""

    def receipt(self, receipt: Receipt, now: float, at: int, message_class: int) -> ReceiptVerdict:
        assert receipt.last_ordinal is not None
        most = min(receipt.last_ordinal, self.end - self.base)
        self.sent_to = max(self.sent_to, self.base + most)
        return super().receipt(receipt._replace(last_ordinal=most), now, at, message_class)


class HeldMessagesExpire(OutgoingStream):
    """What may be at the peer expires like anything else, as 3.1.7.2.1 is printed: arrived, and told as dead."""

    def may_be_held(self, serial: int) -> bool:
        return False


class ReleaseNotStored(OutgoingStream):
    """It is not stored how far messages have left: after a crash they expire though they arrived."""

    def row(self) -> OutgoingQueueRow:
        return super().row()._replace(released_to=self.acknowledged_to)

    def was_stored(self, row: OutgoingQueueRow | None, generation: int, proof: Committed) -> None:
        released = max(self.released_to, self.acknowledged_to)
        super().was_stored(
            None if row is None else row._replace(released_to=released), generation, proof
        )


class ResendWithoutTimer(OutgoingStream):
    """The wait for a receipt ends and nothing is sent again: what a 200 for an ignored message hid is never delivered."""

    def _receipt_missing(self, now: float) -> None:
        self.receipt_wait_at = now + self.resend_interval


class NewIdentifierEachTime(OutgoingRegular):
    """Each sending has a new identifier, as 3.1.7.2.2 is printed: nobody can know a repeat."""

    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        return stored.message._replace(
            uniquifier=stored.message.uniquifier * 100_000 + self.ledger.next_number()
        )


class AnyStreamsReceipt(Sender):
    """A receipt counts for the destination's stream whatever stream it names: an old one frees what a new stream holds."""

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
    """What went once more by itself counts as never sent if that attempt failed, though the peer took the first one."""

    def doubted(self, send: Send) -> None:
        """Nobody listens."""


class _ClockOrdinals(OutgoingLedger):
    def new_stream_ordinal(self, at: int) -> int:
        self.last_stream_ordinal = at // 1_000_000 << 32
        return self.last_stream_ordinal


class OrdinalByWallClock(Sender):
    """A stream is named by the wall clock alone: set back, the peer takes a new stream for a late copy."""

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
