r"""The receiving half of Stream ([MC-MQSRM] 3.1.1.1.6): which position comes next, and which receipt is owed.

Theory of operation. A stream is known by its queue and the GUID in its stream identifier ``uid:GUID\N``; the N that is live
is IncomingId, and a ``<start>`` with a higher N replaces it. Two numbers run through it. ``sequence_number``
(IncomingSequenceNumber) is the last position *accepted*: it decides about the next message, at once. ``committed`` is the
last position on *stable storage*: only that is ever acknowledged. The first runs ahead of the second by one group commit.

The Stream Receipt Coalescing Timer (3.1.2.3) starts when a message is stored and runs 500 ms. A further message starts it
anew, up to 10 s after the first that is not acknowledged. Where we leave the text, and why:

- The text sets UnackedStreamMessageArrivalTime to zero only when the 10 s are over. Then the second receipt of a stream that
  was idle for ten seconds would not wait at all. Every receipt clears it here.
- The text ignores a repeated message wholly. If one receipt is lost the sender repeats for ever. A repeat of an accepted
  position starts the timer again here.
- The text moves LastAcknowledgedStreamMessage when a receipt is made. It moves here when the peer has answered 200; until
  then, also after a restart, the receipt is owed.
- The text looks for "no gaps in sequence numbers". A gap that ``<previous>`` allowed is no gap, or one expired message would
  end all receipts. Positions are accepted in order, so the last committed one is the answer.
- The text lets the message that ends the 10 s be acknowledged in the same instant. "The receiving QM waits a minimum of 500
  milliseconds" (3.1.1.3.2): a receipt that the 10 s force names only what has been stored that long, and the rest is owed on.
- A ``<start>`` with a lower N than the live one is a late copy. Taken literally ("not equal to IncomingId") it would throw
  the live stream away.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.srmp.stream_effects import (
    AcceptedGap,
    IncomingStreamRow,
    RepeatKind,
    SendStreamReceipt,
)
from srmp_spark.srmp.stream_name import StreamName
from srmp_spark.srmp.stream_room import StreamRoom

STREAM_RECEIPT_COALESCING_S = 0.5
"""[MC-MQSRM] 3.1.2.3: "The timer MUST expire after 500 milliseconds"."""
STREAM_RECEIPT_DELAY_S_MAX = 10.0
"""[MC-MQSRM] 3.1.1.3.2: further messages "can delay the stream receipt up to 10 seconds"."""
MOVES_TOLD_S = 3600.0
"""Of one stream that comes from another address by turns, an operator is told so often."""


class ReceiptState(Enum):
    """Where the next stream receipt of a stream is."""

    NOTHING_OWED = auto()
    COALESCING = auto()
    """The timer runs."""
    SENDING = auto()
    """One is on its way: there is never a second one beside it."""
    SENDING_AND_OWED = auto()
    """One is on its way, and a message has been stored since."""
    WAITING_TO_RETRY = auto()
    """The last one failed; the timer is RetransmissionTimeout, unless a message shows earlier that the peer lives."""


class ReceiptEvent(Enum):
    """What moves a stream receipt on."""

    STORED = auto()
    """A message of the stream, or the repeat of one, is committed."""
    TIMER = auto()
    DELIVERED = auto()
    """The peer answered 200."""
    FAILED = auto()
    """No answer, 5xx, or a blocked URL."""
    REFUSED = auto()
    """The peer answered 400."""


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
"""An absent pair is our own bug: :class:`~srmp_spark.errors.LocalProtocolError`."""

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
        """What it is counted by: its rows may be in another queue."""
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
        """The peer before the host that it is now, until :meth:`take_move` has told it; not saved."""
        self.move_told_at = -MOVES_TOLD_S
        self.stale_told = False
        """Whether an operator heard of messages of earlier streams; not saved."""
        self.gap_at: int | None = None
        """The position that is missing while later ones arrive; not saved but with a gap that was accepted."""
        self.gap_next: int | None = None
        """The lowest position behind the gap that came so far; saved as ``gap_at`` is."""
        self.gap_accepted = False
        """An operator gave up the missing positions: of what is sent again the message at ``gap_next`` is taken whatever its
        ``<previous>``. Those behind it must wait for it: its sender may be in the middle of a round when the operator
        decides. Saved as an :class:`AcceptedGap`."""
        self.receipt = ReceiptState.NOTHING_OWED
        self.unacked_since: float | None = None
        """UnackedStreamMessageArrivalTime, on the monotonic clock."""
        self.stored_at = -STREAM_RECEIPT_DELAY_S_MAX
        """When the last message or repeat was stored, on the monotonic clock."""
        self.recent = self.settled = (self.stored_at, self.committed)
        """Two samples (time, committed position), 0.5 to 1 s apart while messages come without a pause: one of them is always
        old enough. What follows the position of a sample was not stored before its time."""
        self.deadline = 0.0
        """When the timer of ``receipt`` ends, on the monotonic clock."""
        self.holder = ""
        """Whose share of the streams it counts in (:mod:`.stream_room`)."""
        self.heap_entry: float | None = None
        """The time of the one valid entry in the heap of timers."""

    @classmethod
    def started(cls, queue: StreamName, position: StreamPosition) -> IncomingStream:
        """A stream of which nothing is accepted yet; :meth:`accept` is next."""
        return cls(
            IncomingStreamRow(
                queue, position.id.guid, position.id.ordinal, 0, 0, "", "", None, 0, 0, 0, None
            )
        )

    def is_of_another(self, sender_name: str | None) -> bool:
        """Whether the stream belongs to another authenticated peer ([MC-MQSRM] 5.1): who began it alone may go on with it.

        On plain HTTP nothing is compared: an address proves nothing there, and an honest sender changes its own (DHCP, NAT,
        a second interface, fail-over of a cluster node). The operator is told of the change, though: :meth:`take_move`.
        """
        return self.sender_name is not None and sender_name != self.sender_name

    def gives_way_to(self, position: StreamPosition, sender_name: str | None) -> bool:
        """Whether the ``<start>`` of an authenticated peer begins the stream anew although its ordinal is not a higher one.

        Nobody authenticated began this one, so its ordinal proves nothing: anybody can choose the highest there is, or the one
        that is next, before the honest sender comes, and would have its messages taken for late copies, answered 200, for ever.
        At the same ordinal it may also be the first message again, of a sender that got a certificate in the first half second
        of its stream. It cannot be told from the other, for identifiers can be chosen too. It begins anew, and sends on from
        there; if it was told of more meanwhile, the rest stands behind a gap that an operator sees and accepts.
        """
        begins = position.start and position.current == 1
        return (
            begins
            and self.sender_name is None
            and sender_name is not None
            and position.id.ordinal <= self.ordinal
        )

    def refuses(self, position: StreamPosition) -> RepeatKind | None:
        """[MC-MQSRM] 3.1.5.1.6.3: ``None`` if one of the three criteria is met, else what kind of message it is."""
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
        """Take a position that :meth:`refuses` nothing of ([MC-MQSRM] 3.1.5.1.6.3 and .4); nothing is committed yet."""
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
        """Return where stream receipts go once ``position`` is accepted; changes nothing."""
        if position.id.ordinal != self.ordinal or self.sequence_number == 0:
            # A stream of which nothing is known but its name (a restored one) may go on without its <start>.
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
        if (
            self.receipt in _TIMER_RUNS
        ):  # it was owed to the stream that just ended, which nobody waits for any more
            self.receipt = ReceiptState.NOTHING_OWED
        elif self.receipt is ReceiptState.SENDING_AND_OWED:
            self.receipt = ReceiptState.SENDING

    def take_move(self, now: float) -> str | None:
        """The ``host:port`` that messages came from before they came from another host, once; else ``None``.

        On plain HTTP only, and at most once in :data:`MOVES_TOLD_S`: a sender with two addresses is no news every time.
        """
        moved_from, self.moved_from = self.moved_from, None
        if moved_from is None or now - self.move_told_at < MOVES_TOLD_S:
            return None
        self.move_told_at = now
        return moved_from

    def take_stale(self) -> bool:
        """Whether this is the first message of an earlier stream since the live one began, which is worth a word.

        It is a late copy, or its sender counts from where it stood before (a machine put back from an image) and is not heard.
        """
        told, self.stale_told = self.stale_told, True
        return not told

    def reject(self, position: StreamPosition, kind: RepeatKind) -> None:
        """Count a message that was not taken ([MC-MQSRM] 3.1.5.1.6.4, RejectCount)."""
        self.reject_count += 1
        if (
            kind == "gap"
            and position.id.ordinal == self.ordinal
            and position.current > self.sequence_number
        ):
            self.gap_at = self.sequence_number + 1
            self.gap_next = min(position.current, self.gap_next or position.current)

    def accept_gap(self) -> AcceptedGap | None:
        """An operator gives up what is missing; a second time, whatever comes next is taken, even beyond ``gap_next``.

        ``None``, and nothing changes, if nothing is missing now: later positions would be given up that nobody saw missing.
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
        """After a restart: what an operator gave up; nothing if that was another life of the stream, or the gap is over."""
        if (gap.stream_ordinal, gap.started_at, gap.after) == (
            self.ordinal,
            self.started_at,
            self.sequence_number,
        ):
            self.gap_at = gap.after + 1
            self.gap_next = gap.to
            self.gap_accepted = True

    def stored(self, ordinal: int, position: int, now: float) -> None:
        """``position`` of stream ``ordinal`` is on stable storage: (re)start the coalescing timer ([MC-MQSRM] 3.1.2.3).

        ``position`` 0 is a repeat of something stored.
        """
        if ordinal != self.ordinal:
            return  # a newer stream began while this one was being committed
        before, self.committed = self.committed, max(self.committed, position)
        if (
            now - self.stored_at >= STREAM_RECEIPT_COALESCING_S
        ):  # after a pause all that came before it is old enough
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
        """[MC-MQSRM] 3.1.6.3: the receipt for everything that has been committed for 500 ms."""
        self._move(ReceiptEvent.TIMER)
        since, last_ordinal = self.acknowledgeable()
        if last_ordinal < self.committed:  # forced by the 10 s while messages go on coming
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
        """The highest position that a receipt may name now, and a time before which nothing after it was stored."""
        if self.stored_at + STREAM_RECEIPT_COALESCING_S <= self.deadline:
            return self.deadline, self.committed
        return (
            self.recent
            if self.recent[0] + STREAM_RECEIPT_COALESCING_S <= self.deadline
            else self.settled
        )

    def receipt_delivered(self, stream_id: StreamId, last_ordinal: int) -> bool:
        """The peer took the receipt; whether LastAcknowledgedStreamMessage moved."""
        self._move(ReceiptEvent.DELIVERED)
        if stream_id.ordinal != self.ordinal or last_ordinal <= self.last_acknowledged:
            return False
        self.last_acknowledged = last_ordinal
        return True

    def receipt_failed(self, now: float, retransmission_timeout: float, permanent: bool) -> None:
        """The receipt did not arrive. 400 (``permanent``) is final until the stream goes on: repeating it cannot succeed."""
        self._move(ReceiptEvent.REFUSED if permanent else ReceiptEvent.FAILED)
        if not permanent:
            self.deadline = now + retransmission_timeout
            self.unacked_since = None

    def owe_receipt(self, at: float) -> None:
        """After a restart: nobody knows whether the last receipt arrived, so it is sent again."""
        self._move(ReceiptEvent.STORED)
        self.unacked_since = at
        self.deadline = at

    def _move(self, event: ReceiptEvent) -> None:
        state = TRANSITIONS.get((self.receipt, event))
        if state is None:
            raise LocalProtocolError(f"{event.name} cannot happen in {self!r}")
        self.receipt = state

    @property
    def id(self) -> StreamId:
        """Stream.IncomingId."""
        return StreamId(self.guid, self.ordinal)

    @property
    def timer_runs(self) -> bool:
        """Whether ``deadline`` counts."""
        return self.receipt in _TIMER_RUNS

    @property
    def receipt_on_its_way(self) -> bool:
        """Whether somebody owes us :meth:`receipt_delivered` or :meth:`receipt_failed`."""
        return self.receipt in _ON_ITS_WAY

    def row(self) -> IncomingStreamRow:
        """As it is saved, together with the rows up to ``sequence_number``."""
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
    """All incoming streams, their timers, and what of them is not saved yet."""

    stream_class: type[IncomingStream] = IncomingStream
    """What a stream is made of; the simulator puts a faulty one here to see that it is caught."""

    def __init__(self) -> None:
        self._streams: dict[tuple[StreamName, str], IncomingStream] = {}
        self._dirty: dict[tuple[StreamName, str], IncomingStream] = {}
        self._dropped: dict[tuple[StreamName, str], None] = {}
        self._accepted_gaps: dict[tuple[StreamName, str], AcceptedGap] = {}
        self._room: StreamRoom[IncomingStream] = StreamRoom()
        self._timers: list[tuple[float, int, IncomingStream]] = []
        self._timer_serial = 0
        self.forgotten = 0
        """Streams that made way for others since the start."""

    @classmethod
    def load(
        cls, rows: Iterable[IncomingStreamRow], accepted_gaps: Iterable[AcceptedGap] = ()
    ) -> IncomingStreams:
        """The streams as they were saved ([MC-MQSRM] 3.1.3.2); what is not acknowledged is owed at once.

        The text sets LastAcknowledgedStreamMessage to zero at start; the saved one spares peers a receipt per stream.
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
        """The stream of that sender which is counted by that name."""
        return self._streams.get((queue, guid))

    def put(self, stream: IncomingStream) -> None:
        """Keep ``stream``, new or changed, and save it with the next changes."""
        key = (stream.queue, stream.guid)
        before = self._streams.get(key)
        if before is not stream:
            if before is not None:
                self._room.remove(before)
            self._room.add(stream)
        self._streams[key] = self._dirty[key] = stream

    def make_room(self, peer: str, sender_name: str | None, at: int, now: float) -> str | None:
        """See to it that this sender may begin a further stream, by forgetting others if need be (:mod:`.stream_room`).

        ``None`` if it may, else why not, in words for an operator.
        """
        if self._room.full(peer, sender_name) is None:
            return None
        for stream in self._room.make_way(peer, sender_name, at, now):
            self.drop(stream.queue, stream.guid)
            self.forgotten += 1
        return self._room.full(peer, sender_name)

    def accept_gap(self, stream: IncomingStream) -> bool:
        """:meth:`IncomingStream.accept_gap`, saved with the next changes; whether there was a gap."""
        gap = stream.accept_gap()
        if gap is None:
            return False
        self._accepted_gaps[stream.queue, stream.guid] = gap
        return True

    def drop(self, queue: StreamName, guid: str) -> bool:
        """Forget a stream; the next message that can begin one from that sender begins it. Whether there was one."""
        stream = self._streams.pop((queue, guid), None)
        if stream is None:
            return False
        self._room.remove(stream)
        self._dirty.pop((queue, guid), None)
        self._accepted_gaps.pop((queue, guid), None)
        self._dropped[queue, guid] = None
        return True

    def arm(self, stream: IncomingStream) -> None:
        """Note the deadline of a stream. An entry that is too early is moved when it comes up: the usual case, and cheap."""
        if stream.timer_runs and (stream.heap_entry is None or stream.deadline < stream.heap_entry):
            self._push(stream)

    def _push(self, stream: IncomingStream) -> None:
        self._timer_serial += 1
        stream.heap_entry = stream.deadline
        heapq.heappush(self._timers, (stream.deadline, self._timer_serial, stream))

    def next_timer(self) -> float | None:
        """When :meth:`due` has something to do, on the monotonic clock."""
        timers = self._timers
        while timers:
            deadline, _, stream = timers[0]
            if deadline != stream.heap_entry:
                heapq.heappop(timers)  # an earlier one was pushed since
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
        """The receipts whose time has come."""
        receipts = []
        while (deadline := self.next_timer()) is not None and deadline <= now:
            stream = heapq.heappop(self._timers)[2]
            stream.heap_entry = None
            receipts.append(stream.receipt_due())
        return receipts

    def take_changes(
        self,
    ) -> tuple[list[IncomingStreamRow], list[tuple[StreamName, str]], list[AcceptedGap]]:
        """What changed since the last call: rows to insert or replace, keys to delete before, and gaps that were accepted."""
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
