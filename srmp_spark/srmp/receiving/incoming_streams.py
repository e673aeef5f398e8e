r"""The receiving half of Stream ([MC-MQSRM] 3.1.1.1.6): the next position and the owed receipt.

Theory of operation. A stream is identified by its queue and the GUID in its stream identifier
``uid:GUID\N``. The live N is IncomingId, and a ``<start>`` with a higher N replaces it. A stream
has two numbers. ``sequence_number`` (IncomingSequenceNumber) is the last *accepted* position and
immediately decides about the next message. ``committed`` is the last position on *stable storage*,
and only committed positions are ever acknowledged. The first number is ahead of the second by one
group commit.

The Stream Receipt Coalescing Timer (3.1.2.3) starts when a message is stored and runs for 500 ms. A
further message restarts the timer, until 10 s after the first unacknowledged message. This module
differs from the specification in these points:

- The specification sets UnackedStreamMessageArrivalTime to zero only when the 10 s are over. The
  second receipt of a stream that was idle for ten seconds would then not wait at all. In this
  module every receipt clears this time.
- The specification ignores a repeated message wholly. If one receipt is lost, the sender repeats
  its messages for ever. In this module a repeat of an accepted position restarts the timer.
- The specification moves LastAcknowledgedStreamMessage when a receipt is created. In this module it
  moves when the peer has answered 200. Until then, also after a restart, the receipt is owed.
- The specification looks for "no gaps in sequence numbers". A gap that ``<previous>`` allows is no
  gap in this module, or one expired message would end all receipts. Positions are accepted in
  order, so a receipt names the last committed position.
- The specification lets the message that ends the 10 s be acknowledged at once. "The receiving QM
  waits a minimum of 500 milliseconds" (3.1.1.3.2): a receipt that the 10 s force names only what
  has been stored for 500 ms, and the rest stays owed.
- A ``<start>`` with a lower N than the live one is a late copy. Taken literally ("not equal to
  IncomingId") it would end the live stream.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto

from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.srmp.receiving.stream_effects import (
    AcceptedGap,
    IncomingStreamRow,
    RepeatKind,
    SendStreamReceipt,
)
from srmp_spark.srmp.receiving.stream_name import StreamName
from srmp_spark.srmp.receiving.stream_room import StreamRoom
from srmp_spark.transitions import next_state

STREAM_RECEIPT_COALESCING_S = 0.5
"""Time of the coalescing timer in seconds: "The timer MUST expire after 500 milliseconds"
([MC-MQSRM] 3.1.2.3).
"""
STREAM_RECEIPT_DELAY_S_MAX = 10.0
"""Longest delay of a receipt in seconds: further messages "can delay the stream receipt up to 10
seconds" ([MC-MQSRM] 3.1.1.3.2).
"""
MOVES_TOLD_S = 3600.0
"""Shortest time between two reports about one stream whose messages arrive from alternating
addresses, in seconds.
"""


class ReceiptState(Enum):
    """The states of the next stream receipt of a stream."""

    NOTHING_OWED = auto()
    COALESCING = auto()
    """The coalescing timer is running."""
    SENDING = auto()
    """One receipt is in flight. A second one is never sent at the same time."""
    SENDING_AND_OWED = auto()
    """One receipt is in flight, and a message was stored after that receipt was created."""
    WAITING_TO_RETRY = auto()
    """The last receipt failed.

    The timer is RetransmissionTimeout, unless a message arrives earlier and shows that the peer is
    alive.
    """


class ReceiptEvent(Enum):
    """The events that change the state of a stream receipt."""

    STORED = auto()
    """A message of the stream, or a repeat of a message, was committed."""
    TIMER = auto()
    DELIVERED = auto()
    """The peer accepted the receipt with 200."""
    FAILED = auto()
    """There was no answer, the answer was 5xx, or the URL is blocked."""
    REFUSED = auto()
    """The peer refused the receipt with 400."""


_S, _E = ReceiptState, ReceiptEvent
TRANSITIONS: Mapping[tuple[ReceiptState, ReceiptEvent], ReceiptState] = {
    (_S.NOTHING_OWED, _E.STORED): _S.COALESCING,
    (_S.COALESCING, _E.STORED): _S.COALESCING,
    (_S.COALESCING, _E.TIMER): _S.SENDING,
    (_S.SENDING, _E.STORED): _S.SENDING_AND_OWED,
    (_S.SENDING, _E.DELIVERED): _S.NOTHING_OWED,
    (_S.SENDING, _E.FAILED): _S.WAITING_TO_RETRY,
    (_S.SENDING, _E.REFUSED): _S.NOTHING_OWED,
    (_S.SENDING_AND_OWED, _E.STORED): _S.SENDING_AND_OWED,
    (_S.SENDING_AND_OWED, _E.DELIVERED): _S.COALESCING,
    (_S.SENDING_AND_OWED, _E.FAILED): _S.WAITING_TO_RETRY,
    (_S.SENDING_AND_OWED, _E.REFUSED): _S.COALESCING,
    (_S.WAITING_TO_RETRY, _E.STORED): _S.COALESCING,
    (_S.WAITING_TO_RETRY, _E.TIMER): _S.SENDING,
}
"""The next state for each state and event.

A missing pair is a bug of this package and raises :class:`~srmp_spark.errors.LocalProtocolError`.
"""

_TIMER_RUNS = (ReceiptState.COALESCING, ReceiptState.WAITING_TO_RETRY)
_ON_ITS_WAY = (ReceiptState.SENDING, ReceiptState.SENDING_AND_OWED)


class IncomingStream:
    """The live stream from one sender to one queue."""

    __slots__ = (
        "committed",
        "deadline",
        "gap_accepted",
        "gap_at",
        "gap_next",
        "guid",
        "heap_entry",
        "holder",
        "last_access_at",
        "last_acknowledged",
        "move_told_at",
        "moved_from",
        "ordinal",
        "peer",
        "queue",
        "receipt",
        "recent",
        "reject_count",
        "send_receipts_to",
        "sender_name",
        "sequence_number",
        "settled",
        "source_qm",
        "stale_told",
        "started_at",
        "stored_at",
        "unacked_since",
    )

    def __init__(self, row: IncomingStreamRow) -> None:
        self.queue: StreamName = row.queue
        """Name under which the stream is known. Its rows may be in another queue."""
        self.guid = row.guid
        self.ordinal = row.stream_ordinal
        self.sequence_number = row.sequence_number
        self.committed = row.sequence_number
        self.last_acknowledged = row.last_acknowledged
        self.send_receipts_to = row.send_receipts_to
        self.peer = row.peer
        self.source_qm = row.source_qm
        self.reject_count = row.reject_count
        self.started_at = row.started_at
        self.last_access_at = row.last_access_at
        self.sender_name = row.sender_name
        self.moved_from: str | None = None
        """Address of the peer before its host changed, until :meth:`take_move` has returned it.

        This value is not saved.
        """
        self.move_told_at = -MOVES_TOLD_S
        self.stale_told = False
        """Whether messages of earlier streams were reported to an operator.

        This value is not saved.
        """
        self.gap_at: int | None = None
        """The position that is missing while later positions arrive.

        This value is saved only with an accepted gap.
        """
        self.gap_next: int | None = None
        """The lowest position after the gap that has arrived so far; saved as ``gap_at`` is."""
        self.gap_accepted = False
        """Whether an operator accepted the loss of the missing positions.

        When messages are sent again, the message at ``gap_next`` is then accepted whatever its
        ``<previous>`` says. Later messages must wait for it, because the sender may be in the
        middle of a pass when the operator decides. Saved as an :class:`AcceptedGap`.
        """
        self.receipt = ReceiptState.NOTHING_OWED
        self.unacked_since: float | None = None
        """UnackedStreamMessageArrivalTime, on the monotonic clock."""
        self.stored_at = -STREAM_RECEIPT_DELAY_S_MAX
        """When the last message or repeat was stored, on the monotonic clock."""
        self.recent = self.settled = (self.stored_at, self.committed)
        """Two samples (time, committed position) that are 0.5 to 1 s apart while messages arrive
        without a pause, so that one of them is always old enough. Positions after that of a
        sample were not stored before its time.
        """
        self.deadline = 0.0
        """When the timer of ``receipt`` ends, on the monotonic clock."""
        self.holder = ""
        """Name of the holder in whose share of the streams this one counts (:mod:`.stream_room`).
        """
        self.heap_entry: float | None = None
        """Time of the one valid entry in the heap of timers; ``None`` if there is none."""

    @classmethod
    def started(cls, queue: StreamName, position: StreamPosition) -> IncomingStream:
        """Return a new stream without an accepted position. Call :meth:`accept` next."""
        return cls(
            IncomingStreamRow(
                queue, position.id.guid, position.id.ordinal, 0, 0, "", "", None, 0, 0, 0, None
            )
        )

    def is_of_another(self, sender_name: str | None) -> bool:
        """Return whether the stream belongs to another authenticated peer ([MC-MQSRM] 5.1).

        Only the peer that began such a stream may continue it. Plain HTTP compares nothing. An
        address proves nothing there, and the address of an honest sender may change (DHCP, NAT, a
        second interface, fail-over of a cluster node). The change is reported to the operator, see
        :meth:`take_move`.
        """
        return self.sender_name is not None and sender_name != self.sender_name

    def gives_way_to(self, position: StreamPosition, sender_name: str | None) -> bool:
        """Return whether a ``<start>`` of an authenticated peer replaces this stream.

        The ``<start>`` replaces the stream even if the new ordinal is not higher. An
        unauthenticated client began the present stream, so the ordinal of this stream proves
        nothing. An unauthenticated client can choose the highest ordinal, or the next one, before
        the honest sender begins. The messages of the honest sender would then be taken for late
        copies and answered 200 for ever.

        A ``<start>`` with the same ordinal may also be a repeat of the first message, from a sender
        that got its certificate in the first half second of its stream. The two cases cannot be
        distinguished, because identifiers can be chosen too. The stream begins again, and its
        sender continues from there. If the sender got receipts for more messages meanwhile, the
        rest is after a gap that an operator sees and can accept.
        """
        begins = position.start and position.current == 1
        return (
            begins
            and self.sender_name is None
            and sender_name is not None
            and position.id.ordinal <= self.ordinal
        )

    def refuses(self, position: StreamPosition) -> RepeatKind | None:
        """Return ``None`` if the position is acceptable, else the kind of the refused message.

        A position is acceptable if it meets one of the three criteria of [MC-MQSRM] 3.1.5.1.6.3.
        """
        ordinal, current = position.id.ordinal, position.current
        if ordinal != self.ordinal:
            starts = position.start and current == 1 and ordinal > self.ordinal
            return None if starts else "stale" if ordinal < self.ordinal else "gap"
        follows = current == self.sequence_number + 1
        given_up = self.gap_accepted and (self.gap_next is None or current <= self.gap_next)
        skips = current > self.sequence_number and (
            position.previous <= self.sequence_number or given_up
        )
        if follows or skips:
            return None
        return "position" if current <= self.sequence_number else "gap"

    def accept(self, message: Message, position: StreamPosition, arrival: Arrival) -> None:
        """Accept a position for which :meth:`refuses` returned ``None``; nothing is committed yet.

        See [MC-MQSRM] 3.1.5.1.6.3 and 3.1.5.1.6.4.
        """
        self.send_receipts_to = self.receipts_to_after(position)
        if position.id.ordinal != self.ordinal or self.sequence_number == 0:
            self._start(position, arrival)
        self.sequence_number = position.current
        self.reject_count = 0
        self.gap_at = self.gap_next = None
        self.gap_accepted = False
        self.source_qm = message.source_qm
        if arrival.peer != self.peer:
            if (
                self.peer
                and arrival.sender_name is None
                and _host_of(arrival.peer) != _host_of(self.peer)
            ):
                self.moved_from = self.peer
            self.peer = arrival.peer
        self.last_access_at = arrival.at

    def receipts_to_after(self, position: StreamPosition) -> str:
        """Return the URL for stream receipts after ``position`` is accepted; change nothing."""
        if position.id.ordinal != self.ordinal or self.sequence_number == 0:
            # A restored stream, of which only the name is known, may continue without its <start>.
            return position.send_receipts_to or self.send_receipts_to
        return self.send_receipts_to

    def _start(self, position: StreamPosition, arrival: Arrival) -> None:
        self.ordinal = position.id.ordinal
        self.committed = 0
        self.recent = self.settled = (-STREAM_RECEIPT_DELAY_S_MAX, 0)
        self.last_acknowledged = 0
        self.sender_name = arrival.sender_name
        self.started_at = arrival.at
        self.stale_told = False
        self.unacked_since = None
        # A receipt that was owed to the stream that just ended is no longer awaited.
        if self.receipt in _TIMER_RUNS:
            self.receipt = ReceiptState.NOTHING_OWED
        elif self.receipt is ReceiptState.SENDING_AND_OWED:
            self.receipt = ReceiptState.SENDING

    def take_move(self, now: float) -> str | None:
        """Return the former ``host:port`` of the peer if its host has changed, or ``None``.

        Each change is returned once, and is then forgotten. ``now`` is in seconds on the monotonic
        clock. Only plain HTTP is reported, and at most once in :data:`MOVES_TOLD_S`, because a
        sender with two addresses is not news each time.
        """
        moved_from, self.moved_from = self.moved_from, None
        if moved_from is None or now - self.move_told_at < MOVES_TOLD_S:
            return None
        self.move_told_at = now
        return moved_from

    def take_stale(self) -> bool:
        """Return True for the first message of an earlier stream, and False after that.

        Call this once for each message of an earlier stream, and report only the first one since
        the live stream began. The message is a late copy, or its sender counts from an earlier
        state (a machine restored from an image). Messages of such a sender are not accepted.
        """
        told, self.stale_told = self.stale_told, True
        return not told

    def reject(self, position: StreamPosition, kind: RepeatKind) -> None:
        """Count a message that was not accepted ([MC-MQSRM] 3.1.5.1.6.4, RejectCount).

        A message after a gap also records the gap.
        """
        self.reject_count += 1
        if (
            kind == "gap"
            and position.id.ordinal == self.ordinal
            and position.current > self.sequence_number
        ):
            self.gap_at = self.sequence_number + 1
            self.gap_next = min(position.current, self.gap_next or position.current)

    def accept_gap(self) -> AcceptedGap | None:
        """Accept the loss of the missing positions, as an operator decided, and return the gap.

        A second call accepts any next position, even beyond ``gap_next``. Return ``None`` and
        change nothing if nothing is missing now. Otherwise the loss of later positions would be
        accepted that nobody has seen missing.
        """
        if self.gap_at is None:
            return None
        if self.gap_accepted:
            self.gap_next = None
        self.gap_accepted = True
        return AcceptedGap(
            self.queue,
            self.guid,
            self.ordinal,
            self.started_at,
            self.sequence_number,
            self.gap_next,
        )

    def restore_gap(self, gap: AcceptedGap) -> None:
        """Restore after a restart the gap that an operator accepted.

        Nothing is restored if the gap belongs to an earlier stream, or if it is over.
        """
        if (gap.stream_ordinal, gap.started_at, gap.after) == (
            self.ordinal,
            self.started_at,
            self.sequence_number,
        ):
            self.gap_at = gap.after + 1
            self.gap_next = gap.to
            self.gap_accepted = True

    def stored(self, ordinal: int, position: int, now: float) -> None:
        """Record that ``position`` of stream ``ordinal`` is on stable storage.

        This restarts the coalescing timer of [MC-MQSRM] 3.1.2.3. If ``ordinal`` is not the live
        one, nothing changes. ``position`` 0 is a repeat of a stored message. ``now`` is in seconds
        on the monotonic clock.
        """
        # A newer stream may have begun while this one was being committed.
        if ordinal != self.ordinal:
            return
        before, self.committed = self.committed, max(self.committed, position)
        # After a pause everything that was stored before the pause is old enough.
        if now - self.stored_at >= STREAM_RECEIPT_COALESCING_S:
            self.settled, self.recent = (now, before), (now, self.committed)
        elif now - self.recent[0] >= STREAM_RECEIPT_COALESCING_S:
            self.settled, self.recent = self.recent, (now, self.committed)
        self.stored_at = now
        self._move(ReceiptEvent.STORED)
        if self.unacked_since is None:
            self.unacked_since = now
        self.deadline = min(
            now + STREAM_RECEIPT_COALESCING_S, self.unacked_since + STREAM_RECEIPT_DELAY_S_MAX
        )

    def receipt_due(self) -> SendStreamReceipt:
        """Process the end of the timer; return the receipt for all that was committed for 500 ms.

        See [MC-MQSRM] 3.1.6.3.
        """
        self._move(ReceiptEvent.TIMER)
        since, last_ordinal = self.acknowledgeable()
        # The 10 s force a receipt while messages continue to arrive.
        if last_ordinal < self.committed:
            self._move(ReceiptEvent.STORED)
            self.unacked_since = since
            self.deadline = min(
                self.stored_at + STREAM_RECEIPT_COALESCING_S, since + STREAM_RECEIPT_DELAY_S_MAX
            )
        else:
            self.unacked_since = None
        return SendStreamReceipt(
            self.queue, self.id, self.send_receipts_to, last_ordinal, self.peer, self.sender_name
        )

    def acknowledgeable(self) -> tuple[float, int]:
        """Return the pair (time, highest position that a receipt may name when the timer ends).

        The time is in seconds on the monotonic clock. Nothing after this position was stored before
        this time.
        """
        if self.stored_at + STREAM_RECEIPT_COALESCING_S <= self.deadline:
            return self.deadline, self.committed
        return (
            self.recent
            if self.recent[0] + STREAM_RECEIPT_COALESCING_S <= self.deadline
            else self.settled
        )

    def receipt_delivered(self, stream_id: StreamId, last_ordinal: int) -> bool:
        """Record that the peer accepted the receipt.

        ``last_ordinal`` is the position that the receipt named. Return whether
        LastAcknowledgedStreamMessage moved.
        """
        self._move(ReceiptEvent.DELIVERED)
        if stream_id.ordinal != self.ordinal or last_ordinal <= self.last_acknowledged:
            return False
        self.last_acknowledged = last_ordinal
        return True

    def receipt_failed(self, now: float, retransmission_timeout: float, permanent: bool) -> None:
        """Record that the receipt in flight did not arrive.

        The next attempt is due at ``now`` + ``retransmission_timeout``, both in seconds. After an
        answer of 400 (``permanent``) the receipt is not sent again until the stream continues,
        because a repetition cannot succeed.
        """
        self._move(ReceiptEvent.REFUSED if permanent else ReceiptEvent.FAILED)
        if not permanent:
            self.deadline = now + retransmission_timeout
            self.unacked_since = None

    def owe_receipt(self, at: float) -> None:
        """Let the next receipt be due at ``at`` (monotonic seconds), called after a restart.

        It is unknown then whether the last receipt arrived.
        """
        self._move(ReceiptEvent.STORED)
        self.unacked_since = at
        self.deadline = at

    def _move(self, event: ReceiptEvent) -> None:
        self.receipt = next_state(TRANSITIONS, self.receipt, event, self)

    @property
    def id(self) -> StreamId:
        """Return Stream.IncomingId: the GUID and the live ordinal."""
        return StreamId(self.guid, self.ordinal)

    @property
    def timer_runs(self) -> bool:
        """Return whether the timer of ``receipt`` runs, so that ``deadline`` is valid."""
        return self.receipt in _TIMER_RUNS

    @property
    def receipt_on_its_way(self) -> bool:
        """Return whether a receipt is in flight.

        Its end is still to be reported with :meth:`receipt_delivered` or :meth:`receipt_failed`.
        """
        return self.receipt in _ON_ITS_WAY

    def row(self) -> IncomingStreamRow:
        """Return the row to save.

        The row belongs in the transaction that holds the messages up to ``sequence_number``.
        """
        return IncomingStreamRow(
            self.queue,
            self.guid,
            self.ordinal,
            self.sequence_number,
            self.last_acknowledged,
            self.send_receipts_to,
            self.peer,
            self.source_qm,
            self.reject_count,
            self.started_at,
            self.last_access_at,
            self.sender_name,
        )

    def __repr__(self) -> str:
        timer = f" until {self.deadline:.3f}" if self.timer_runs else ""
        return (
            f"<IncomingStream {self.queue} {self.id} "
            f"sequence_number={self.sequence_number} committed={self.committed} "
            f"acknowledged={self.last_acknowledged} {self.receipt.name}{timer}>"
        )


def _host_of(peer: str) -> str:
    return peer.rpartition(":")[0]


class IncomingStreams:
    """Keeps all incoming streams and their timers, and collects the changes to save."""

    stream_class: type[IncomingStream] = IncomingStream
    """Class of the streams.

    The simulator of the tests sets a faulty class, to check that the fault is found.
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[StreamName, str], IncomingStream] = {}
        self._dirty: dict[tuple[StreamName, str], IncomingStream] = {}
        self._dropped: dict[tuple[StreamName, str], None] = {}
        self._accepted_gaps: dict[tuple[StreamName, str], AcceptedGap] = {}
        self._room: StreamRoom[IncomingStream] = StreamRoom()
        self._timers: list[tuple[float, int, IncomingStream]] = []
        self._timer_serial = 0
        self.forgotten = 0
        """Number of streams that were evicted since the start to make room for others."""

    @classmethod
    def load(
        cls, rows: Iterable[IncomingStreamRow], accepted_gaps: Iterable[AcceptedGap] = ()
    ) -> IncomingStreams:
        """Return the streams that were saved ([MC-MQSRM] 3.1.3.2).

        A stream with unacknowledged positions owes a receipt at once. The specification sets
        LastAcknowledgedStreamMessage to zero at the start. This method keeps the saved number,
        which saves peers one receipt for each stream.
        """
        streams = cls()
        for row in rows:
            stream = cls.stream_class(row)
            streams._streams[row.queue, row.guid] = stream
            streams._room.add(stream)
            if stream.sequence_number > stream.last_acknowledged:
                stream.owe_receipt(0.0)
                streams.arm(stream)
        for gap in accepted_gaps:
            found = streams.get(gap.queue, gap.guid)
            if found is not None:
                found.restore_gap(gap)
        return streams

    def get(self, queue: StreamName, guid: str) -> IncomingStream | None:
        """Return the stream of the sender ``guid`` with this name, or ``None``."""
        return self._streams.get((queue, guid))

    def put(self, stream: IncomingStream) -> None:
        """Keep the new or changed ``stream``, and add its row to the next :meth:`take_changes`."""
        key = (stream.queue, stream.guid)
        before = self._streams.get(key)
        if before is not stream:
            if before is not None:
                self._room.remove(before)
            self._room.add(stream)
        self._streams[key] = self._dirty[key] = stream

    def make_room(self, peer: str, sender_name: str | None, at: int, now: float) -> str | None:
        """Make room for a further stream of this sender, by evicting other streams if necessary.

        :mod:`.stream_room` has the rules. Return ``None`` if there is room then, else the reason as
        a text for an operator. ``at`` is the time in microseconds since 1970
        (:mod:`.history_clock`), and ``now`` the monotonic clock in seconds.
        """
        if self._room.full(peer, sender_name) is None:
            return None
        for stream in self._room.make_way(peer, sender_name, at, now):
            self.drop(stream.queue, stream.guid)
            self.forgotten += 1
        return self._room.full(peer, sender_name)

    def accept_gap(self, stream: IncomingStream) -> bool:
        """Accept the gap of a stream (:meth:`IncomingStream.accept_gap`) and save it.

        Return whether there was a gap.
        """
        gap = stream.accept_gap()
        if gap is None:
            return False
        self._accepted_gaps[stream.queue, stream.guid] = gap
        return True

    def drop(self, queue: StreamName, guid: str) -> bool:
        """Forget a stream and return whether it existed.

        The next message of that sender that can begin a stream begins a new one.
        """
        stream = self._streams.pop((queue, guid), None)
        if stream is None:
            return False
        self._room.remove(stream)
        self._dirty.pop((queue, guid), None)
        self._accepted_gaps.pop((queue, guid), None)
        self._dropped[queue, guid] = None
        return True

    def arm(self, stream: IncomingStream) -> None:
        """Record the deadline of a stream in the heap of timers.

        An entry that is too early is moved when it becomes due. This is the usual case, and it is
        cheap.
        """
        if stream.timer_runs and (stream.heap_entry is None or stream.deadline < stream.heap_entry):
            self._push(stream)

    def _push(self, stream: IncomingStream) -> None:
        self._timer_serial += 1
        stream.heap_entry = stream.deadline
        heapq.heappush(self._timers, (stream.deadline, self._timer_serial, stream))

    def next_timer(self) -> float | None:
        """Return the time at which :meth:`due` must be called; ``None`` if no timer runs.

        The time is in seconds on the monotonic clock. Obsolete entries of the heap are removed.
        """
        timers = self._timers
        while timers:
            deadline, _, stream = timers[0]
            if deadline != stream.heap_entry:
                # This entry is a leftover: an earlier entry of the stream was pushed after it.
                heapq.heappop(timers)
            elif (
                not stream.timer_runs
                or self._streams.get((stream.queue, stream.guid)) is not stream
            ):
                heapq.heappop(timers)
                stream.heap_entry = None
            elif stream.deadline > deadline:
                heapq.heappop(timers)
                self._push(stream)
            else:
                return stream.deadline
        return None

    def due(self, now: float) -> list[SendStreamReceipt]:
        """Return the stream receipts whose timers have ended; each is in flight from now on.

        ``now`` is in seconds on the monotonic clock.
        """
        receipts = []
        while (deadline := self.next_timer()) is not None and deadline <= now:
            stream = heapq.heappop(self._timers)[2]
            stream.heap_entry = None
            receipts.append(stream.receipt_due())
        return receipts

    def take_changes(
        self,
    ) -> tuple[list[IncomingStreamRow], list[tuple[StreamName, str]], list[AcceptedGap]]:
        """Return the changes since the last call, and begin to collect again.

        The result has the rows to insert or replace, the keys to delete before that, and the
        accepted gaps.
        """
        if not self._dirty and not self._dropped and not self._accepted_gaps:
            return [], [], []
        rows = [stream.row() for stream in self._dirty.values()]
        dropped = list(self._dropped)
        gaps = list(self._accepted_gaps.values())
        self._dirty.clear()
        self._dropped.clear()
        self._accepted_gaps.clear()
        return rows, dropped, gaps

    def __iter__(self) -> Iterator[IncomingStream]:
        return iter(self._streams.values())

    def __len__(self) -> int:
        return len(self._streams)
