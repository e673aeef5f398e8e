"""The results of the receiving engine: values, never actions.

The types enforce the one order that is critical. An accepted message becomes an :class:`Accepted`,
which is no answer. The only answer of 200 is :class:`Ok`. An ``Ok`` needs a :class:`Committed`, and
only the store creates a ``Committed``, after its sync has returned. ``tests/engine/test_proof.py``
reads the source to check that no other code creates one.

    receive() → Refused ──────────────────────────────→ 400 or 503
              → Accepted, Repeated ──→ store: rows + changes(), sync
                                         ──→ Committed ──→ committed() → Ok → 200
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.receiving.decisions import Reason, Undecided
from srmp_spark.srmp.receiving.history import HistoryChanges
from srmp_spark.srmp.receiving.incoming_streams import IncomingStream
from srmp_spark.srmp.receiving.stream_effects import AcceptedGap, IncomingStreamRow, RepeatKind
from srmp_spark.srmp.receiving.stream_name import StreamName


class Committed:
    """Proves that everything up to commit number ``position`` is on stable storage.

    Only the store creates this proof, after its sync.
    """

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __repr__(self) -> str:
        return f"Committed({self.position})"


class Refused(NamedTuple):
    """The refusal of one message: it is answered with ``status``, and nothing of it is kept.

    400 means "can never succeed", and the sender deletes the message. 503 means a problem of this
    queue manager. 401 and 403 mean that this sender has no permission at present. After these three
    the sender keeps the message.
    """

    status: int
    reason: str
    """Short constant text for the metric ``srmp_messages_refused_total{status,reason}``."""
    message: str
    """Text for the log and for the body of the answer: what was wrong and what to do next."""
    section: str
    retry_after: int | None = None
    """Seconds for ``Retry-After``; only with 503."""


class OwedReceipt(NamedTuple):
    """A receipt that the peer requested.

    The receipt is stored in the transaction that stores the message, and is sent until it is
    delivered.
    """

    kind: Literal["delivery"]
    url: str
    """``<sendTo>`` as it was sent. The allow-list decides whether this URL may be called."""
    queue: str
    lineage: str
    uniquifier: int
    arrived_at: int
    """Time of arrival in microseconds since 1970, UTC: the ``<receivedAt>`` of the receipt."""
    action: str
    """``<action>`` of the message. The receipt repeats its label."""
    peer: str
    sender_name: str | None = None
    """Authenticated name of the message's sender.

    The allow-list compares its host with the host of ``url``.
    """

    def payload(self) -> str:
        """Return the receipt as text for the table ``owed_receipts``.

        A receipt without ``sender_name`` has the form of version 0.1, which has no such field.
        """
        fields = self._asdict()
        if self.sender_name is None:
            del fields["sender_name"]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_payload(cls, payload: str) -> OwedReceipt:
        """Return the receipt that :meth:`payload` encoded."""
        return cls(**json.loads(payload))


class StreamMark(NamedTuple):
    """The position in a stream that becomes durable with the commit of a stream message."""

    stream: IncomingStream
    ordinal: int
    position: int
    """Committed position. 0 stands for a repeated message, which moves no position but requests the
    receipt again.
    """


class Accepted(NamedTuple):
    """A message that becomes row ``sequence`` of ``queue``.

    The sender gets its answer when :meth:`Receiver.committed` returns the :class:`Ok` of this
    value.
    """

    queue: str
    sequence: int
    owed: tuple[OwedReceipt, ...]
    mark: StreamMark | None
    generation: int
    """Number of the call of :meth:`Receiver.changes` whose changes must be committed first."""
    undecided: Undecided | None = None
    """The receipts that the row requests about its end, to be stored with the row."""

    @property
    def needs_commit(self) -> bool:
        """Return True, because the row must always be committed."""
        return True


class Repeated(NamedTuple):
    """A message that becomes no row and is answered 200.

    The answer is sent when the original of the repeated message is committed.
    """

    queue: str
    kind: RepeatKind
    mark: StreamMark | None
    generation: int
    """Number of the call of :meth:`Receiver.changes` whose changes must be committed first.

    The original may not be on the disk yet.
    """
    moved: Undecided | None = None
    """Set if the message has a new position in its stream now, which its final receipt must name.

    The sequence of its row is unknown.
    """
    discarded: Undecided | None = None
    """Set if the message is not kept (:data:`.stream_effects.DiscardKind`): the receipts that it
    requests about its end.
    """

    @property
    def discarded_for(self) -> Reason:
        """Return the reason that the receipts of a discarded message give.

        The reason is NackReceiveTimeout for an expired message, and NackReceiveRejected for a
        message whose signature is invalid.
        """
        return Reason.EXPIRED if self.kind == "expired" else Reason.REJECTED

    @property
    def needs_commit(self) -> bool:
        """Return whether a stream position moved without a row, so that a new commit is needed.

        The stream receipt for this position waits for that commit. In all other cases the last
        commit is sufficient.
        """
        return self.mark is not None and self.mark.position != 0


Pending = Accepted | Repeated


class Ok:
    """The answer 200 to ``pending``.

    After this answer this queue manager is responsible for the message ([MC-MQSRM] 3.1.7.2.5).
    """

    __slots__ = ("pending",)
    status = 200

    def __init__(self, pending: Pending, proof: Committed) -> None:
        if type(proof) is not Committed:
            raise LocalProtocolError(f"a 200 needs the store's proof of a commit, got {proof!r}")
        self.pending = pending

    def __repr__(self) -> str:
        return f"Ok({self.pending!r})"


class Changes(NamedTuple):
    """The changes to write in one transaction.

    This transaction also holds the rows that were accepted since the last changes.
    """

    streams: list[IncomingStreamRow]
    history: HistoryChanges
    dropped_streams: list[tuple[StreamName, str]]
    """Keys (queue, guid) to delete before ``streams`` is written."""
    generation: int
    accepted_gaps: Sequence[AcceptedGap] = ()
    """Gaps to insert or replace, by (queue, guid)."""

    def __bool__(self) -> bool:
        """Return False if there is nothing to write."""
        history = self.history
        return (
            len(self.streams)
            + len(self.dropped_streams)
            + len(history.upserts)
            + len(history.deletes)
            + len(self.accepted_gaps)
            > 0
        )
