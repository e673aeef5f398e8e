"""What a prepared batch is to the outbox and to the dispatcher, whoever prepared it.

A batch of a sink is prepared by :class:`.preparation.Preparation`, messages that are forwarded by
:class:`.forwarded.ForwardedMessages`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from srmp_spark.srmp.sending.outgoing_effects import Enqueued, QueueKey
from srmp_spark.store.outbox.messages.packed_group import BatchPart
from srmp_spark.store.outbox.staging.stages import StageRow


class CommitResult(NamedTuple):
    """The result of a commit: how many rows became messages, and how many did not."""

    new: int
    known: int
    """Rows that were sent before, or that occur in the batch twice with one key or position."""
    conflicts: int = 0
    """Rows that were not sent as messages, because other content has their key or position.

    See :mod:`.conflicts`.
    """
    bad: int = 0
    """Rows that can never be messages, and were taken out (:mod:`~..staging.bad_rows`)."""
    first_bad: str = ""
    """Text that names the first of these rows, and its problem."""


class Prepared(Protocol):
    """Rows that become outgoing messages in one transaction.

    Examples are a batch of a sink, and messages that are forwarded (:mod:`.forwarded`). Call
    :meth:`step` until it returns True, then :meth:`numbered`, and :meth:`.Outbox.write`.
    """

    @property
    def parts(self) -> Sequence[BatchPart]:
        """Return the parts of the rows that are sent, one or more for each outgoing queue."""

    @property
    def result(self) -> CommitResult | None:
        """Return the result of the commit, or ``None`` before all steps are done."""

    @property
    def stages(self) -> Sequence[StageRow]:
        """Return the stages of the batch, which are deleted when the batch counts."""

    @property
    def lost_stages(self) -> Sequence[StageRow]:
        """Return the stages of lost attempts (:meth:`.Stages.lost_attempts`).

        They are deleted when the batch counts.
        """

    @property
    def identifiers(self) -> int:
        """Return how many message identifiers the batch needs."""

    @property
    def letters(self) -> int:
        """Return how many dead letters it makes: of conflicts, and about bad rows."""

    @property
    def unwritten_bytes(self) -> int:
        """Return about how many bytes the last transaction must write."""

    def step(self) -> bool:
        """Do one step of the preparation; return whether all steps are done."""

    def numbered(
        self, ids_first: int, enqueued: Sequence[Enqueued], unsent: AbstractSet[int] = frozenset()
    ) -> Numbered:
        """Return the batch with its serials and message identifiers, for :meth:`.Outbox.write`.

        ``ids_first`` is the first reserved message identifier, and ``enqueued`` has the engine's
        answer for each of :attr:`parts`. ``unsent`` has the numbers of parts that found no room,
        and enter no queue.
        """

    def write_last(
        self, connection: sqlite3.Connection, numbered: Numbered, queue_ids: Mapping[QueueKey, int]
    ) -> None:
        """Write what makes the batch count, in the caller's transaction.

        That is the row of the batch in ``batches``, the identities that are not written yet, and
        the serials of each part in its outgoing queue. With the commit of the transaction the rows
        become messages. ``queue_ids`` has the ids of the outgoing queues in the table ``queues``.
        """

    def abort_step(self) -> bool:
        """Delete one piece of what the batch wrote; return whether all of it is deleted."""

    def end(self) -> None:
        """Release files and memory, because the batch counts now or never will."""


class Numbered(NamedTuple):
    """A prepared batch with its serials and identifiers, for :meth:`.outbox.Outbox.write`."""

    preparation: Prepared
    ids_first: int
    enqueued: tuple[Enqueued, ...]
    unsent: AbstractSet[int] = frozenset()
    """Numbers of parts that found no room.

    The rows of such parts are dead letters from the beginning.
    """

    @property
    def unsent_to(self) -> int:
        """Return the highest serial of the parts that found no room, or 0 if there are none."""
        given = zip(self.preparation.parts, self.enqueued, strict=True)
        return max((each.last for part, each in given if part.number in self.unsent), default=0)
