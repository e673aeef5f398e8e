"""Planted bugs of the receiving half, which the simulator must find (``tests/simulation``).

A simulator that finds nothing proves nothing until it has found these bugs. Each class is a queue
manager, or a part of its engine, with one fault, which overrides one method. The class's docstring
says what is wrong and what a customer would see.
"""
# The class's docstring says what is wrong with its one method.
# ruff: noqa: D102

from __future__ import annotations

from srmp_spark.message import Arrival, Message, StreamPosition
from srmp_spark.srmp.receiving.decisions import Undecided, receipts_for
from srmp_spark.srmp.receiving.destinations import QueueState
from srmp_spark.srmp.receiving.effects import Changes, OwedReceipt, Pending, Refused, Repeated
from srmp_spark.srmp.receiving.history import HistoryChanges
from srmp_spark.srmp.receiving.incoming_streams import IncomingStream, IncomingStreams
from srmp_spark.srmp.receiving.receiver import Receiver
from srmp_spark.srmp.receiving.stream_effects import RepeatKind
from tests.kit.sim_disk import SimDecision, SimDisk, SimRow, SimTold
from tests.kit.sim_net import Answer
from tests.kit.sim_queue_manager import Request, SimQueueManager, Waiting


def _nobody(status: int | None) -> None:
    """Ignore the status, because the answer was already sent."""


class AckBeforeSync(SimQueueManager):
    """Answers 200 while the message is only in memory. The message is lost when the power fails."""

    def take(self, waiting: Waiting) -> None:
        pending, key, answer = waiting
        answer(200)
        super().take((pending, key, _nobody))


class IdBeforeBody(SimQueueManager):
    """Stores the identifier in an earlier transaction than the row.

    After a crash between the two transactions the sender's retry counts as a duplicate, so the
    message is lost.
    """

    def write(self, rows: list[SimRow], owed: list[OwedReceipt], changes: Changes) -> None:
        self.disk.write_history(changes)
        super().write(rows, owed, changes)


class IdNeverSaved(SimQueueManager):
    """Keeps the history of identifiers only in memory.

    After a restart a repeat becomes a second row.
    """

    def write(self, rows: list[SimRow], owed: list[OwedReceipt], changes: Changes) -> None:
        super().write(rows, owed, changes._replace(history=HistoryChanges([], [])))


class PositionBeforeRow(SimQueueManager):
    """Stores stream positions at once, but rows with the group commit.

    After a crash the stream continues after a position whose row does not exist.
    """

    def write(self, rows: list[SimRow], owed: list[OwedReceipt], changes: Changes) -> None:
        for stream in changes.streams:
            self.disk.streams[stream.queue, stream.guid] = stream
        super().write(rows, owed, changes)


class RepeatOvertakesOriginal(SimQueueManager):
    """Answers a repeat at once, while the original message is not yet on the disk."""

    def take(self, waiting: Waiting) -> None:
        pending, key, answer = waiting
        if isinstance(pending, Repeated):
            answer(200)
            answer = _nobody
        super().take((pending, key, answer))


class OverloadIs400(SimQueueManager):
    """Answers 400 when a queue is full. The sender deletes the message because of the 400."""

    def receive(self, request: Request, answer: Answer) -> None:
        super().receive(request, lambda status: answer(400 if status == 503 else status))


class OwedReceiptsForgotten(SimQueueManager):
    """Keeps owed delivery receipts only in memory. After a crash these receipts are never sent."""

    def crash(self, survives: bool) -> None:
        self.disk.owed.clear()
        super().crash(survives)


class ToldBeforeMarkSynced(SimQueueManager):
    """Sends the receipt about a decision before the decision is stored.

    After a crash the row can be purged, although the sender was notified that the row was received.
    """

    def decide(self, decision: SimDecision) -> None:
        super().decide(decision)
        for sequence in range(decision.first, decision.last + 1):
            row = self.disk.take_undecided(decision.queue, sequence)
            for receipt in () if row is None else receipts_for(row, decision.reason, decision.at):
                self.disk.receipt_numbers += 1
                key = -self.disk.receipt_numbers
                self.disk.told[key] = told = SimTold(self.disk.receipt_numbers, receipt)
                self.send_decision(key, told, self.life)


class DecisionsForgotten(SimQueueManager):
    """Stores that rows were received without the receipts that follow.

    After a crash no receipt is sent.
    """

    def crash(self, survives: bool) -> None:
        super().crash(survives)
        self.disk.decisions.clear()


class NewIdentifierForEachSending(SimQueueManager):
    """Sends a receipt again under a new identifier when the answer was lost.

    The sender's application counts the receipt twice.
    """

    def number_of(self, told: SimTold) -> int:
        self.disk.receipt_numbers += 1
        return self.disk.receipt_numbers


class _KeptUndecided(SimDisk):
    def take_undecided(self, queue: str, sequence: int) -> Undecided | None:
        return self.undecided.get((queue, sequence))


class DecidedTwice(SimQueueManager):
    """Keeps rows as undecided after the receipts about these rows were sent.

    A purge after a crash sends a second receipt that contradicts the first one.
    """

    def start(self) -> None:
        self.disk.__class__ = _KeptUndecided
        super().start()
        self._received = {}


class FinalReceiptBeforeStreamReceipt(SimQueueManager):
    """Sends a final receipt before the stream receipt that covers the message.

    The sender's counts of unread messages go wrong.
    """

    def is_held(self, told: SimTold) -> bool:
        return False


class _ForgetsWhatWasTold(SimDisk):
    def decision_delivered(self, key: int, told: SimTold) -> None:
        super().decision_delivered(key, told)
        self.told_of.clear()


class TwoHundredIsHeard(SimQueueManager):
    """Forgets that a final receipt was sent, as soon as the receipt is answered 200.

    A sender that has given up the stream ignores the receipt. When the message then moves to the
    sender's new stream, no final receipt is sent for its new position.
    """

    def start(self) -> None:
        self.disk.__class__ = _ForgetsWhatWasTold
        super().start()


class _TellsNobody(SimDisk):
    def tell_of_discarded(self, asking: Undecided, at: int) -> None:
        pass


class DiscardedUnheard(SimQueueManager):
    """Discards a late message with 200 and without a receipt, although the sender requested one."""

    def start(self) -> None:
        self.disk.__class__ = _TellsNobody
        super().start()


def _with_stream(stream: type[IncomingStream]) -> type[SimQueueManager]:
    streams = type("Streams", (IncomingStreams,), {"stream_class": stream})
    return type(
        f"With{stream.__name__}",
        (SimQueueManager,),
        {"streams_class": streams, "__doc__": stream.__doc__},
    )


class PreviousOffByOne(IncomingStream):
    """Accepts a ``<previous>`` that is one higher than the last stored position.

    When a message overtakes another one, the overtaken message is lost.
    """

    def refuses(self, position: StreamPosition) -> RepeatKind | None:
        skips = position.id.ordinal == self.ordinal and position.current > self.sequence_number
        if skips and position.previous <= self.sequence_number + 1:
            return None
        return super().refuses(position)


class ReceiptBeyondCommitted(IncomingStream):
    """Sends receipts for accepted positions instead of stored ones.

    The sender deletes messages that a crash then loses.
    """

    def acknowledgeable(self) -> tuple[float, int]:
        return self.deadline, self.sequence_number


class ReceiptBeyondGap(IncomingStream):
    """Sends receipts for the highest position that ever arrived, even after a gap."""

    __slots__ = ("highest",)

    def refuses(self, position: StreamPosition) -> RepeatKind | None:
        kind = super().refuses(position)
        seen = position.current if position.id.ordinal == self.ordinal or kind is None else 0
        self.highest = max(
            getattr(self, "highest", 0) if position.id.ordinal == self.ordinal else 0, seen
        )
        return kind

    def acknowledgeable(self) -> tuple[float, int]:
        return self.deadline, max(self.committed, getattr(self, "highest", 0))


class StaleStartAccepted(IncomingStream):
    """Begins a stream for each ``<start>`` of another stream, as 3.1.5.1.6.3 is printed.

    A late copy of an old start ends the live stream.
    """

    def refuses(self, position: StreamPosition) -> RepeatKind | None:
        if position.start and position.current == 1 and position.id.ordinal != self.ordinal:
            return None
        return super().refuses(position)


class RepeatArmsNoReceipt(IncomingStream):
    """Ignores a repeat wholly, as 3.1.5.1.6.3 is printed: the repeat makes no receipt due.

    After one abandoned receipt the stream stops permanently.
    """

    def stored(self, ordinal: int, position: int, now: float) -> None:
        if position:
            super().stored(ordinal, position, now)

    def receipt_failed(self, now: float, retransmission_timeout: float, permanent: bool) -> None:
        super().receipt_failed(now, retransmission_timeout, True)


class RefusedPositionLeavesTrace(Receiver):
    """Adds the identifier of a refused position to the history.

    When the sender repeats the message and the position fits, the message counts as a duplicate.
    """

    def receive(self, message: Message, arrival: Arrival, now: float) -> Refused | Pending:
        outcome = super().receive(message, arrival, now)
        if isinstance(outcome, Repeated) and outcome.kind == "gap":
            self.history.add(message.lineage, message.uniquifier, arrival.at)
        return outcome


class QuotaAfterIdentifier(Receiver):
    """Adds the identifier to the history before it checks the quota.

    The repeat of a message that was answered 503 counts as a duplicate.
    """

    def _not_now(self, queue: QueueState, message: Message, arrival: Arrival) -> Refused | None:
        refused = super()._not_now(queue, message, arrival)
        if refused is not None:
            self.history.add(message.lineage, message.uniquifier, arrival.at)
        return refused


class HistoryByWallClock(Receiver):
    """Expires identifiers by the wall clock.

    When an operator sets the clock forward, every repeat counts as a new message.
    """

    def _received_at(self, arrival: Arrival, now: float) -> int:
        self.history.expire(arrival.at)
        return arrival.at


class RepeatsExpire(Receiver):
    """Treats the repeat of a stored message as expired when the repeat is late.

    The sender is notified that the message expired, although the message has its row.
    """

    def receive(self, message: Message, arrival: Arrival, now: float) -> Refused | Pending:
        outcome = super().receive(message, arrival, now)
        if (
            self.settings.expired == "keep"
            or not self._expired(message)
            or not isinstance(outcome, Repeated)
        ):
            return outcome
        if message.stream is None:
            return Refused(400, "expired", "too late", "")
        return (
            outcome._replace(kind="expired", discarded=outcome.moved, moved=None)
            if outcome.mark is not None
            else outcome
        )


class ExpiresEarly(Receiver):
    """Compares the expiry of a message with a time one second ahead of the clock.

    A message that arrives in time is discarded.
    """

    def _expired(self, message: Message) -> bool:
        believed = self._late_at
        self._late_at = believed + 1_000_000
        try:
            return super()._expired(message)
        finally:
            self._late_at = believed


def _with_receiver(receiver: type[Receiver]) -> type[SimQueueManager]:
    return type(
        f"With{receiver.__name__}",
        (SimQueueManager,),
        {"receiver_class": receiver, "__doc__": receiver.__doc__},
    )


PLANTED: dict[str, type[SimQueueManager]] = (
    {
        bug.__name__: bug
        for bug in (
            AckBeforeSync,
            IdBeforeBody,
            IdNeverSaved,
            PositionBeforeRow,
            RepeatOvertakesOriginal,
            OverloadIs400,
            OwedReceiptsForgotten,
            ToldBeforeMarkSynced,
            DecisionsForgotten,
            NewIdentifierForEachSending,
            DecidedTwice,
            FinalReceiptBeforeStreamReceipt,
            TwoHundredIsHeard,
            DiscardedUnheard,
        )
    }
    | {
        stream.__name__: _with_stream(stream)
        for stream in (
            PreviousOffByOne,
            ReceiptBeyondCommitted,
            ReceiptBeyondGap,
            StaleStartAccepted,
            RepeatArmsNoReceipt,
        )
    }
    | {
        receiver.__name__: _with_receiver(receiver)
        for receiver in (
            RefusedPositionLeavesTrace,
            QuotaAfterIdentifier,
            HistoryByWallClock,
            RepeatsExpire,
            ExpiresEarly,
        )
    }
)
"""Every planted bug by name."""
