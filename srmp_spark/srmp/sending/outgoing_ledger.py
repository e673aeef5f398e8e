"""Collects the changes of the sending engine until they are stored.

This module also keeps the numbers that all outgoing queues share.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    OutgoingChanges,
    OutgoingQueueRow,
    QueueKey,
    SerialRun,
)

STREAM_STAMP_MAX = 2**32 - 1
"""Largest time stamp in a stream identifier: 32 bits of seconds since 1970 ([MC-MQSRM] 2.2.5.3.1),
until 2106. Later times use this stamp.
"""


class Saved(Hashable, Protocol):
    """The part of an outgoing queue that :class:`OutgoingLedger` needs to save its row."""

    key: QueueKey

    def release(self) -> None:
        """Raise the serial up to which messages may be sent, before the row is built."""

    def row(self) -> OutgoingQueueRow:
        """Return the row to write."""


class OutgoingLedger:
    """Collects the changes of all outgoing queues until one transaction stores them."""

    def __init__(self, last_stream_ordinal: int = 0) -> None:
        self.last_stream_ordinal = last_stream_ordinal
        self.generation = 0
        """Number of times that the changes were taken.

        A change that is recorded now is taken as ``generation + 1``.
        """
        self.streams: dict[int, QueueKey] = {}
        """Key of the outgoing queue for each live stream, by the ordinal of the stream's
        identifier.
        """
        self.receipts_url = ""
        """URL for the receipts of new streams.

        If empty, a new stream uses the URL of the stream before it.
        """
        self.replaces_receipts_url: Callable[[str, str], str] = lambda _, url: url
        """Returns the URL that a peer is given instead, for a destination and a URL ([MC-MQSRM]
        3.1.7.2.4).
        """
        self.releases = True
        """Whether storing changes allows further messages to be sent; False at the end of the
        process.
        """
        self._queues: dict[Saved, None] = {}
        self._finished: list[SerialRun] = []
        self._dead_letters: list[DeadLetter] = []
        self._forgotten: list[QueueKey] = []
        self._numbers = 0

    def next_number(self) -> int:
        """Return the next number for a load or a sending, unique within this process."""
        self._numbers += 1
        return self._numbers

    def new_stream_ordinal(self, at: int) -> int:
        r"""Return the N of a new stream ``uid:GUID\N`` ([MC-MQSRM] 2.2.5.3.1).

        The high half is the second in which the stream begins, and the low half counts. ``at`` is
        in microseconds since 1970. N always grows, also when the wall clock was set back, because a
        peer takes a lower N for a late copy. The time stamp keeps N growing even if the disk with
        the last ordinal was lost.
        """
        stamp = min(max(at // 1_000_000, 0), STREAM_STAMP_MAX)
        low = (self.last_stream_ordinal & 0xFFFF_FFFF) + 1
        self.last_stream_ordinal = max(
            (stamp << 32) | (low & 0xFFFF_FFFF), self.last_stream_ordinal + 1
        )
        return self.last_stream_ordinal

    def touch(self, queue: Saved) -> None:
        """Record that the row of ``queue`` must be written with the next changes."""
        self._queues[queue] = None

    def finish(self, key: QueueKey, first: int, last: int) -> None:
        """Record that a queue's messages ``first`` to ``last``, both included, were delivered."""
        finished = self._finished
        if finished and finished[-1].key == key and finished[-1].last + 1 == first:
            finished[-1] = SerialRun(key, finished[-1].first, last)
        else:
            finished.append(SerialRun(key, first, last))

    def bury(self, letter: DeadLetter) -> None:
        """Record that the messages of ``letter`` will not arrive, and become dead letters."""
        self._dead_letters.append(letter)

    def forget(self, queue: Saved) -> None:
        """Record that the row of a queue is to be deleted, because the queue has no messages."""
        self._queues.pop(queue, None)
        self._forgotten.append(queue.key)

    def __len__(self) -> int:
        return (
            len(self._queues) + len(self._finished) + len(self._dead_letters) + len(self._forgotten)
        )

    def take(self) -> OutgoingChanges:
        """Return and forget all changes since the last call, and count :attr:`generation` up.

        Unless :attr:`releases` is False, each changed queue is first allowed to send further
        messages (:meth:`Saved.release`), because its row is written in any case.
        """
        self.generation += 1
        if self.releases:
            for queue in self._queues:
                queue.release()
        changes = OutgoingChanges(
            [queue.row() for queue in self._queues],
            self._finished,
            self._dead_letters,
            self._forgotten,
            self.last_stream_ordinal,
            self.generation,
        )
        self._queues = {}
        self._finished, self._dead_letters, self._forgotten = [], [], []
        return changes

    def check(self, generation: int, stored: int) -> None:
        """Raise :class:`LocalProtocolError` unless ``generation`` may be committed next.

        The generation must have been taken, and it must be later than ``stored``, the generation
        that was stored last.
        """
        if not stored < generation <= self.generation:
            raise LocalProtocolError(
                f"changes {generation} cannot be the next to be committed: {stored} are, "
                f"{self.generation} were taken"
            )
