"""Send one sequence: decide when each message is sent, and what an acknowledgement proves.

Theory of operation. Messages get their numbers in order (:meth:`RmSource.enqueue`) and are sent in
that order. The window, and the room that the destination announced (:mod:`.polling`), limit the
messages at a time. A number is *in flight* from its first sending until it is acknowledged.
Meanwhile its message is sent again with growing pauses, each time with AckRequested. (Metro sends
each acknowledgement once. CXF answers a repeated message, but no AckRequested that is alone. A
repeated message with AckRequested satisfies both.)

An acknowledgement names all messages that the destination has, and the destination never gives a
message back. So each acknowledgement names more than the one before it, or it is an older one that
was delayed. An older one is ignored, with its BufferRemaining. An acknowledgement is invalid if it
names a number that was never sent, or if it lacks old numbers and adds new ones. An invalid one
finishes no message (WS-ReliableMessaging 4, InvalidAcknowledgement).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.sequences.ranges import gaps
from srmp_spark.srmp.sending.serial_runs import SerialRuns
from srmp_spark.timers import Timers
from srmp_spark.transitions import next_state
from srmp_spark.wsrm.codec.elements import (
    ABSENT,
    AckRequested,
    CloseSequence,
    CloseSequenceResponse,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    Range,
    Sequence,
    SequenceAcknowledgement,
    SoapFault,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.faults import code_of
from srmp_spark.wsrm.codec.namespaces import RmVersion
from srmp_spark.wsrm.limits import NUMBER_MAX, WINDOW_MAX
from srmp_spark.wsrm.sending.polling import Polling
from srmp_spark.wsrm.sending.source_effects import (
    Acknowledged,
    Control,
    Event,
    Output,
    RmSourceSettings,
    SequenceEnded,
    SequenceOpened,
    Suspicious,
    Transmit,
)
from srmp_spark.wsrm.sending.source_states import (
    EXISTS,
    OVER,
    SENDS_MESSAGES,
    TRANSITIONS,
    RmSourceEvent,
    RmSourceState,
)


class SourceRow(NamedTuple):
    """The state of one sequence at its source, as stored for the next start.

    ``in_flight`` are the ranges of numbers in flight, both bounds included.
    """

    create_id: str
    identifier: str
    state: RmSourceState
    assigned: int
    """Highest number that was assigned to a message; 0 for none."""
    sent: int
    """Highest number whose message was sent at least once; 0 for none."""
    in_flight: tuple[Range, ...]
    buffer_remaining: int
    last_number: int
    """Number of the LastMessage of 1.0, or 0 if there is none."""
    is_ending: bool


class RmSource:
    """Sends one sequence, without I/O.

    ``create_id`` is the MessageID of its CreateSequence and must be unique forever. In all methods
    ``now`` is in seconds of the monotonic clock. A *number* is the number of a message in the
    sequence.
    """

    polling_class: type[Polling] = Polling

    def __init__(self, settings: RmSourceSettings, create_id: str, now: float) -> None:
        self.settings = settings
        self.create_id = create_id
        self.identifier = ""
        self.state = RmSourceState.CREATING
        self.assigned = self.sent = self.last_number = 0
        self.in_flight = SerialRuns()
        self.polling = self.polling_class(settings.poll_interval)
        self._is_ending = False
        self._resends: Timers[int] = Timers()
        self._tries: dict[int, int] = {}
        self._unsure: set[int] = set()
        """Numbers in flight after a restart, which may never have been sent.

        Their messages are treated as new ones: sent when there is room, before any new message.
        """
        self._armed = 0
        self._control_at: float | None = now
        """Time at which a protocol message is sent (again), or ``None`` for never.

        The message is CreateSequence, CloseSequence or TerminateSequence, by the state.
        """
        self._control_tries = 0

    @classmethod
    def restored(cls, settings: RmSourceSettings, row: SourceRow, now: float) -> RmSource:
        """Return the source with the state of ``row``, after a restart.

        Messages that were in flight are sent again when there is room by the last BufferRemaining
        of ``row``, or at once if the peer never announced its room.
        """
        source = cls(settings, row.create_id, now)
        source.identifier, source.state = row.identifier, row.state
        source.assigned, source.sent, source.last_number = row.assigned, row.sent, row.last_number
        source.in_flight = SerialRuns(row.in_flight)
        source._is_ending = row.is_ending
        for first, last in row.in_flight:
            source._unsure.update(range(first, last + 1))
        source.polling = cls.polling_class.restored(
            row.buffer_remaining, now, settings.poll_interval
        )
        source._arm_unsure(now)
        if row.state in OVER:
            source.polling.seq_terminated(now)
        if row.state in (*SENDS_MESSAGES, *OVER):
            source._control_at = None
        return source

    def row(self) -> SourceRow:
        """Return the state as a database row for the store."""
        return SourceRow(
            self.create_id,
            self.identifier,
            self.state,
            self.assigned,
            self.sent,
            tuple(self.in_flight),
            self.polling.buffer_remaining,
            self.last_number,
            self._is_ending,
        )

    # --- what the application does ----------------------------------------------------------------

    def enqueue(self, count: int = 1) -> Range:
        """Assign numbers to ``count`` messages, and return the first and the last of them.

        :meth:`poll` sends the messages when it may. Raises :class:`LocalProtocolError` if the
        sequence is ending or over, or its numbers are used up.
        """
        if self._is_ending or self.state in OVER:
            raise LocalProtocolError("the sequence takes no more messages; begin a new one")
        # One number is reserved for the LastMessage of 1.0.
        if self.assigned + count >= NUMBER_MAX:
            raise LocalProtocolError("MessageNumberRollover: begin a new sequence")
        first = self.assigned + 1
        self.assigned += count
        return first, self.assigned

    def end(self, now: float) -> list[Event]:
        """Begin to end the sequence, because no more messages follow; return the events.

        All messages are acknowledged first. Then the sequence is closed (1.1) and terminated, which
        takes further calls of :meth:`poll` and :meth:`received`.
        """
        self._is_ending = True
        return self._end(now) if self.state is RmSourceState.OPEN else []

    # --- what leaves ------------------------------------------------------------------------------

    def poll(
        self,
        now: float,
        has: Callable[[int], bool] = lambda number: True,
        *,
        new_max: int = WINDOW_MAX,
    ) -> list[Output]:
        """Return everything that is to be sent by ``now``, and count it as sent.

        ``has`` returns whether the message of a number is at hand. A message that is not at hand is
        not sent, and neither is a new message after it. Call :meth:`resend` when the message is at
        hand. ``new_max`` limits the messages that are sent for the first time. A caller that sends
        one message at a time passes 1, because the answer states whether there is room for the
        next.
        """
        outputs: list[Output] = []
        if self._control_at is not None and now >= self._control_at:
            outputs.append(Control(self._control()))
            self._control_at = (
                None if self.state in OVER else now + self._pause(self._control_tries)
            )
            self._control_tries += 1
        if self.state in SENDS_MESSAGES:
            outputs += [
                self._transmit(number, now, is_again=True)
                for number in sorted(self._resends.due(now))
                if has(number)
                and (number not in self._unsure or self._allows_unsure() or number == self._lowest)
            ]
            new_max = min(new_max, self.assigned - self.sent)
            while new_max > 0 and self._may_send() and has(self.sent + 1):
                new_max -= 1
                self.sent += 1
                self.in_flight.append(self.sent, self.sent)
                outputs.append(self._transmit(self.sent, now, is_again=False))
        if self.state in EXISTS and self.polling.polling_timer_expired(now):
            outputs.append(
                Control(
                    self._message(
                        ack_requested=(AckRequested(self.identifier),), action="AckRequested"
                    )
                )
            )
        return outputs

    def left(self, number: int, now: float) -> None:
        """Begin the pause before the next repetition of message ``number`` again, from ``now``.

        Call this if the message was sent later than :meth:`poll` returned it. Nothing happens if
        the message is acknowledged.
        """
        if number in self.in_flight:
            self._resends.set(number, now + self._pause(self._tries.get(number, 0)))

    def resend(self, number: int, now: float) -> None:
        """Let :meth:`poll` return message ``number`` again at once, if it is in flight.

        Call this when its message is at hand, or when the caller does not want to wait. A message
        that may never have been sent, and for which there is no room, waits for one pause.
        """
        if number in self.in_flight:
            is_new = number in self._unsure and not self._allows_unsure()
            self._resends.set(number, now + self._pause(0) if is_new else now)

    def hurry(self, now: float) -> None:
        """Let :meth:`poll` repeat an unanswered protocol message at once.

        This is CreateSequence, CloseSequence or TerminateSequence. If the source is polling,
        AckRequested is sent at once, too.
        """
        if self._control_at is not None:
            self._control_at = now
        if self.polling.timer_at is not None:
            self.polling.timer_at = now

    @property
    def room(self) -> int:
        """Return how many more messages may get a number and be sent at once.

        The result is 0 unless the sequence is open.
        """
        if self.state is not RmSourceState.OPEN or self._is_ending:
            return 0
        unsent = self.assigned - self.sent
        room = self.settings.window - len(self.in_flight) - unsent
        if not self.polling.allows(0):
            return 0
        if self.polling.buffer_remaining != ABSENT:
            room = min(room, self.polling.buffer_remaining - len(self.in_flight) - unsent)
        return max(room, 0)

    @property
    def is_idle(self) -> bool:
        """Return whether no message waits or is in flight: all numbers are acknowledged."""
        return not self.in_flight and self.sent == self.assigned

    @property
    def is_ending(self) -> bool:
        """Return whether :meth:`end` was called, so that the sequence accepts no more messages."""
        return self._is_ending

    @property
    def control_tries(self) -> int:
        """Return how many times the protocol message of the present state was sent.

        The message is CreateSequence, CloseSequence or TerminateSequence.
        """
        return self._control_tries

    @property
    def _lowest(self) -> int:
        return next((first for first, _ in self.in_flight), 0)

    def _allows_unsure(self) -> bool:
        return self.polling.allows(len(self.in_flight) - len(self._unsure))

    def _may_send(self) -> bool:
        return (
            not self._unsure
            and len(self.in_flight) < self.settings.window
            and self.polling.allows(len(self.in_flight))
        )

    def _transmit(self, number: int, now: float, *, is_again: bool) -> Transmit:
        self._unsure.discard(number)
        tries = self._tries[number] = self._tries.get(number, -1) + 1
        self._resends.set(number, now + self._pause(tries))
        wanted = is_again or number == self.assigned or not self._may_send()
        return Transmit(number, wanted, number == self.last_number, is_again)

    def _pause(self, tries: int) -> float:
        return float(
            min(self.settings.resend_first * 2 ** min(tries, 16), self.settings.resend_last)
        )

    def next_timer(self) -> float | None:
        """Return the time at which :meth:`poll` next has something to do, or ``None`` for never.

        The time may have passed.
        """
        times = [
            self._control_at,
            self._resends.next() if self.state in SENDS_MESSAGES else None,
            self.polling.timer_at,
        ]
        return min((when for when in times if when is not None), default=None)

    # --- messages ---------------------------------------------------------------------------------

    def envelope(
        self, transmit: Transmit, action: str, body: bytes, message_id: str
    ) -> SoapMessage:
        """Return the SOAP message to send for ``transmit``.

        ``action``, ``body`` and ``message_id`` are those of the application's message; for a
        LastMessage of 1.0 action and body are replaced. Each repetition of a number must have the
        same ``message_id`` and the same bytes.
        """
        if transmit.is_last:
            action, body = self.settings.rm.action("LastMessage"), b""
        asked = (AckRequested(self.identifier),) if transmit.ack_requested else ()
        return self._message(
            action,
            message_id=message_id,
            sequence=Sequence(self.identifier, transmit.number, transmit.is_last),
            ack_requested=asked,
            body=body,
            is_ours=False,
        )

    def _control(self) -> SoapMessage:
        settings, last = self.settings, self.sent or None
        content: Content
        if self.state is RmSourceState.CREATING:
            here = settings.acks_to or EndpointReference(settings.addressing.anonymous)
            content = CreateSequence(here)
            return self._message(
                "CreateSequence", message_id=self.create_id, reply_to=here, content=content
            )
        here = (
            EndpointReference(settings.addressing.anonymous)
            if settings.acks_to is None
            else settings.acks_to
        )
        if self.state is RmSourceState.CLOSING:
            content, name = CloseSequence(self.identifier, last), "CloseSequence"
        else:
            content, name = (
                TerminateSequence(self.identifier, last if settings.rm is RmVersion.V1_1 else None),
                "TerminateSequence",
            )
        message_id = f"{self.create_id}/{name}"
        if settings.rm is RmVersion.V1_0:
            return self._message(name, message_id=message_id, content=content)
        return self._message(name, message_id=message_id, reply_to=here, content=content)

    def _message(
        self,
        action: str,
        *,
        message_id: str = "",
        reply_to: EndpointReference | None = None,
        sequence: Sequence | None = None,
        ack_requested: tuple[AckRequested, ...] = (),
        content: Content | None = None,
        body: bytes = b"",
        is_ours: bool = True,
    ) -> SoapMessage:
        settings = self.settings
        return SoapMessage(
            soap=settings.soap,
            addressing=settings.addressing,
            rm=settings.rm,
            to=settings.to,
            action=settings.rm.action(action) if is_ours else action,
            message_id=message_id,
            reply_to=reply_to,
            sequence=sequence,
            ack_requested=ack_requested,
            content=content,
            body=body,
        )

    # --- what arrives -----------------------------------------------------------------------------

    def received(self, message: SoapMessage, now: float) -> list[Event]:
        """Handle a message of the peer, and return the events that it causes.

        The message answers one of this source, or was sent to ``acks_to``. Its parts about other
        sequences are ignored.
        """
        events: list[Event] = []
        for ack in message.acknowledgements:
            if ack.identifier == self.identifier and self.identifier:
                events += self._acknowledged(ack, now)
        events += [Suspicious(reason) for reason in message.refused]
        content = message.content
        if isinstance(content, CreateSequenceResponse):
            if message.relates_to in ("", self.create_id) and self.state is RmSourceState.CREATING:
                self.identifier = content.identifier
                self._move(RmSourceEvent.CREATED, None)
                events.append(SequenceOpened(self.identifier))
                if self._is_ending:
                    events += self._end(now)
        elif isinstance(content, CloseSequenceResponse) and content.identifier == self.identifier:
            self._move(RmSourceEvent.CLOSED, now if self.state is RmSourceState.CLOSING else None)
        elif (
            isinstance(content, TerminateSequenceResponse) and content.identifier == self.identifier
        ):
            if self.state is RmSourceState.TERMINATING:
                events += self._over(RmSourceEvent.TERMINATED, None, now)
        elif (
            isinstance(content, SoapFault)
            and self.state not in OVER
            and self._is_about_us(content, message.relates_to)
        ):
            events += self._over(RmSourceEvent.FAULT, content, now)
        return events

    def _is_about_us(self, fault: SoapFault, relates_to: str) -> bool:
        if self.state is RmSourceState.CREATING:
            return relates_to == self.create_id
        # Without acks_to the fault is an HTTP answer. In 1.0 with SOAP 1.1 it need not name the
        # sequence.
        if not fault.identifier and self.settings.acks_to is None:
            return code_of(fault) is not None
        return bool(fault.subcode) and fault.identifier == self.identifier

    def _acknowledged(self, ack: SequenceAcknowledgement, now: float) -> list[Event]:
        if (
            max((upper for _, upper in ack.ranges), default=0) > self.sent
            or max(ack.nacks, default=0) > self.sent
        ):
            return [
                Suspicious(
                    f"InvalidAcknowledgement: it names a number above {self.sent}, the last "
                    "one that was sent"
                )
            ]
        if ack.nacks:
            return self._nacked(ack, now)
        new = [run for first, last in ack.ranges for run in self.in_flight.inside(first, last)]
        if self._takes_back(ack.ranges):
            if new:
                return [
                    Suspicious(
                        "InvalidAcknowledgement: it takes back what was acknowledged and "
                        "acknowledges others"
                    )
                ]
            # An older acknowledgement was delayed.
            return []
        for first, last in new:
            self.in_flight.remove(first, last)
            for number in range(first, last + 1):
                self._resends.set(number, None)
                self._tries.pop(number, None)
                self._unsure.discard(number)
        if new:
            self._progress(now)
        self._note_buffer(ack.buffer_remaining, now)
        events: list[Event] = [Acknowledged(tuple(new))] if new else []
        return events + self._end(now) if self.state is RmSourceState.ENDING else events

    def _progress(self, now: float) -> None:
        """Shorten the pauses of repeated messages to the first one.

        Called because the peer accepts messages now. The pauses have grown while the peer did not
        accept any.
        """
        for number in [number for number, tries in self._tries.items() if tries]:
            self._tries[number] = 0
            self._resends.set(number, now + self._pause(0))

    def _takes_back(self, ranges: tuple[Range, ...]) -> bool:
        """Return whether ``ranges`` lack a number that an earlier acknowledgement included."""
        return any(
            sum(last - first + 1 for first, last in self.in_flight.inside(*gap))
            != gap[1] - gap[0] + 1
            for gap in gaps(1, self.sent, ranges)
        )

    def _nacked(self, ack: SequenceAcknowledgement, now: float) -> list[Event]:
        """Handle an acknowledgement with Nacks: send these numbers again at the next :meth:`poll`.

        Numbers that are not in flight are ignored. The BufferRemaining of the acknowledgement
        counts only if all its numbers are in flight, because the acknowledgement states nothing
        about other numbers. Return no events.
        """
        wanted = [number for number in ack.nacks if number in self.in_flight]
        for number in wanted:
            self._resends.set(number, now)
        if len(wanted) == len(ack.nacks):
            self._note_buffer(ack.buffer_remaining, now)
        return []

    def _note_buffer(self, buffer_remaining: int, now: float) -> None:
        self.polling.seq_ack_received(buffer_remaining, now)
        self._arm_unsure(now)

    def _arm_unsure(self, now: float) -> None:
        """Schedule the messages that may never have been sent, for :meth:`poll`.

        With room, all of them are sent now. Without room, the lowest is sent after one pause, like
        a lost message. The destination may wait for the lowest one while the messages after it fill
        the room.
        """
        if not self._unsure:
            return
        if self._allows_unsure():
            for number in self._unsure:
                self._resends.set(number, now)
        elif self._lowest in self._unsure and self._lowest != self._armed:
            self._armed = self._lowest
            self._resends.set(self._lowest, now + self._pause(0))

    # --- the end ----------------------------------------------------------------------------------

    def _end(self, now: float) -> list[Event]:
        """Advance the end of the sequence as far as possible, and return the events.

        In 1.0 a LastMessage is added first. Nothing more happens while a message is in flight or
        waits to be sent.
        """
        if self.state is RmSourceState.OPEN:
            if self.settings.rm is RmVersion.V1_0 and self.assigned:
                self.assigned += 1
                self.last_number = self.assigned
            self._move(RmSourceEvent.END, None)
        if self.in_flight or self.sent < self.assigned:
            return []
        if self.settings.rm is RmVersion.V1_1:
            self._move(RmSourceEvent.ALL_ACKNOWLEDGED, now)
            return []
        events = self._over(RmSourceEvent.ALL_ACKNOWLEDGED_1_0, None, now)
        # TerminateSequence of 1.0 is sent once, because it has no answer.
        self._control_at = now
        return events

    def _move(self, event: RmSourceEvent, control_at: float | None) -> None:
        before = self.state
        self.state = next_state(TRANSITIONS, self.state, event, "a sequence")
        if self.state is not before:
            self._control_at, self._control_tries = control_at, 0

    def _over(self, event: RmSourceEvent, fault: SoapFault | None, now: float) -> list[Event]:
        self._move(event, None)
        self.polling.seq_terminated(now)
        return [SequenceEnded(fault if self.state is RmSourceState.FAILED else None)]

    def __repr__(self) -> str:
        return (
            f"<Source {self.identifier or self.create_id} {self.state.name} "
            f"sent={self.sent}/{self.assigned} "
            f"in_flight={len(self.in_flight)} {self.polling!r}>"
        )
