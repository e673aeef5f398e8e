"""Planted bugs which the simulator must find (``tests/wsrm``).

Each class is a source or a destination, or a part of one, with one fault. The docstring of the
class states the faulty behaviour. :mod:`tests.kit.wsrm` explains the words.
"""
# ruff: noqa: D102  # the docstring of each class states what its methods do wrong

from __future__ import annotations

from collections.abc import Callable, Iterable

from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.wsrm.codec.elements import (
    ABSENT,
    CreateSequence,
    Range,
    SequenceAcknowledgement,
    SoapMessage,
)
from srmp_spark.wsrm.limits import WINDOW_MAX
from srmp_spark.wsrm.receiving.destination import RmDestination
from srmp_spark.wsrm.receiving.destination_effects import (
    Durable,
    InOrderMessage,
    Output,
    ReceiveDecision,
    Respond,
    SequenceRow,
)
from srmp_spark.wsrm.receiving.flow_control import FlowControlObject
from srmp_spark.wsrm.receiving.inbound_sequence import InboundSequence
from srmp_spark.wsrm.sending.polling import Polling
from srmp_spark.wsrm.sending.source import RmSource, SourceRow
from srmp_spark.wsrm.sending.source_effects import Event, RmSourceSettings, Transmit
from srmp_spark.wsrm.sending.source_effects import Output as SourceOutput

# --- flow control at the source -------------------------------------------------------------------


class NoQuota(Polling):
    """Sends all messages as soon as BufferRemaining is above 0."""

    __slots__ = ()

    def allows(self, in_flight: int) -> bool:
        return super().allows(0)


class OneTooMany(Polling):
    """Has one message more in flight than BufferRemaining allows."""

    __slots__ = ()

    def allows(self, in_flight: int) -> bool:
        return super().allows(in_flight - 1)


class SendsWhilePolling(Polling):
    """Starts the timer when BufferRemaining is 0, and sends on."""

    __slots__ = ()

    def allows(self, in_flight: int) -> bool:
        return True


class NeverPolls(Polling):
    """Never polls. If the acknowledgement with new room is lost, the source waits forever."""

    __slots__ = ()

    def polling_timer_expired(self, now: float) -> bool:
        return super().polling_timer_expired(now) and False


class PollsOnce(Polling):
    """Polls once and does not restart the timer."""

    __slots__ = ()

    def polling_timer_expired(self, now: float) -> bool:
        expired = super().polling_timer_expired(now)
        if expired:
            self.timer_at = None
        return expired


class PollsOn(Polling):
    """Does not stop the timer when the destination reports room."""

    __slots__ = ()

    def polling_timer_expired(self, now: float) -> bool:
        if self.timer_at is None or now < self.timer_at:
            return False
        self.timer_at = now + self.interval
        return True

    def seq_ack_received(self, buffer_remaining: int, now: float) -> None:
        before = self.timer_at
        super().seq_ack_received(buffer_remaining, now)
        self.timer_at = self.timer_at or before


class MissingIsZero(Polling):
    """Treats an acknowledgement without BufferRemaining as BufferRemaining 0, and stops sending."""

    __slots__ = ()

    def seq_ack_received(self, buffer_remaining: int, now: float) -> None:
        super().seq_ack_received(max(buffer_remaining, 0), now)


# --- sources --------------------------------------------------------------------------------------


class OldAcknowledgementCounts(RmSource):
    """Uses the BufferRemaining of an acknowledgement that a newer one has overtaken."""

    def _acknowledged(self, ack: SequenceAcknowledgement, now: float) -> list[Event]:
        if self._takes_back(ack.ranges):
            self.polling.seq_ack_received(ack.buffer_remaining, now)
        return super()._acknowledged(ack, now)


class NewestBelieved(RmSource):
    """Takes the messages in flight from each acknowledgement, also from one that is outdated."""

    def _takes_back(self, ranges: tuple[Range, ...]) -> bool:
        return False

    def _acknowledged(self, ack: SequenceAcknowledgement, now: float) -> list[Event]:
        upper = ack.ranges[-1][1] if ack.ranges else 0
        for number in range(upper + 1, self.sent + 1):
            if number not in self.in_flight:
                runs = [*self.in_flight, (number, number)]
                self.in_flight = type(self.in_flight)(sorted(runs))
                self._resends.set(number, now + 1.0)
        return super()._acknowledged(ack, now)


class NeverSendsAgain(RmSource):
    """Never resends a message that was lost."""

    def poll(
        self,
        now: float,
        has: Callable[[int], bool] = lambda number: True,
        *,
        new_max: int = WINDOW_MAX,
    ) -> list[SourceOutput]:
        outputs = super().poll(now, has, new_max=new_max)
        return [each for each in outputs if not (isinstance(each, Transmit) and each.is_again)]


class PollingForgotten(RmSource):
    """Sends after a restart without polling first."""

    @classmethod
    def restored(cls, settings: RmSourceSettings, row: SourceRow, now: float) -> RmSource:
        return super().restored(settings, row._replace(buffer_remaining=ABSENT), now)


class EndsEarly(RmSource):
    """Ends the sequence when all messages were sent, without waiting for those in flight."""

    def _end(self, now: float) -> list[Event]:
        if self.state.name == "ENDING" and self.sent == self.assigned:
            self.in_flight.remove(1, self.sent)
        return super()._end(now)


class NumbersUsedTwice(RmSource):
    """Continues after a restart with a number that may have been sent already."""

    @classmethod
    def restored(cls, settings: RmSourceSettings, row: SourceRow, now: float) -> RmSource:
        sent = max(row.sent - 1, 0)
        in_flight = tuple(
            (first, min(last, sent)) for first, last in row.in_flight if first <= sent
        )
        return super().restored(settings, row._replace(sent=sent, in_flight=in_flight), now)


# --- sequences and destinations -------------------------------------------------------------------


class AcknowledgesWhatItDecided(InboundSequence):
    """Acknowledges messages before the sync has made them durable."""

    __slots__ = ()

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        if self.durable is not None:
            # ``__new__`` avoids the proof of a commit that the constructor demands.
            self.durable = Durable.__new__(Durable)
            self.durable.number = self.accepted
        return super().acknowledgement(buffer_remaining)


class AcknowledgesWhatItHolds(InboundSequence):
    """Acknowledges messages after a gap, which are held in memory only."""

    __slots__ = ()

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        ack = super().acknowledgement(buffer_remaining)
        held = tuple((number, number) for number in sorted(self.held))
        return SequenceAcknowledgement(
            ack.identifier, (*ack.ranges, *held), (), ack.is_final, ack.buffer_remaining
        )


class AnyOrder(InboundSequence):
    """Delivers held messages before the message that filled the gap."""

    __slots__ = ()

    def take(self, delivery: InOrderMessage) -> list[InOrderMessage]:
        return super().take(delivery)[::-1]


class DeliversTwice(InboundSequence):
    """Treats a copy of a held message, or of the last accepted one, as a new message."""

    __slots__ = ()

    def knows(self, number: int) -> bool:
        return number < self.accepted


class GapsAccepted(InboundSequence):
    """Accepts a message after a gap as if it were the next one."""

    __slots__ = ()

    def hold(self, delivery: InOrderMessage) -> None:
        self.accepted = delivery.number


class CopiesLowerTheValue(RmDestination):
    """Reduces the room of the queue for each copy of a message."""

    held_back = 0

    def receive(
        self,
        message: SoapMessage,
        payload: object,
        now: float,
        utc: int,
        owner: str = "",
        client: str | None = None,
    ) -> ReceiveDecision:
        received = super().receive(message, payload, now, utc, owner, client)
        if message.sequence is not None and not received.deliveries:
            self.flow.message_received()
            self.held_back += 1
        return received

    def set_room(self, room: int) -> list[Output]:
        return super().set_room(max(room - self.held_back, 0))


class NeverTellsOfRoom(RmDestination):
    """Sends no acknowledgement when room returns, so that each source must poll."""

    def set_room(self, room: int) -> list[Output]:
        super().set_room(room)
        return []


class RoomOfYesterday(FlowControlObject):
    """Lets SET_BUFFER_REMAINING raise the value and never lower it."""

    __slots__ = ()

    def set_buffer_remaining(self, new: int) -> None:
        super().set_buffer_remaining(max(new, self._remaining))


class NoBufferRemaining(InboundSequence):
    """Sends every acknowledgement without the BufferRemaining element."""

    __slots__ = ()

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        super().acknowledgement(buffer_remaining)
        return super().acknowledgement(ABSENT)


class CreatesTwice(RmDestination):
    """Creates a second sequence when a CreateSequence is repeated."""

    def receive(
        self,
        message: SoapMessage,
        payload: object,
        now: float,
        utc: int,
        owner: str = "",
        client: str | None = None,
    ) -> ReceiveDecision:
        if isinstance(message.content, CreateSequence):
            self._created.clear()
        return super().receive(message, payload, now, utc, owner, client)


class RestartForgets(RmDestination):
    """Forgets the last accepted message of each sequence at a restart, and accepts its copy."""

    def restore(
        self,
        rows: Iterable[SequenceRow],
        proof: Committed,
        now: float,
        utc: int,
        owner: str = "",
        client: str | None = None,
    ) -> None:
        lost = [row._replace(accepted=max(row.accepted - 1, 0)) for row in rows]
        super().restore(lost, proof, now, utc, owner, client)


class SilentToAddresses(RmDestination):
    """Sends no acknowledgement to sources that have an address of their own."""

    def poll(self, now: float, utc: int) -> list[Output]:
        super().poll(now, utc)
        return []

    def committed(self, received: object, proof: Committed, now: float) -> list[list[Output]]:
        # ``received`` is passed on as it was received.
        answers = super().committed(received, proof, now)  # type: ignore[arg-type]
        return [[each for each in outputs if isinstance(each, Respond)] for outputs in answers]


def _polls_as(polling: type[Polling]) -> type[RmSource]:
    return type("Faulty", (RmSource,), {"polling_class": polling})


def _destination_with(**parts: type[object]) -> type[RmDestination]:
    return type("Faulty", (RmDestination,), dict(parts))


PLANTED_SOURCES: dict[str, type[RmSource]] = {
    **{
        each.__name__: _polls_as(each)
        for each in (
            NoQuota,
            OneTooMany,
            SendsWhilePolling,
            NeverPolls,
            PollsOnce,
            PollsOn,
            MissingIsZero,
        )
    },
    **{
        each.__name__: each
        for each in (
            OldAcknowledgementCounts,
            NewestBelieved,
            NeverSendsAgain,
            PollingForgotten,
            EndsEarly,
            NumbersUsedTwice,
        )
    },
}
PLANTED_DESTINATIONS: dict[str, type[RmDestination]] = {
    **{
        each.__name__: _destination_with(sequence_class=each)
        for each in (
            AcknowledgesWhatItDecided,
            AcknowledgesWhatItHolds,
            AnyOrder,
            DeliversTwice,
            GapsAccepted,
            NoBufferRemaining,
        )
    },
    "RoomOfYesterday": _destination_with(flow_class=RoomOfYesterday),
    **{
        each.__name__: each
        for each in (
            CopiesLowerTheValue,
            NeverTellsOfRoom,
            CreatesTwice,
            RestartForgets,
            SilentToAddresses,
        )
    },
}
