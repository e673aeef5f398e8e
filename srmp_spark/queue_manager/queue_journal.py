"""The journal of a queue: target journaling, ``--queue NAME:journal``, read as ``private$/orders;journal`` ([MS-MQMQ] 2.1.2).

MSMQ puts a copy of each message that an application receives into the queue's journal. Our queues are logs: a received row is
not deleted, it has a mark. So the journal is no second copy but a view of the same rows, up to the mark of the ``default``
consumer, with the same sequences and consumers of its own. Nothing is written when a row is received, so no crash can lose a
copy or make two, and a mark over a million rows costs what it always costs.

    trimmed … after … received from the journal … the queue's mark … end
              └──────────────── journal ────────────────┘

- It begins with what is received after it was switched on. A row that was received out of turn is in it as soon as all before
  it are received. Purged rows were never received: they are holes here as there.
- It shows what is received for good: it follows the mark as it is on stable storage. A reader that is shown a row before that
  knows more than we do after a kill.
- It is read only: nothing is sent to it, and :meth:`QueueJournal.purge` moves a mark.
- Retention goes by time, as for the queue; once somebody receives from the journal (its own ``default`` consumer exists), a
  row waits for that mark too. It begins where the journal does: what lies before was never in it, and nobody will mark it.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from srmp_spark.names import JOURNAL_SUFFIX, base_of_journal
from srmp_spark.queue_manager.catalogue import EpochSpan, Queue
from srmp_spark.queue_manager.consumers import Consumer
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.destinations import QueueState
from srmp_spark.store import state
from srmp_spark.store.waiting import Waiting


class QueueJournal(Queue):
    """The journal of one queue; :meth:`marks_moved` brings it up to date with the queue."""

    __slots__ = ("_after", "_of")

    def __init__(self, of: Queue, after: int, waiting: Waiting) -> None:
        """``after`` is the queue's mark when the journal was switched on; ``waiting`` what is not received from the journal,
        and all that follows."""
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
        """Whose rows these are."""
        return self._of.name

    @property
    def held_bytes(self) -> int:
        """Bytes that are in the journal and not received from it; off by less than what shares an entry with the marks."""
        return max(0, self.waiting.bytes - self._of.waiting.bytes)

    def consumer(self, name: str) -> Consumer:
        """A consumer; its mark is not before the first row that there is. Raises a 400."""
        found = super().consumer(name)
        found.skip_to(self.trimmed_to)
        return found

    def stored_name(self, consumer: str) -> str:
        """Its consumers are saved among the queue's, under names that no consumer of the queue can have."""
        return state.JOURNAL_CONSUMERS + consumer

    def span(self, epoch: str | None) -> EpochSpan:
        """What there is of an epoch; ``None``: the one that the journal has reached. Raises a 409."""
        if epoch is None:
            epoch = next(each.epoch for each in reversed(self.epochs) if each.first <= self.end + 1)
        whole = super().span(epoch)
        if self.end >= whole.end and whole.next_epoch is not None:
            return whole
        end = max(
            self.end, whole.begin - 1
        )  # the queue may be in its next epoch, and rows of this one not yet received
        first = min(max(whole.begin, self.trimmed_to + 1), end + 1)
        return whole._replace(first=first, end=end, next_epoch=None)

    def marks_moved(self) -> None:
        """The queue's marks, or those of the journal's consumers, moved."""
        self.follow()

    def follow(self) -> None:
        """Everything that the queue's default consumer has received, and the store knows of, is here now."""
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
        """Take away what waits in the journal: the rows stay with the queue until their time is over; how many those were."""
        count = self.state.count
        self.default.skip_all_but(self.end, spared)
        self.follow()
        return count - self.state.count


class JournalSwitch(NamedTuple):
    """A queue's option as it is stored."""

    after: int

    @classmethod
    def of(cls, options: dict[str, object]) -> JournalSwitch | None:
        """``None``: the queue keeps no journal."""
        after = options.get("journal_after")
        return cls(after) if isinstance(after, int) else None


def open_journal(queue: Queue, switch: JournalSwitch, connection: sqlite3.Connection) -> None:
    """The journal of a queue as it was left. Its consumers are loaded after it."""
    received = state.received_from_journal(connection, queue.id) or 0
    queue.journal = QueueJournal(
        queue, switch.after, Waiting.load(connection, queue.id, max(received, switch.after))
    )


def begin_journal(queue: Queue) -> JournalSwitch:
    """A journal that begins now; what is to be stored of it."""
    switch = JournalSwitch(queue.default.received)
    queue.journal = QueueJournal(queue, switch.after, queue.waiting.copy())
    return switch


def queue_of_consumer(queue: Queue, consumer: str) -> tuple[Queue, str] | None:
    """Whose consumer a stored one is, and its name; ``None`` for one of a journal that was switched off."""
    if not consumer.startswith(state.JOURNAL_CONSUMERS):
        return queue, consumer
    if queue.journal is None:
        return None
    return queue.journal, consumer.removeprefix(state.JOURNAL_CONSUMERS)


def journal_hint(name: str) -> str:
    """What to do where a name is that of a journal."""
    return (
        f'PUT /v1/queues/{base_of_journal(name) or name} {{"journal": true|false}} '
        "switches a journal on or off"
    )
