"""Bugs that somebody could write one day, to see that the simulator catches them (``tests/simulation``).

A simulator that finds nothing proves nothing until it has found these. Each is a queue manager with one fault, made by
overriding one method; the docstring says what a customer would have seen.
"""
# ruff: noqa: D102  # the class says what is wrong with its one method

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
    """The answer left already."""


class AckBeforeSync(SimQueueManager):
    """200 leaves when the message is in memory: lost when the power fails."""

    def take(self, waiting: Waiting) -> None:
        pending, key, answer = waiting
        answer(200)
        super().take((pending, key, _nobody))


class IdBeforeBody(SimQueueManager):
    """The identifier reaches the disk in a transaction before the row: the retry after a crash is taken for a duplicate."""

    def write(self, rows: list[SimRow], owed: list[OwedReceipt], changes: Changes) -> None:
        self.disk.write_history(changes)
        super().write(rows, owed, changes)


class IdNeverSaved(SimQueueManager):
    """The history is kept in memory alone: doubled after a restart."""

    def write(self, rows: list[SimRow], owed: list[OwedReceipt], changes: Changes) -> None:
        super().write(rows, owed, changes._replace(history=HistoryChanges([], [])))


class PositionBeforeRow(SimQueueManager):
    """Stream positions are saved at once, rows with the group: after a crash the stream goes on past what is not there."""

    def write(self, rows: list[SimRow], owed: list[OwedReceipt], changes: Changes) -> None:
        for stream in changes.streams:
            self.disk.streams[stream.queue, stream.guid] = stream
        super().write(rows, owed, changes)


class RepeatOvertakesOriginal(SimQueueManager):
    """A repeat is answered at once, while what it repeats is still on its way to the disk."""

    def take(self, waiting: Waiting) -> None:
        pending, key, answer = waiting
        if isinstance(pending, Repeated):
            answer(200)
            answer = _nobody
        super().take((pending, key, answer))


class OverloadIs400(SimQueueManager):
    """A full queue answers 400, on which the sender deletes the message."""

    def receive(self, request: Request, answer: Answer) -> None:
        super().receive(request, lambda status: answer(400 if status == 503 else status))


class OwedReceiptsForgotten(SimQueueManager):
    """Delivery receipts are owed in memory alone: after a crash nobody sends them."""

    def crash(self, survives: bool) -> None:
        self.disk.owed.clear()
        super().crash(survives)


class ToldBeforeMarkSynced(SimQueueManager):
    """Whoever asked is told when the application has the row, before its mark is stored: after a crash the row is purged."""

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
    """A mark is stored and what follows from it is not: after a crash nobody is told."""

    def crash(self, survives: bool) -> None:
        super().crash(survives)
        self.disk.decisions.clear()


class NewIdentifierForEachSending(SimQueueManager):
    """A receipt whose answer was lost goes again as another message: the sender's application counts it twice."""

    def number_of(self, told: SimTold) -> int:
        self.disk.receipt_numbers += 1
        return self.disk.receipt_numbers


class _KeptUndecided(SimDisk):
    def take_undecided(self, queue: str, sequence: int) -> Undecided | None:
        return self.undecided.get((queue, sequence))


class DecidedTwice(SimQueueManager):
    """Rows that were told of still count as undecided: a purge after a crash tells them again, and otherwise."""

    def start(self) -> None:
        self.disk.__class__ = _KeptUndecided
        super().start()
        self._received = {}


class FinalReceiptBeforeStreamReceipt(SimQueueManager):
    """A final receipt does not wait for its stream receipt: the sender's counts of what is unread go wrong."""

    def is_held(self, told: SimTold) -> bool:
        return False


class _ForgetsWhatWasTold(SimDisk):
    def decision_delivered(self, key: int, told: SimTold) -> None:
        super().decision_delivered(key, told)
        self.told_of.clear()


class TwoHundredIsHeard(SimQueueManager):
    """A final receipt that was answered 200 is forgotten: of a stream that was given up nobody has heard it."""

    def start(self) -> None:
        self.disk.__class__ = _ForgetsWhatWasTold
        super().start()


class _TellsNobody(SimDisk):
    def tell_of_discarded(self, asking: Undecided, at: int) -> None:
        pass


class DiscardedUnheard(SimQueueManager):
    """A message that came too late is dropped with a 200, and its sender, who asked for it, never hears of that."""

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
    """``<previous>`` may be one more than what is there: a message that overtakes another makes it vanish."""

    def refuses(self, position: StreamPosition) -> RepeatKind | None:
        skips = position.id.ordinal == self.ordinal and position.current > self.sequence_number
        if skips and position.previous <= self.sequence_number + 1:
            return None
        return super().refuses(position)


class ReceiptBeyondCommitted(IncomingStream):
    """A receipt names what was accepted, not what is stored: the sender deletes what a crash then loses."""

    def acknowledgeable(self) -> tuple[float, int]:
        return self.deadline, self.sequence_number


class ReceiptBeyondGap(IncomingStream):
    """A receipt names the highest position that was ever seen."""

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
    """Any ``<start>`` that is not the live one begins a stream, as 3.1.5.1.6.3 is printed: a late copy ends the live stream."""

    def refuses(self, position: StreamPosition) -> RepeatKind | None:
        if position.start and position.current == 1 and position.id.ordinal != self.ordinal:
            return None
        return super().refuses(position)


class RepeatArmsNoReceipt(IncomingStream):
    """A repeat is ignored wholly, as 3.1.5.1.6.3 is printed. One receipt that was given up stops the stream for ever."""

    def stored(self, ordinal: int, position: int, now: float) -> None:
        if position:
            super().stored(ordinal, position, now)

    def receipt_failed(self, now: float, retransmission_timeout: float, permanent: bool) -> None:
        super().receipt_failed(now, retransmission_timeout, True)


class RefusedPositionLeavesTrace(Receiver):
    """The identifier of a refused position enters the history: the repeat that would fit is then a duplicate."""

    def receive(self, message: Message, arrival: Arrival, now: float) -> Refused | Pending:
        outcome = super().receive(message, arrival, now)
        if isinstance(outcome, Repeated) and outcome.kind == "gap":
            self.history.add(message.lineage, message.uniquifier, arrival.at)
        return outcome


class QuotaAfterIdentifier(Receiver):
    """The identifier is remembered before the quota is asked: the repeat of what was answered 503 is a duplicate."""

    def _not_now(self, queue: QueueState, message: Message, arrival: Arrival) -> Refused | None:
        refused = super()._not_now(queue, message, arrival)
        if refused is not None:
            self.history.add(message.lineage, message.uniquifier, arrival.at)
        return refused


class HistoryByWallClock(Receiver):
    """Identifiers expire by the wall clock: an operator who sets it ahead makes everything new."""

    def _received_at(self, arrival: Arrival, now: float) -> int:
        self.history.expire(arrival.at)
        return arrival.at


class RepeatsExpire(Receiver):
    """A message that has its row is too late when it comes again: its sender is told that it expired."""

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
    """The time that a message needs from us on is taken from its own: discarded although it came in time."""

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
