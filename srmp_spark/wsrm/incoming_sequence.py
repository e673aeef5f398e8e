"""One sequence at its destination: which numbers were taken, which are stored, which wait for a missing one.

Theory of operation. Three counts. ``record.received`` says what was handed to the store; ``synced`` what it has, and
acknowledgements are made of this alone; ``held`` are messages behind a gap. Those are kept in memory only and never
acknowledged, so the source still has them, and an exchange never waits for another message: CXF has one thread that sends
again, and it would wait with us for the message that it has yet to send.
"""

from __future__ import annotations

from dataclasses import replace

from srmp_spark.wsrm.destination_effects import NewMessage, SequenceRecord
from srmp_spark.wsrm.elements import SequenceAcknowledgement, SoapMessage
from srmp_spark.wsrm.incoming_states import TRANSITIONS, SequenceEvent, SequenceState
from srmp_spark.wsrm.limits import HELD_BYTES_MAX, HELD_MAX
from srmp_spark.wsrm.namespaces import RmVersion


class IncomingSequence:
    """The living side of a :class:`SequenceRecord`."""

    __slots__ = ("_held_bytes", "held", "is_stored", "record", "synced", "told", "used_at")

    def __init__(self, record: SequenceRecord, now: float, *, is_stored: bool) -> None:
        self.record = record
        """After everything that was handed to the store."""
        self.synced = record
        """After everything that the store has, once it has the sequence itself."""
        self.is_stored = is_stored
        self.held: dict[int, SoapMessage] = {}
        self._held_bytes = 0
        self.told = 0 if is_stored else None
        """The BufferRemaining that was told last. What was told before a restart is not known: perhaps 0."""
        self.used_at = now

    def move(self, event: SequenceEvent, **changes: object) -> bool:
        """The next state, and what changes with it; whether there is anything to store."""
        before = self.record
        after = replace(before, state=TRANSITIONS[before.state, event], **changes)  # type: ignore[arg-type]
        if after == before:
            return False
        self.record = after
        if after.state is not SequenceState.OPEN:
            self.drop_held()
        return True

    def last_numbers(self) -> set[int]:
        """The numbers that were said to be the last one; more than one is a contradiction."""
        held = {number for number, each in self.held.items() if each.sequence is not None and each.sequence.is_last}
        return held if self.record.last_number is None else held | {self.record.last_number}

    def take(self, number: int, message: SoapMessage) -> tuple[NewMessage, ...]:
        """What can be stored now, in order; nothing for a copy, or for one that waits for another or has no place to."""
        received = self.record.received
        if number <= received or number in self.held:
            return ()
        if number > received + 1:
            size = len(message.body)
            if len(self.held) < HELD_MAX and self._held_bytes + size <= HELD_BYTES_MAX and number <= received + 1 + HELD_MAX:
                self.held[number] = message
                self._held_bytes += size
            return ()
        taken = [NewMessage(self.record.identifier, number, message)]
        while (following := self.held.pop(number + len(taken), None)) is not None:
            self._held_bytes -= len(following.body)
            taken.append(NewMessage(self.record.identifier, number + len(taken), following))
        self.record = replace(self.record, received=received + len(taken))
        return tuple(taken)

    def drop_held(self) -> None:
        """They were never acknowledged: the source sends them again, or knows that they are lost."""
        self.held.clear()
        self._held_bytes = 0

    def roll_back(self) -> None:
        """To what the store has."""
        self.record = self.synced
        self.drop_held()

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        """Of what is stored. GET_BUFFER_REMAINING gave ``buffer_remaining`` ([MS-WSRVCRM] 3.1.7.1)."""
        self.told = buffer_remaining
        stored = self.synced
        is_final = stored.state is not SequenceState.OPEN and stored.rm is RmVersion.V1_1
        ranges = ((1, stored.received),) if stored.received else ()
        return SequenceAcknowledgement(stored.identifier, ranges, is_final=is_final, buffer_remaining=buffer_remaining)
