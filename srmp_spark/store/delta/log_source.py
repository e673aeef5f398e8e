"""The interface between the publisher and the queue manager's log.

The publisher needs one consistent snapshot, and rows by range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from srmp_spark.store.tables.losses import StoredLoss


class LogRange(NamedTuple):
    """The rows that the log holds of one queue in one epoch.

    ``end`` is the last sequence that the epoch has issued.
    """

    epoch: str
    queue: str
    start: int
    """The first sequence that the epoch issued, or would issue."""
    first: int
    """The oldest sequence that retention has left; ``end`` + 1 if there is none."""
    end: int
    current: bool = True
    """Whether this is the present epoch.

    ``False`` means that the queue continues in a later epoch, after the directory was copied or
    restored from a backup.
    """


class HistoryRow(NamedTuple):
    """A run of consecutive message identifiers of received messages, with one lineage (GUID).

    Times are in microseconds since 1970, UTC.
    """

    lineage: str
    uniquifier_first: int
    uniquifier_last: int
    last_received_at: int


class StreamRow(NamedTuple):
    """A row of the Delta table ``incoming_streams``: an incoming stream.

    Times are in microseconds since 1970, UTC.
    """

    queue: str
    source_qm: str
    stream_id: str
    sequence_number: int
    last_acknowledged: int
    send_receipts_to: str | None
    peer: str | None
    reject_count: int
    started_at: int | None
    last_access_at: int | None
    sender_name: str | None = None
    """Name of the authenticated peer that began the stream, if it was authenticated."""


class QueueRow(NamedTuple):
    """A row of the Delta table ``queues``: a queue, existing or deleted.

    ``epochs``, ``holes`` and ``consumers`` are lists as JSON text.
    """

    queue: str
    transactional: bool
    paused: bool
    options: str
    trimmed_to: int
    deleted_at: int | None
    epochs: str
    holes: str
    consumers: str


class CounterRow(NamedTuple):
    """A counter: numbers of ``name`` up to ``ceiling`` may have been issued."""

    name: str
    ceiling: int


class WsrmSequenceRow(NamedTuple):
    """A row of the Delta table ``wsrm_sequences``: an incoming WS-ReliableMessaging sequence.

    Times are in microseconds since 1970, UTC.
    """

    queue: str
    identifier: str
    create_id: str
    soap: str
    addressing: str
    rm: str
    acks_to: str
    state: str
    accepted: int
    last_number: int | None
    expires_at: int | None
    peer: str
    sender_name: str | None
    created_at: int
    changed_at: int
    returns: str


class Snapshot(NamedTuple):
    """The state of the log after commit ``position``, read in one transaction."""

    position: int
    ranges: Sequence[LogRange]
    streams: Sequence[tuple[Any, ...]]
    """Fields of :class:`StreamRow`, as plain tuples, because there can be 100,000 streams."""
    queues: Sequence[QueueRow] = ()
    counters: Sequence[CounterRow] = ()
    restores: int = 0
    """How often this queue manager was restored before this data directory was created."""
    losses: Sequence[StoredLoss] = ()
    """Stored losses of multicast messages; the table ``pgm_loss`` may have them already."""
    sequences: Sequence[WsrmSequenceRow] = ()


class LogSource(Protocol):
    """Reads the log of a queue manager for the publisher."""

    def stamp(self) -> object:
        """Return a value that differs from an earlier value if anything was committed in between.

        Values are compared for equality only. Commits of every program count. Call this method
        before :meth:`snapshot`. Then a commit between the two calls is published and also changes
        the next stamp. So no commit is missed.
        """

    def snapshot(self) -> Snapshot:
        """Return the state of the log after its last commit."""

    def identifiers(self) -> Iterator[Sequence[HistoryRow]]:
        """Yield the runs of message identifiers, page by page, because there can be millions.

        A run that existed at the call is in one of the pages, alone or as a part of a longer run,
        unless it was deleted meanwhile. A run that grows meanwhile may be yielded twice, shorter
        and longer.
        """

    def batches(self, epoch: str, queue: str, after: int, to: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in (after, to] in order, with the columns of the Spark source.

        Sequences above ``after`` up to and including ``to`` are read. Batches have a limited size,
        and holes are left out. Raises :class:`.StoreDamagedError` if rows cannot be read.
        """
