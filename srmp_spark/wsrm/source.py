"""The source (RMS) of one sequence: what leaves when, and what counts as acknowledged.

Theory of operation. Numbers are given by :meth:`Source.send` in order. A *new* message (a number that never left) leaves while
three things allow it: the source is not POLLING ([MS-WSRVCRM] 3.2.1.2), the window is not full, and fewer messages are
unacknowledged than the destination said it has room for. The last is more than 3.2 asks for, which lets a source send freely
at any value above 0, and is what WCF does. A message that left goes again until it is acknowledged, also while POLLING, each
time with AckRequested: Metro tells an acknowledgement once, and CXF answers a copy but not a bare AckRequested.

An acknowledgement tells everything that arrived, so one that lacks something an earlier one had is older, and nothing of it
counts; its BufferRemaining would be old, too. One with numbers that never left cannot be true. Of two that tell the same,
neither is known to be older, and each counts: a 0 that is out of date costs one poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from srmp_spark.errors import LocalProtocolError
from srmp_spark.timers import Timers
from srmp_spark.wsrm.elements import (
    ABSENT,
    AckRequested,
    CloseSequence,
    CloseSequenceResponse,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    Fault,
    Sequence,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.faults import FaultCode, code_of
from srmp_spark.wsrm.limits import NUMBER_MAX
from srmp_spark.wsrm.namespaces import RmVersion
from srmp_spark.wsrm.outgoing_states import ENDS, SourceEvent, SourceState, moved
from srmp_spark.wsrm.polling_states import Polling
from srmp_spark.wsrm.rm_reader import merged
from srmp_spark.wsrm.source_effects import (
    END_TRIES,
    Acknowledged,
    AcknowledgementRefused,
    Ended,
    Failed,
    OutgoingMessage,
    Output,
    Purpose,
    SourceRecord,
    SourceSettings,
    Transmit,
)

_CONTROL = 0
"""The key of the timer of CreateSequence, CloseSequence and TerminateSequence; messages have their numbers."""
_GONE = (
    FaultCode.UNKNOWN_SEQUENCE, FaultCode.SEQUENCE_TERMINATED, FaultCode.SEQUENCE_CLOSED,
    FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED, FaultCode.MESSAGE_NUMBER_ROLLOVER,
)  # fmt: skip
_TRIES_COUNTED = 16
"""Doublings of a wait: more would be beyond any longest wait."""


@dataclass(slots=True)
class _InFlight:
    """A message that left."""

    message: OutgoingMessage
    tries: int = 0


class Source:
    """One outgoing sequence. ``now`` is monotonic seconds."""

    def __init__(
        self, settings: SourceSettings, record: SourceRecord, now: float, *, new_message_id: Callable[[], str],
        messages: Iterable[OutgoingMessage] = (),
    ) -> None:  # fmt: skip
        """``messages`` are those of ``record`` that are not acknowledged."""
        self._settings = settings
        self._new_message_id = new_message_id
        self._state = record.state
        self._record = record
        self._polling = Polling(settings.poll_interval, record.polling, now)
        self._granted = record.granted
        self._sent = record.sent
        self._acknowledged = record.acknowledged
        self._last_number = record.last_number
        self._is_finished = record.is_finished
        self._in_flight: dict[int, _InFlight] = {}
        self._unsent: dict[int, OutgoingMessage] = {}
        self._timers: Timers[int] = Timers()
        self._tries = 0
        for message in sorted(messages, key=lambda each: each.number):
            if message.number <= self._sent:
                self._in_flight[message.number] = _InFlight(message)
                self._timers.set(message.number, now)
            else:
                self._unsent[message.number] = message
        if self._state not in (SourceState.OPEN, *ENDS):
            self._timers.set(_CONTROL, now)

    @property
    def record(self) -> SourceRecord:
        """What is to be kept. A message may leave when the record that has its number as ``sent`` is stored."""
        return replace(
            self._record, state=self._state, acknowledged=self._acknowledged, sent=self._sent, granted=self._granted,
            polling=self._polling.state, is_finished=self._is_finished, last_number=self._last_number,
        )  # fmt: skip

    @property
    def unacknowledged(self) -> tuple[OutgoingMessage, ...]:
        """In the order of their numbers."""
        return (*(each.message for _, each in sorted(self._in_flight.items())), *self._unsent.values())

    # --- the application --------------------------------------------------------------------------------------------------

    def send(self, action: str, body: bytes, now: float) -> tuple[OutgoingMessage, list[Output]]:
        """The message with its number, and what leaves now. Raises :class:`LocalProtocolError` after :meth:`finish`."""
        if self._is_finished or self._state in ENDS:
            raise LocalProtocolError("the sequence takes no more messages")
        message = self._give_number(action, body, is_last=False)
        return message, self._new_messages(now)

    def finish(self, now: float) -> list[Output]:
        """Nothing more will come. In 1.0 a last message without content says so, if there were any."""
        if self._is_finished or self._state in ENDS:
            return []
        if self._settings.rm is RmVersion.V1_0 and self._last_number:
            self._give_number(RmVersion.V1_0.action("LastMessage"), b"", is_last=True)
        self._is_finished = True
        return self._new_messages(now) + self._end_if_done(now)

    def _give_number(self, action: str, body: bytes, *, is_last: bool) -> OutgoingMessage:
        if self._last_number >= NUMBER_MAX - 1:  # one is kept for LastMessage
            raise LocalProtocolError("a sequence has no more numbers; begin a new one")
        self._last_number += 1
        message = OutgoingMessage(self._last_number, action, body, self._new_message_id(), is_last)
        self._unsent[message.number] = message
        return message

    # --- the peer ---------------------------------------------------------------------------------------------------------

    def receive(self, message: SoapMessage, now: float) -> list[Output]:
        """An answer of the service, or what it sent to AcksTo."""
        if self._state in ENDS:
            return []
        out: list[Output] = []
        if self._state is not SourceState.CREATING:
            for ack in message.acknowledgements:
                if ack.identifier == self._record.identifier and self._state not in ENDS:
                    out += self._acknowledge(ack, now)
        content = message.content
        if isinstance(content, Fault):
            out += self._fault(content, message.relates_to)
        elif isinstance(content, CreateSequenceResponse):
            if self._state is SourceState.CREATING and message.relates_to == self._record.create_id:
                self._record = replace(self._record, identifier=content.identifier)
                self._move(SourceEvent.CREATED)
                out += self._new_messages(now) + self._end_if_done(now)
        elif content == CloseSequenceResponse(self._record.identifier) and self._state is SourceState.CLOSING:
            out += self._begin(SourceEvent.TERMINATE, now)
        elif content == TerminateSequenceResponse(self._record.identifier) and self._state is SourceState.TERMINATING:
            out += self._over(SourceEvent.ENDED)
        return out

    def accepted(self, purpose: Purpose) -> list[Output]:
        """An answer without content. It is all that 1.0 says to TerminateSequence; it acknowledges nothing."""
        is_end = purpose is Purpose.TERMINATE and self._settings.rm is RmVersion.V1_0
        return self._over(SourceEvent.ENDED) if is_end and self._state is SourceState.TERMINATING else []

    def _acknowledge(self, ack: SequenceAcknowledgement, now: float) -> list[Output]:
        if any(upper > self._sent for _, upper in ack.ranges) or any(nack > self._sent for nack in ack.nacks):
            return [AcknowledgementRefused(f"it tells of numbers up to {max(ack.nacks, default=0) or ack.ranges[-1][1]}, "
                                           f"and {self._sent} is the last that left")]  # fmt: skip
        if ack.nacks:
            return self._nacked(ack, now)
        if merged((*self._acknowledged, *ack.ranges)) != ack.ranges:
            return []  # an older one
        arrived = tuple(number for number in sorted(self._in_flight) if _covers(ack, number))
        for number in arrived:
            del self._in_flight[number]
            self._timers.set(number, None)
        self._acknowledged = ack.ranges
        self._told(ack.buffer_remaining, now)
        out: list[Output] = [Acknowledged(arrived)] if arrived else []
        if ack.is_final and (self._in_flight or self._unsent):
            return out + self._gone("the destination closed the sequence")
        return out + self._new_messages(now) + self._end_if_done(now)

    def _nacked(self, ack: SequenceAcknowledgement, now: float) -> list[Output]:
        """Those are wanted now. It says nothing of what arrived."""
        self._told(ack.buffer_remaining, now)
        wanted = [number for number in sorted(set(ack.nacks)) if number in self._in_flight]
        return [self._transmit(self._in_flight[number], now) for number in wanted] + self._new_messages(now)

    def _told(self, buffer_remaining: int, now: float) -> None:
        self._polling.acknowledged(buffer_remaining, now)
        if buffer_remaining != ABSENT:
            self._granted = buffer_remaining

    def _fault(self, fault: Fault, relates_to: str) -> list[Output]:
        code = code_of(fault)
        if self._state is SourceState.CREATING:
            is_ours = code is FaultCode.CREATE_SEQUENCE_REFUSED and relates_to in ("", self._record.create_id)
            return self._gone(fault.reason or "CreateSequenceRefused") if is_ours else []
        if code in _GONE and fault.identifier == self._record.identifier:
            return self._gone(fault.reason or "the destination gave the sequence up")
        return []

    # --- time -------------------------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When :meth:`due` wants to be called, at the earliest."""
        return min((when for when in (self._timers.next(), self._polling.deadline) if when is not None), default=None)

    def due(self, now: float) -> list[Output]:
        """What goes again, and POLLING_TIMER."""
        out: list[Output] = []
        for key in sorted(self._timers.due(now)):
            out += self._control(now) if key == _CONTROL else [self._transmit(self._in_flight[key], now)]
        if self._polling.expired(now):
            ask = (AckRequested(self._record.identifier),)
            message = self._request(self._settings.rm.action("AckRequested"), ack_requested=ask)
            out.append(Transmit(Purpose.POLL, message))
        return out

    def _wait(self, tries: int) -> float:
        return min(self._settings.resend_first * 2.0 ** min(tries, _TRIES_COUNTED), self._settings.resend_max)

    # --- what leaves ------------------------------------------------------------------------------------------------------

    def _may_send(self) -> bool:
        in_flight = len(self._in_flight)
        return (
            self._state is SourceState.OPEN
            and self._polling.deadline is None
            and in_flight < self._settings.window
            and (self._granted is None or in_flight < self._granted)
        )

    def _new_messages(self, now: float) -> list[Output]:
        out: list[Output] = []
        while self._unsent and self._may_send():
            number = next(iter(self._unsent))
            self._sent = number
            in_flight = self._in_flight[number] = _InFlight(self._unsent.pop(number))
            out.append(self._transmit(in_flight, now))
        return out

    def _transmit(self, in_flight: _InFlight, now: float) -> Transmit:
        message, identifier = in_flight.message, self._record.identifier
        is_wanted = in_flight.tries > 0 or not self._may_send()  # nothing follows that could bring an acknowledgement
        self._timers.set(message.number, now + self._wait(in_flight.tries))
        in_flight.tries += 1
        soap = self._request(
            message.action, message_id=message.message_id, body=message.body,
            sequence=Sequence(identifier, message.number, message.is_last),
            ack_requested=(AckRequested(identifier),) if is_wanted else (),
        )  # fmt: skip
        return Transmit(Purpose.MESSAGE, soap, message.number)

    def _request(self, action: str, **more: object) -> SoapMessage:
        settings = self._settings
        fields = {
            "soap": settings.soap,
            "addressing": settings.addressing,
            "rm": settings.rm,
            "action": action,
            "to": settings.to,
        }
        return SoapMessage(**(fields | more))  # type: ignore[arg-type]

    def _control(self, now: float) -> list[Output]:
        """CreateSequence, CloseSequence or TerminateSequence, the first time or again."""
        state, identifier = self._state, self._record.identifier
        if state is not SourceState.CREATING and self._tries >= END_TRIES:
            return self._begin(SourceEvent.TERMINATE, now) if state is SourceState.CLOSING else self._over(SourceEvent.ENDED)
        last = (self._last_number or None) if self._settings.rm is RmVersion.V1_1 else None
        anonymous = EndpointReference(self._settings.addressing.anonymous)
        content: Content
        if state is SourceState.CREATING:
            purpose, content = Purpose.CREATE, CreateSequence(self._settings.acks_to or anonymous)
        elif state is SourceState.CLOSING:
            purpose, content = Purpose.CLOSE, CloseSequence(identifier, last)
        else:
            purpose, content = Purpose.TERMINATE, TerminateSequence(identifier, last)
        self._timers.set(_CONTROL, now + self._wait(self._tries))
        self._tries += 1
        message_id = self._record.create_id if purpose is Purpose.CREATE else self._new_message_id()
        action = self._settings.rm.action(type(content).__name__)
        return [Transmit(purpose, self._request(action, message_id=message_id, reply_to=anonymous, content=content))]

    # --- ends -------------------------------------------------------------------------------------------------------------

    def _end_if_done(self, now: float) -> list[Output]:
        if self._state is not SourceState.OPEN or not self._is_finished or self._in_flight or self._unsent:
            return []
        is_new = self._settings.rm is RmVersion.V1_1
        return self._begin(SourceEvent.CLOSE if is_new else SourceEvent.TERMINATE, now)

    def _begin(self, event: SourceEvent, now: float) -> list[Output]:
        self._move(event)
        return self._control(now)

    def _move(self, event: SourceEvent) -> None:
        self._state = moved(self._state, event)
        self._timers.set(_CONTROL, None)
        self._tries = 0
        if self._state in (SourceState.TERMINATING, *ENDS):
            self._polling.terminated()

    def _over(self, event: SourceEvent) -> list[Output]:
        self._move(event)
        return [Ended()]

    def _gone(self, why: str) -> list[Output]:
        self._move(SourceEvent.GONE)
        if self._state is SourceState.OVER:
            return [Ended()]
        for number in self._in_flight:
            self._timers.set(number, None)
        return [Failed(why, tuple(sorted(self._in_flight)), tuple(self._unsent))]


def _covers(ack: SequenceAcknowledgement, number: int) -> bool:
    return any(lower <= number <= upper for lower, upper in ack.ranges)
