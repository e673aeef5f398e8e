"""Show the journal of a queue: the rows that an application has received ([MS-MQMQ] 2.1.2).

It is switched on by ``--queue NAME:journal`` (target journaling) and read as
``private$/orders;journal``. MSMQ puts a copy of each message that an application receives into the
queue's journal. The queues of srmp-spark are logs: a received row is not deleted, it has a mark. So
the journal is no second copy but a view of the same rows, up to the mark of the ``default``
consumer (:mod:`.consumers`), with the same sequences and with consumers of its own. Nothing is
written when a row is received. So no crash can lose a copy or make two, and a mark over a million
rows costs no more than without a journal.

    trimmed … after … received from the journal … the queue's mark … end
              └──────────────── journal ────────────────┘

- The journal begins with the rows that are received after it was switched on. A row that was
  received out of turn is in the journal as soon as all rows before it are received. Purged rows
  were never received: they are holes in the journal too.
- It shows rows that are received for good: it follows the mark as it is on stable storage. A
  reader that saw a row before that would know more than the queue manager does after a kill.
- It is read only: nothing is sent to it, and :meth:`QueueJournal.purge` moves a mark.
- Retention deletes its rows by age, as for the queue. Once a client receives from the journal
  (its own ``default`` consumer exists), a row waits for that mark too. That mark begins where
  the journal begins: earlier rows were never in the journal, and no client will mark them.
"""

from __future__ import annotations

import shlex
import sqlite3
from typing import NamedTuple

from srmp_spark.names import JOURNAL_SUFFIX, base_of_journal
from srmp_spark.queue_manager.queues.catalogue import EpochSpan, Queue
from srmp_spark.queue_manager.queues.consumers import Consumer
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.receiving.destinations import QueueState
from srmp_spark.store.tables import state
from srmp_spark.store.tables.waiting import WaitingRows


class QueueJournal(Queue):
    """The journal of one queue. :meth:`marks_moved` brings it up to date with the queue."""

    __slots__ = ("_after", "_of")

    def __init__(self, of: Queue, after: int, waiting: WaitingRows) -> None:
        """Create the journal of the queue ``of``.

        ``after`` is the default consumer's mark when the journal was switched on. ``waiting`` holds
        the rows that are not received from the journal, and all rows that follow.
        """
        name = of.name + JOURNAL_SUFFIX
        kind = QueueState(
            name=name, transactional=of.state.transactional, multicast=of.state.multicast
        )
        super().__init__(of.id, name, kind, of.epochs, of.trimmed_to, 0, waiting, damage=of.damage)
        self._of = of
        self._after = after
        self.follow()

    @property
    def log_name(self) -> str:
        """Return the name of the queue whose log holds the rows."""
        return self._of.name

    @property
    def held_bytes(self) -> int:
        """Return the number of bytes that are in the journal and not received from it.

        The number is inexact, because :class:`.WaitingRows` counts the bytes of rows in groups, and
        a mark may lie inside a group.
        """
        return max(0, self.waiting.bytes - self._of.waiting.bytes)

    def consumer(self, name: str) -> Consumer:
        """Return the consumer ``name`` of the journal. Create it in memory if it does not exist.

        Rows that are not in the journal, because they are trimmed or older than the journal, are
        marked as received. Raises :class:`ApiError` as :meth:`.catalogue.Queue.consumer`.
        """
        found = super().consumer(name)
        found.skip_to(self.trimmed_to)
        return found

    def stored_name(self, consumer: str) -> str:
        """Return the name under which the database has the journal's consumer ``consumer``.

        It is saved among those of the queue, under a name that no consumer of the queue can have.
        """
        return state.JOURNAL_CONSUMERS + consumer

    def span(self, epoch: str | None) -> EpochSpan:
        """Return the range of sequences of an epoch, as far as the journal has reached.

        ``None`` means the epoch in which the journal ends. Raises :class:`ApiError` (409) if the
        queue has no such epoch.
        """
        if epoch is None:
            epoch = next(each.epoch for each in reversed(self.epochs) if each.first <= self.end + 1)
        whole = super().span(epoch)
        if self.end >= whole.end and whole.next_epoch is not None:
            return whole
        # The queue may be in its next epoch while rows of this epoch are not received yet.
        end = max(self.end, whole.begin - 1)
        first = min(max(whole.begin, self.trimmed_to + 1), end + 1)
        return whole._replace(first=first, end=end, next_epoch=None)

    def marks_moved(self) -> None:
        """Follow the marks of the queue, or of the journal's consumers: they have changed."""
        self.follow()

    def follow(self) -> None:
        """Extend the journal to the rows that the queue's default consumer has received durably.

        Also counts again which rows wait in the journal, and wakes its long polls.
        """
        of = self._of
        self.trimmed_to = max(of.trimmed_to, self._after)
        default = self.default
        end = max(of.default.stored_received, self.trimmed_to)
        self.waiting.receive(
            max(default.received, self.trimmed_to), default.ahead, default.take_touched()
        )
        if end > self.end:
            self.end = end
            self.wake()
        self.state.count = self.waiting_for(default)

    def purge(self, spared: SequenceSet) -> int:
        """Mark the rows that wait in the journal as received, in memory. Return their number.

        The caller saves the journal's default consumer. The rows stay with the queue until
        retention deletes them. The rows of ``spared`` keep waiting.
        """
        count = self.state.count
        self.default.skip_all_but(self.end, spared)
        self.follow()
        return count - self.state.count


class JournalSwitch(NamedTuple):
    """The journal option of a queue, as it is stored: the mark after which the journal begins."""

    after: int

    @classmethod
    def of(cls, options: dict[str, object]) -> JournalSwitch | None:
        """Return the journal option in the stored ``options``, or ``None`` for no journal."""
        after = options.get("journal_after")
        return cls(after) if isinstance(after, int) else None


def open_journal(queue: Queue, switch: JournalSwitch, connection: sqlite3.Connection) -> None:
    """Set ``queue.journal`` to the journal that is stored. Load its consumers after this."""
    received = state.received_from_journal(connection, queue.id) or 0
    queue.journal = QueueJournal(
        queue, switch.after, WaitingRows.load(connection, queue.id, max(received, switch.after))
    )


def begin_journal(queue: Queue) -> JournalSwitch:
    """Set ``queue.journal`` to a journal that begins now. Return the option to store.

    The caller stores the option.
    """
    switch = JournalSwitch(queue.default.received)
    queue.journal = QueueJournal(queue, switch.after, queue.waiting.copy())
    return switch


def queue_of_consumer(queue: Queue, consumer: str) -> tuple[Queue, str] | None:
    """Return the queue or journal to which a stored consumer belongs, and the consumer's name.

    ``consumer`` is the name in the database. Return ``None`` for a consumer of a journal that was
    switched off.
    """
    if not consumer.startswith(state.JOURNAL_CONSUMERS):
        return queue, consumer
    if queue.journal is None:
        return None
    return queue.journal, consumer.removeprefix(state.JOURNAL_CONSUMERS)


def journal_hint(name: str) -> str:
    """Return a hint for an error about the name of a journal."""
    return (
        f"srmp-spark queue set {shlex.quote(base_of_journal(name) or name)} journal=on, or "
        "journal=off, switches a journal"
    )
