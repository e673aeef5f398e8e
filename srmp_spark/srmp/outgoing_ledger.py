"""What the sending engine did and nobody has stored yet, and the numbers that all its queues share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.outgoing_effects import (
    DeadLetter,
    OutgoingChanges,
    OutgoingQueueRow,
    QueueKey,
    SerialRun,
)

STREAM_STAMP_MAX = 2**32 - 1
"""The time stamp in a stream identifier is 32 bits of seconds since 1970 ([MC-MQSRM] 2.2.5.3.1): until 2106."""


class Saved(Hashable, Protocol):
    """What has a row: an outgoing queue."""

    key: QueueKey

    def release(self) -> None:
        """Raise how far messages may leave, before the row is taken."""

    def row(self) -> OutgoingQueueRow:
        """As it is to be written."""


class OutgoingLedger:
    """Collects for one transaction; each queue writes into it."""

    def __init__(self, last_stream_ordinal: int = 0) -> None:
        self.last_stream_ordinal = last_stream_ordinal
        self.generation = 0
        """How often the changes were taken. What is noted now comes with the next: ``generation + 1``."""
        self.streams: dict[int, QueueKey] = {}
        """Whose the live streams are, by the ordinal of their identifier."""
        self.receipts_url = ""
        """Where the receipts of streams go that begin now; if empty, where those of the stream before went."""
        self.replaces_receipts_url: Callable[[str, str], str] = lambda _, url: url
        """What a peer is told instead, by its destination ([MC-MQSRM] 3.1.7.2.4)."""
        self.releases = True
        """Whether further messages may leave when changes are stored; False at the end of the process."""
        self._queues: dict[Saved, None] = {}
        self._finished: list[SerialRun] = []
        self._dead_letters: list[DeadLetter] = []
        self._forgotten: list[QueueKey] = []
        self._numbers = 0

    def next_number(self) -> int:
        """A number for a load or a sending; it means nothing beyond this process."""
        self._numbers += 1
        return self._numbers

    def new_stream_ordinal(self, at: int) -> int:
        r"""The N of a new stream ``uid:GUID\N``: the second in which it begins above, an ordinal below (2.2.5.3.1).

        It always grows, also when the wall clock was set back: a peer takes a lower one for a late copy. The time stamp is
        what keeps it growing when the disk with the ordinal was lost.
        """
        stamp = min(max(at // 1_000_000, 0), STREAM_STAMP_MAX)
        low = (self.last_stream_ordinal & 0xFFFF_FFFF) + 1
        self.last_stream_ordinal = max(
            (stamp << 32) | (low & 0xFFFF_FFFF), self.last_stream_ordinal + 1
        )
        return self.last_stream_ordinal

    def touch(self, queue: Saved) -> None:
        """The row of ``queue`` is to be written."""
        self._queues[queue] = None

    def finish(self, key: QueueKey, first: int, last: int) -> None:
        """These messages have arrived."""
        finished = self._finished
        if finished and finished[-1].key == key and finished[-1].last + 1 == first:
            finished[-1] = SerialRun(key, finished[-1].first, last)
        else:
            finished.append(SerialRun(key, first, last))

    def bury(self, letter: DeadLetter) -> None:
        """These messages will not arrive."""
        self._dead_letters.append(letter)

    def forget(self, queue: Saved) -> None:
        """A queue is gone."""
        self._queues.pop(queue, None)
        self._forgotten.append(queue.key)

    def __len__(self) -> int:
        return (
            len(self._queues) + len(self._finished) + len(self._dead_letters) + len(self._forgotten)
        )

    def take(self) -> OutgoingChanges:
        """Everything since the last call."""
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
        """Raise :class:`LocalProtocolError` unless ``generation`` was taken and follows the one that was stored last."""
        if not stored < generation <= self.generation:
            raise LocalProtocolError(
                f"changes {generation} cannot be the next to be committed: {stored} are, "
                f"{self.generation} were taken"
            )
