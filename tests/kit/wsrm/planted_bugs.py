"""Bugs that somebody could write one day, to see that the simulator catches them (``tests/wsrm``).

Each is a source or a destination with one fault; the docstring says what it does to whom.
"""
# ruff: noqa: D102  # the class says what is wrong with its one method

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
from srmp_spark.wsrm.receiving.destination import Destination
from srmp_spark.wsrm.receiving.destination_effects import (
    Delivery,
    Durable,
    Output,
    Received,
    Respond,
    SequenceRow,
)
from srmp_spark.wsrm.receiving.flow_control import FlowControlObject
from srmp_spark.wsrm.receiving.inbound_sequence import InboundSequence
from srmp_spark.wsrm.sending.polling import Polling
from srmp_spark.wsrm.sending.source import Source, SourceRow
from srmp_spark.wsrm.sending.source_effects import Event, SourceSettings, Transmit
from srmp_spark.wsrm.sending.source_effects import Output as SourceOutput

# --- flow control at the source ---------------------------------------------------------------------------------------------


class NoQuota(Polling):
    """Any value above 0 lets everything out."""

    __slots__ = ()

    def allows(self, in_flight: int) -> bool:
        return super().allows(0)


class OneTooMany(Polling):
    """The value itself is on its way, and one more."""

    __slots__ = ()

    def allows(self, in_flight: int) -> bool:
        return super().allows(in_flight - 1)


class SendsWhilePolling(Polling):
    """0 starts the timer and stops nothing."""

    __slots__ = ()

    def allows(self, in_flight: int) -> bool:
        return True


class NeverPolls(Polling):
    """Whoever misses the acknowledgement with room waits for ever."""

    __slots__ = ()

    def polling_timer_expired(self, now: float) -> bool:
        return super().polling_timer_expired(now) and False


class PollsOnce(Polling):
    """The timer is not started again."""

    __slots__ = ()

    def polling_timer_expired(self, now: float) -> bool:
        expired = super().polling_timer_expired(now)
        if expired:
            self.timer_at = None
        return expired


class PollsOn(Polling):
    """Room does not stop the timer."""

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
    """A destination without the element stops everything."""

    __slots__ = ()

    def seq_ack_received(self, buffer_remaining: int, now: float) -> None:
        super().seq_ack_received(max(buffer_remaining, 0), now)


# --- sources ----------------------------------------------------------------------------------------------------------------


class OldAcknowledgementCounts(Source):
    """The BufferRemaining of an acknowledgement that was overtaken is believed."""

    def _acknowledged(self, ack: SequenceAcknowledgement, now: float) -> list[Event]:
        if self._takes_back(ack.ranges):
            self.polling.seq_ack_received(ack.buffer_remaining, now)
        return super()._acknowledged(ack, now)


class NewestBelieved(Source):
    """Each acknowledgement says what is on its way, older ones too."""

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


class NeverSendsAgain(Source):
    """What is lost is lost."""

    def poll(
        self,
        now: float,
        has: Callable[[int], bool] = lambda number: True,
        *,
        new_max: int = WINDOW_MAX,
    ) -> list[SourceOutput]:
        outputs = super().poll(now, has, new_max=new_max)
        return [each for each in outputs if not (isinstance(each, Transmit) and each.is_again)]


class PollingForgotten(Source):
    """After a restart it sends before it has asked."""

    @classmethod
    def restored(cls, settings: SourceSettings, row: SourceRow, now: float) -> Source:
        return super().restored(settings, row._replace(buffer_remaining=ABSENT), now)


class EndsEarly(Source):
    """The end waits for what waits, and not for what is on its way."""

    def _end(self, now: float) -> list[Event]:
        if self.state.name == "ENDING" and self.sent == self.assigned:
            self.in_flight.remove(1, self.sent)
        return super()._end(now)


class NumbersUsedTwice(Source):
    """A restart goes on with a number that may have left."""

    @classmethod
    def restored(cls, settings: SourceSettings, row: SourceRow, now: float) -> Source:
        sent = max(row.sent - 1, 0)
        in_flight = tuple(
            (first, min(last, sent)) for first, last in row.in_flight if first <= sent
        )
        return super().restored(settings, row._replace(sent=sent, in_flight=in_flight), now)


# --- sequences and destinations ---------------------------------------------------------------------------------------------


class AcknowledgesWhatItDecided(InboundSequence):
    """An acknowledgement does not wait for the sync."""

    __slots__ = ()

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        if self.durable is not None:
            self.durable = Durable.__new__(Durable)  # past the proof
            self.durable.number = self.accepted
        return super().acknowledgement(buffer_remaining)


class AcknowledgesWhatItHolds(InboundSequence):
    """What waits behind a gap is acknowledged, and only in memory."""

    __slots__ = ()

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        ack = super().acknowledgement(buffer_remaining)
        held = tuple((number, number) for number in sorted(self.held))
        return SequenceAcknowledgement(
            ack.identifier, (*ack.ranges, *held), (), ack.is_final, ack.buffer_remaining
        )


class AnyOrder(InboundSequence):
    """What waits behind a gap is delivered before what it waits for."""

    __slots__ = ()

    def take(self, delivery: Delivery) -> list[Delivery]:
        return super().take(delivery)[::-1]


class DeliversTwice(InboundSequence):
    """What was held is delivered when it comes again, too."""

    __slots__ = ()

    def knows(self, number: int) -> bool:
        return number < self.accepted


class GapsAccepted(InboundSequence):
    """A message that comes too early is the next one."""

    __slots__ = ()

    def hold(self, delivery: Delivery) -> None:
        self.accepted = delivery.number


class CopiesLowerTheValue(Destination):
    """Each copy takes room."""

    held_back = 0

    def receive(
        self,
        message: SoapMessage,
        payload: object,
        now: float,
        utc: int,
        owner: str = "",
        client: str | None = None,
    ) -> Received:
        received = super().receive(message, payload, now, utc, owner, client)
        if message.sequence is not None and not received.deliveries:
            self.flow.message_received()
            self.held_back += 1
        return received

    def set_room(self, room: int) -> list[Output]:
        return super().set_room(max(room - self.held_back, 0))


class NeverTellsOfRoom(Destination):
    """Whoever was told 0 must ask."""

    def set_room(self, room: int) -> list[Output]:
        super().set_room(room)
        return []


class RoomOfYesterday(FlowControlObject):
    """SET_BUFFER_REMAINING only raises the value."""

    __slots__ = ()

    def set_buffer_remaining(self, new: int) -> None:
        super().set_buffer_remaining(max(new, self._remaining))


class NoBufferRemaining(InboundSequence):
    """Acknowledgements without the element."""

    __slots__ = ()

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        super().acknowledgement(buffer_remaining)
        return super().acknowledgement(ABSENT)


class CreatesTwice(Destination):
    """A repeated CreateSequence makes a second sequence."""

    def receive(
        self,
        message: SoapMessage,
        payload: object,
        now: float,
        utc: int,
        owner: str = "",
        client: str | None = None,
    ) -> Received:
        if isinstance(message.content, CreateSequence):
            self._created.clear()
        return super().receive(message, payload, now, utc, owner, client)


class RestartForgets(Destination):
    """What was accepted before a restart is accepted once more."""

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


class SilentToAddresses(Destination):
    """Nobody with an address ever hears what arrived."""

    def poll(self, now: float, utc: int) -> list[Output]:
        super().poll(now, utc)
        return []

    def committed(self, received: object, proof: Committed, now: float) -> list[list[Output]]:
        answers = super().committed(received, proof, now)  # type: ignore[arg-type]  # as it came
        return [[each for each in outputs if isinstance(each, Respond)] for outputs in answers]


def _polls_as(polling: type[Polling]) -> type[Source]:
    return type("Faulty", (Source,), {"polling_class": polling})


def _destination_with(**parts: type[object]) -> type[Destination]:
    return type("Faulty", (Destination,), dict(parts))


PLANTED_SOURCES: dict[str, type[Source]] = {
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
PLANTED_DESTINATIONS: dict[str, type[Destination]] = {
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
