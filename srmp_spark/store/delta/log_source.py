"""What the publisher needs of the queue manager's log: one consistent look, and rows by range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from srmp_spark.store.losses import StoredLoss


class LogRange(NamedTuple):
    """What the log holds of one queue in one epoch."""

    epoch: str
    queue: str
    start: int
    """The first sequence that the epoch gave out, or would give."""
    first: int
    """The oldest one that retention left; ``end`` + 1 if none."""
    end: int
    current: bool = True
    """False: the queue goes on in a later epoch, after the directory was copied or put back from a backup."""


class HistoryRow(NamedTuple):
    """A run of identifiers; times in microseconds since 1970, UTC."""

    lineage: str
    uniquifier_first: int
    uniquifier_last: int
    last_received_at: int


class StreamRow(NamedTuple):
    """An incoming stream; times in microseconds since 1970, UTC."""

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
    """Whose it is, if an authenticated peer began it."""


class QueueRow(NamedTuple):
    """A queue, also one that was deleted; lists as JSON."""

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
    """Numbers of which some may be given out already: all up to ``ceiling``."""

    name: str
    ceiling: int


class SequenceRow(NamedTuple):
    """An incoming sequence of WS-ReliableMessaging; times in microseconds since 1970, UTC."""

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
    """One read transaction: everything in it belongs to commit ``position``."""

    position: int
    ranges: Sequence[LogRange]
    streams: Sequence[tuple[Any, ...]]
    """Fields of :class:`StreamRow`, as plain tuples: there can be 100,000."""
    queues: Sequence[QueueRow] = ()
    counters: Sequence[CounterRow] = ()
    restores: int = 0
    """How often this queue manager had lost its disk and was restored, when this data directory was made."""
    losses: Sequence[StoredLoss] = ()
    """Of multicast messages, those that are kept: ``pgm_loss`` may have them already."""
    sequences: Sequence[SequenceRow] = ()


class LogSource(Protocol):
    """The log, read-only."""

    def stamp(self) -> object:
        """Return a value that differs from an earlier one if anything was committed in between, by whatever program.

        Ask before :meth:`snapshot`: what is committed between the two calls is then looked at twice, and not never.
        """

    def snapshot(self) -> Snapshot:
        """The log as one commit left it."""

    def identifiers(self) -> Iterator[Sequence[HistoryRow]]:
        """The runs of message identifiers, page by page: there can be millions. All that were there at the call are in one of
        them; a run that grows meanwhile may come twice, shorter and longer."""

    def batches(self, epoch: str, queue: str, after: int, to: int) -> Iterator[pa.RecordBatch]:
        """The rows in (after, to] in order, with the columns of the source; bounded batches, purged rows left out."""
