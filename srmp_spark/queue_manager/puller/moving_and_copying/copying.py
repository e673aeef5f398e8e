"""Copy a remote queue (``mode = "copy"``): each message becomes one local row, and stays.

Theory of operation. A cursor walks through the remote queue from its first message, again and
again. A message that was not seen before becomes a row of the local queue, and a note that it was
seen is stored in the same commit. A comparison with the last message would not suffice. A message
of higher priority that arrives later is before it, and a message that was locked during the walk
returns to its old place. A message that was seen, but is missing in a whole walk, may be locked.
Only if a peek reports that the message is gone, it was received there: that is noted with its row
(:mod:`srmp_spark.store.tables.cutovers`), for the day on which the queue is cut over. If a message
that was gone is shown again under both its identifiers, its reader has put it back: the note is
taken back, and there is no second row. A note has both identifiers of the message, as moved
messages have, because a queue manager that is set up anew issues lookup identifiers from the
beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from srmp_spark.errors import LimitExceededError, RemoteLostError, SrmpSparkError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.by_number import ByNumber, LookupPlace, Tells
from srmp_spark.mqrr.client.failures import refused
from srmp_spark.mqrr.client.queue_calls import HELD, NOTHING, REMOVED
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side.answers import (
    ReadableQueue,
    UnreadableMessage,
    unreadable_text,
)
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.queue_manager.puller.moving_and_copying.gone import LOOKUPS_OF_A_COMMIT, find_gone
from srmp_spark.queue_manager.puller.moving_and_copying.locks import BATCH_BYTES, BATCH_MESSAGES
from srmp_spark.queue_manager.puller.moving_and_copying.passing import UNREADABLE_WALKED_MAX

COPIED_MAX = 500_000
"""Most messages of one remote queue whose keys a copy keeps, with about 470 bytes of memory each.

At the limit, new messages are counted and not copied, and ``last_error`` reports them, until
messages are removed from the remote queue.
"""


class Noting(Protocol):
    """Stores the copies. Each call waits until its result is on stable storage."""

    async def copied(self, messages: Sequence[Pulled]) -> tuple[int, str | None]:
        """Make rows of the messages, and store in the same commit that they were copied.

        Return the number of messages that became rows, from the first on, and the reason why the
        next one did not, or ``None``.
        """
        ...

    async def received_there(self, keys: Collection[PulledKey]) -> None:
        """Store that other readers received the originals of these copied messages."""
        ...

    async def taken_back(self, keys: Collection[PulledKey]) -> set[PulledKey]:
        """Return those messages that were noted as received there, and are in the queue again.

        They have a row already. Store that they are in the remote queue.
        """
        ...


class WalkDone(NamedTuple):
    """The numbers of one walk that reached the end of the remote queue."""

    number: int
    """Number of the walk since the start of the process, from 1."""
    there: int
    """Number of readable messages that the walk met."""
    locked: int
    """Number of copied messages that were not met and are not gone: another reader holds them."""
    unreadable: int
    not_copied: int
    """Number of messages beyond COPIED_MAX, which have no row here."""


@dataclass(slots=True)
class _Walk:
    """The progress of one walk through the queue, over one connection or several."""

    number: int
    by_number: ByNumber = field(default_factory=ByNumber)
    there: set[PulledKey] = field(default_factory=set)
    """Keys of the messages that the walk has met in the remote queue."""
    unreadable: int = 0
    reason: str = ""
    """Reason why the last unreadable message cannot be read."""
    not_copied: int = 0


class _ByCursor:
    """Walks with a cursor from the first message to the end, over one connection."""

    def __init__(self, queue: ReadableQueue, walk: _Walk) -> None:
        self._queue = queue
        self._walk = walk
        self._cursor: int | None = None

    async def next(self) -> Pulled | UnreadableMessage | None:
        """Peek at the next message and return it, or None at the end of the queue.

        Raises :class:`RemoteLostError`, and :class:`RemoteReadError` if the server refuses the
        call.
        """
        action = Action.PEEK_NEXT
        if self._cursor is None:
            self._walk.by_number.begin_at_head()
            self._walk.unreadable = self._walk.not_copied = 0
            self._cursor, action = await self._queue.cursor(), Action.PEEK_CURRENT
        found = await self._queue.read(action, cursor=self._cursor)
        if isinstance(found, Status):
            if found not in NOTHING:
                raise refused(found, "R_StartReceive")
            await self._queue.close_cursor(self._cursor)
            return None
        if isinstance(found, Pulled):
            # Lookup identifiers ascend in the order of the queue.
            self._walk.by_number.has(LookupPlace(*found.key))
        return found


class _ByNumber:
    """Continues a walk over a new connection, after the last message that the walk has met.

    The class uses lookup identifiers (:mod:`srmp_spark.mqrr.by_number`). Where they cannot be used,
    a cursor walks from the first message again.
    """

    def __init__(self, queue: ReadableQueue, walk: _Walk) -> None:
        self._queue = queue
        self._walk = walk
        self._instead: _ByCursor | None = None
        walk.by_number.connected()

    async def next(self) -> Pulled | UnreadableMessage | None:
        """Peek at the next message and return it, or None at the end of the queue.

        Raises as :meth:`_ByCursor.next`.
        """
        tells = Tells.AGAIN
        while self._instead is None:
            action, lookup_id = self._walk.by_number.call()
            found = await self._queue.read(action, lookup_id=lookup_id)
            if isinstance(found, Pulled):
                tells = self._walk.by_number.found(LookupPlace(*found.key))
            elif isinstance(found, UnreadableMessage):
                # Its number is unknown, and it would be returned again and again.
                tells = Tells.NOWHERE
            elif found in NOTHING | REMOVED | HELD:
                tells = self._walk.by_number.nothing(held=found in HELD)
            else:
                raise refused(found, "R_StartReceive")
            if tells is Tells.MESSAGE:
                assert isinstance(found, Pulled), "nothing else is one"
                return found
            if tells is Tells.OVER:
                return None
            if tells is Tells.NOWHERE:
                self._instead = _ByCursor(self._queue, self._walk)
        return await self._instead.next()


class Copier:
    """Copies the messages of one subscription.

    A copier lives as long as the process. Its connections may change meanwhile.
    """

    def __init__(
        self,
        noting: Noting,
        seen: Collection[PulledKey],
        *,
        told: Callable[[str], None],
        gone: int = 0,
    ) -> None:
        """Begin with ``seen``, the keys of the messages that earlier processes have copied.

        ``told`` is called with texts about skipped messages, which the operator sees in ``status``.
        ``gone`` is the number of copied messages that are noted as received there.
        """
        self._noting = noting
        self._on_trouble = told
        self.seen = set(seen)
        self.rows_made = 0
        """Number of rows that were made since the start of the process."""
        self.unreadable = 0
        """Number of unreadable messages that the last walk skipped. The next walk reads them again.
        """
        self.not_copied = 0
        """Number of messages beyond COPIED_MAX that the last walk found."""
        self.is_full: str | None = None
        self.received_there = gone
        """Number of copied messages that are noted as received there."""
        self.walks_begun = 0
        self.last_walk: WalkDone | None = None
        """The newest walk that reached the end of the queue, or ``None`` if there is none yet."""
        self._walk: _Walk | None = None
        """The walk in progress. If it is ``None``, the next call begins a new walk."""

    @property
    def is_under_way(self) -> bool:
        """Return whether a walk lost its connection, so that the next :meth:`walk` continues it."""
        return self._walk is not None

    async def walk(self, queue: ReadableQueue) -> int:
        """Walk once through the queue, copy new messages, and return how many became rows.

        A walk whose connection was lost is continued. Messages that were found before an error are
        copied. The walk stops early if the local queue refuses rows (:attr:`is_full`). Raises
        :class:`RemoteLostError`, :class:`RemoteReadError` if the server refuses a call,
        :class:`LimitExceededError` after more than UNREADABLE_WALKED_MAX unreadable messages, and
        :class:`RemoteProtocolError` if the cursor does not advance.
        """
        before = self.rows_made
        walk = self._walk
        if walk is None:
            self.walks_begun += 1
            walk = self._walk = _Walk(self.walks_begun)
            steps: _ByCursor | _ByNumber = _ByCursor(queue, walk)
        else:
            steps = _ByNumber(queue, walk)
        self.is_full = None
        try:
            await self._through(walk, steps)
        except RemoteLostError:
            # The walk continues over the next connection.
            raise
        except BaseException:
            self._walk = None
            raise
        self._walk = None
        if walk.unreadable:
            self._on_trouble(unreadable_text(walk.unreadable, walk.reason))
        if walk.not_copied:
            self._on_trouble(not_copied_text(walk.not_copied))
        if self.is_full is None:
            missed = self.seen - walk.there
            await self._note_gone(queue, missed)
            self.last_walk = WalkDone(
                walk.number,
                len(walk.there) + walk.not_copied,
                len(missed & self.seen),
                walk.unreadable,
                walk.not_copied,
            )
        return self.rows_made - before

    async def _through(self, walk: _Walk, steps: _ByCursor | _ByNumber) -> None:
        """Copy the messages that ``steps`` finds, until the end of the queue or an error.

        The messages that were found before an error are copied too. Raises the errors of
        :meth:`walk`.
        """
        waiting: dict[PulledKey, Pulled] = {}
        size = 0
        try:
            while self.is_full is None and (found := await steps.next()) is not None:
                if isinstance(found, UnreadableMessage):
                    walk.unreadable += 1
                    walk.reason = found.reason
                    if walk.unreadable > UNREADABLE_WALKED_MAX:
                        raise LimitExceededError(
                            "UNREADABLE_WALKED_MAX", UNREADABLE_WALKED_MAX, walk.unreadable
                        )
                    continue
                if found.key not in self.seen:
                    if len(self.seen) + len(waiting) >= COPIED_MAX:
                        walk.not_copied += 1
                        continue
                    waiting[found.key] = found
                    size += len(found.raw)
                walk.there.add(found.key)
                if len(waiting) >= BATCH_MESSAGES or size >= BATCH_BYTES:
                    await self._copy(tuple(waiting.values()))
                    waiting, size = {}, 0
        except SrmpSparkError:
            await self._copy(tuple(waiting.values()))
            if self.is_full is not None:
                # A message that the walk has met is no row, so the walk must begin anew.
                self._walk = None
            raise
        finally:
            self.unreadable, self.not_copied = walk.unreadable, walk.not_copied
        await self._copy(tuple(waiting.values()))

    async def _copy(self, messages: Sequence[Pulled]) -> None:
        """Make rows of messages that were not seen, except those that were put back."""
        if messages and self.received_there:
            back = await self._noting.taken_back([each.key for each in messages])
            self.seen |= back
            self.received_there -= len(back)
            messages = [each for each in messages if each.key not in back]
        if messages:
            count, self.is_full = await self._noting.copied(messages)
            self.seen |= {each.key for each in messages[:count]}
            self.rows_made += count

    async def _note_gone(self, queue: ReadableQueue, missed: Collection[PulledKey]) -> None:
        """Look up the copied messages that a walk missed, and note those that are gone.

        The answers before an error count. Raises :class:`RemoteLostError` and
        :class:`RemoteReadError`; the next walk asks for the rest.
        """
        waiting = list(missed)
        for at in range(0, len(waiting), LOOKUPS_OF_A_COMMIT):
            gone: list[PulledKey] = []
            try:
                await find_gone(queue, waiting[at : at + LOOKUPS_OF_A_COMMIT], gone)
            finally:
                if gone:
                    await self._noting.received_there(gone)
                    self.seen.difference_update(gone)
                    self.received_there += len(gone)


def not_copied_text(count: int) -> str:
    """Return the text of ``last_error`` about ``count`` messages beyond COPIED_MAX."""
    return (
        f"{count} messages are not copied: a copy knows at most {COPIED_MAX} messages of "
        "the remote queue (COPIED_MAX); "
        'receive or purge messages there, or subscribe with mode = "move"'
    )
