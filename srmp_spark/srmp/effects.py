"""What comes out of the receiving engine: values, never actions.

The dangerous order is in the types. A message that is taken becomes an :class:`Accepted`, which is no answer. The only
answer of 200 is :class:`Ok`; an ``Ok`` needs a :class:`Committed`; and a ``Committed`` is made by the store alone, after its
sync returned (``tests/engine/test_proof.py`` reads the source to see that nobody else does).

    receive() → Refused ─────────────────────────────────────────────→ 400 or 503
              → Accepted, Repeated ──→ store: rows + changes(), sync ──→ Committed ──→ committed() → Ok → 200
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.decisions import Reason, Undecided
from srmp_spark.srmp.history import HistoryChanges
from srmp_spark.srmp.incoming_streams import IncomingStream
from srmp_spark.srmp.stream_effects import AcceptedGap, IncomingStreamRow, RepeatKind
from srmp_spark.srmp.stream_name import StreamName


class Committed:
    """Proof that everything up to commit number ``position`` is on stable storage. Only the store makes one, after its sync."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __repr__(self) -> str:
        return f"Committed({self.position})"


class Refused(NamedTuple):
    """Answer ``status`` and keep nothing. 400 means "can never succeed": the sender deletes the message. Our trouble is 503;
    403 and 401, that this sender may not, as things stand: it keeps the message."""

    status: int
    reason: str
    """Short and constant, for the metric ``srmp_messages_refused_total{status,reason}``."""
    message: str
    """For the log and the body of the answer: what was wrong and what to do next."""
    section: str
    retry_after: int | None = None
    """Seconds, for ``Retry-After``; only with 503."""


class OwedReceipt(NamedTuple):
    """A receipt that the peer asked for, stored in the transaction that holds the message and sent until it is delivered."""

    kind: Literal["delivery"]
    url: str
    """``<sendTo>`` as sent; whether we call it is for the allow-list to say."""
    queue: str
    lineage: str
    uniquifier: int
    arrived_at: int
    """Microseconds since 1970, UTC: the ``<receivedAt>`` of the receipt."""
    action: str
    """``<action>`` of the message, whose label the receipt repeats."""
    peer: str
    sender_name: str | None = None
    """The authenticated name of who sent the message: the allow-list compares its host with that of ``url``."""

    def payload(self) -> str:
        """As text, for the table ``owed_receipts``. Without a name as version 0.1 wrote it, which knows none."""
        fields = self._asdict()
        if self.sender_name is None:
            del fields["sender_name"]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_payload(cls, payload: str) -> OwedReceipt:
        """The receipt of :meth:`payload`."""
        return cls(**json.loads(payload))


class StreamMark(NamedTuple):
    """What the commit of a stream message makes true of its stream."""

    stream: IncomingStream
    ordinal: int
    position: int
    """0 for a repeat, which moves nothing but asks for the receipt again."""


class Accepted(NamedTuple):
    """Insert a row: ``sequence`` of ``queue``; answer when :meth:`Receiver.committed` returns its :class:`Ok`."""

    queue: str
    sequence: int
    owed: tuple[OwedReceipt, ...]
    mark: StreamMark | None
    generation: int
    """Which call of :meth:`Receiver.changes` this one needs committed."""
    undecided: Undecided | None = None
    """What the row asks to be told of its end, to be stored with it."""

    @property
    def needs_commit(self) -> bool:
        """Always: there is a row to save."""
        return True


class Repeated(NamedTuple):
    """No row, but 200, once whatever it repeats is committed."""

    queue: str
    kind: RepeatKind
    mark: StreamMark | None
    generation: int
    """Which call of :meth:`Receiver.changes` must be committed first: the original may still be on its way to the disk."""
    moved: Undecided | None = None
    """The message stands at another place of its stream now: a final receipt must name that one. Its sequence is not known."""
    discarded: Undecided | None = None
    """The message is not to be kept (:data:`.stream_effects.DiscardKind`): this is what it asks to be told."""

    @property
    def discarded_for(self) -> Reason:
        """What is told of it: NackReceiveTimeout, or NackReceiveRejected for one whose signature does not fit."""
        return Reason.EXPIRED if self.kind == "expired" else Reason.REJECTED

    @property
    def needs_commit(self) -> bool:
        """True if a position moved without a row: the receipt for it waits for a commit. Else the last commit will do."""
        return self.mark is not None and self.mark.position != 0


Pending = Accepted | Repeated


class Ok:
    """Answer 200 to ``pending``: the responsibility for the message is now ours ([MC-MQSRM] 3.1.7.2.5)."""

    __slots__ = ("pending",)
    status = 200

    def __init__(self, pending: Pending, proof: Committed) -> None:
        if type(proof) is not Committed:
            raise LocalProtocolError(f"a 200 needs the store's proof of a commit, got {proof!r}")
        self.pending = pending

    def __repr__(self) -> str:
        return f"Ok({self.pending!r})"


class Changes(NamedTuple):
    """What must be written in the one transaction that also holds the rows accepted since the last changes."""

    streams: list[IncomingStreamRow]
    history: HistoryChanges
    dropped_streams: list[tuple[StreamName, str]]
    """Keys (queue, guid) to delete before ``streams`` is written."""
    generation: int
    accepted_gaps: Sequence[AcceptedGap] = ()
    """To insert or replace, by (queue, guid)."""

    def __bool__(self) -> bool:
        """False if there is nothing to write."""
        history = self.history
        return (
            len(self.streams)
            + len(self.dropped_streams)
            + len(history.upserts)
            + len(history.deletes)
            + len(self.accepted_gaps)
            > 0
        )
