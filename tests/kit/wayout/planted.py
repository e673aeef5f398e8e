"""Planted bugs of the sending side that :mod:`.life` and :mod:`.letters` must find.

Each function is a context manager that replaces correct code by the bug. Its docstring states what
a customer would see. Some of these bugs were in the code once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.posting import address_race, http_exchange
from srmp_spark.queue_manager.posting.http_exchange import ANSWER_SECONDS
from srmp_spark.queue_manager.sender.dead_letters import DeadLetters
from srmp_spark.queue_manager.sender.dispatcher import CommittedBatch, Dispatcher
from srmp_spark.queue_manager.sender.http.connections import Wire
from srmp_spark.srmp.sending.outgoing_effects import Kind, QueueKey, Send
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.store.outbox.preparing.prepared import Prepared
from srmp_spark.store.outbox.tables.letter_cursors import LetterCursors


@contextmanager
def withdrawn_is_trouble() -> Iterator[None]:
    """Let messages that were written after a refused one wait for the Retransmission Timer.

    Three answers 400 among twelve messages then cost a minute.
    """

    def withdrawn(self: Dispatcher, send: Send) -> None:
        self.sender.failed(send, self._clock.monotonic(), left=False)

    with mock.patch.object(Dispatcher, "_withdrawn", withdrawn):
        yield


@contextmanager
def first_address_alone() -> Iterator[None]:
    """Try only the first address of a host.

    A host whose first address is a dead IPv6 address is then never reached.
    """

    def first(addresses: Sequence[str], *rest: Any) -> Any:  # noqa: ANN401  # of connect_first
        return address_race.connect_first(addresses[:1], *rest)

    with mock.patch.object(http_exchange, "connect_first", first):
        yield


@contextmanager
def time_counts_from_posting() -> Iterator[None]:
    """Count the answer time from the start of a request instead of its last byte.

    A large message on a slow line is then sent as a whole again and again, because each 200 arrives
    too late.
    """

    def overdue(self: Wire) -> str | None:
        is_old = (
            self.busy
            and self.exchange is not None
            and self.connections.time() - self.began_at > ANSWER_SECONDS
        )
        return "no answer" if is_old else None

    with mock.patch.object(Wire, "overdue", overdue):
        yield


@contextmanager
def nothing_is_forgotten() -> Iterator[None]:
    """Never forget the record of an idle queue.

    When all records are used, every row for a new destination becomes a dead letter: sending stops
    for good.
    """

    def forget_idle(
        self: Sender, count: int, may_forget: Callable[[QueueKey], bool]
    ) -> list[QueueKey]:
        return []

    kept = property(lambda queue: False)
    with (
        mock.patch.object(Sender, "forget_idle", forget_idle),
        mock.patch("srmp_spark.srmp.sending.outgoing_queue.OutgoingQueue.may_be_forgotten", kept),
    ):
        yield


@contextmanager
def no_room_fails_the_batch() -> Iterator[None]:
    """Let one row for a destination without room fail the whole batch.

    A stream query that sends such a batch fails forever.
    """
    commit = Dispatcher.commit

    async def checked(
        self: Dispatcher, prepare: Callable[[int], Prepared], origin: str = ""
    ) -> CommittedBatch:
        def prepared(at: int) -> Prepared:
            found = prepare(at)
            if not all(self.sender.room.admits(part.key, part.origin) for part in found.parts):
                raise ApiError(409, "too-many-destinations", "there is no room", "")
            return found

        return await commit(self, prepared, origin)

    with mock.patch.object(Dispatcher, "commit", checked):
        yield


@contextmanager
def drop_forgets_new_messages() -> Iterator[None]:
    """Let a drop forget a queue that has new messages.

    ``streams drop`` during a commit to the same destination then ends the sender process, and the
    outbox is reported as damaged.
    """
    forget = Sender.forget

    def forgets(self: Sender, destination: str, kind: Kind) -> bool:
        queue = self.get(destination, kind)
        if queue is None:
            return forget(self, destination, kind)
        with (
            mock.patch.object(type(queue), "idle", True),
            mock.patch.object(OutgoingStream, "ended", True),
        ):
            return forget(self, destination, kind)

    with mock.patch.object(Sender, "forget", forgets):
        yield


@contextmanager
def a_held_queue_holds_all() -> Iterator[None]:
    """Let one paused or full dead-letter queue hold up all queues after it.

    The dead letters of these applications wait until retention deletes them.
    """
    take = DeadLetters._take_group  # noqa: SLF001  # the bug is planted inside the class

    async def taken(self: DeadLetters, name: str) -> bool:
        if any(other < name for other in self._held):
            return False
        return await take(self, name)

    with mock.patch.object(DeadLetters, "_take_group", taken):
        yield


@contextmanager
def one_cursor_for_all() -> Iterator[None]:
    """Use the progress of one queue for all queues.

    The letters of a queue that was paused meanwhile never become rows.
    """
    handed = LetterCursors.handed

    def of_all(self: LetterCursors, queue: str, to: int) -> None:
        handed(self, queue, to)
        self._all = max(self._all, to)

    with mock.patch.object(LetterCursors, "handed", of_all):
        yield


@contextmanager
def handed_before_stored() -> Iterator[None]:
    """Advance the cursor before the rows are stored.

    After a crash in between, the letters never become rows of their queue.
    """
    following = LetterCursors.next

    def at_once(self: LetterCursors, queue: str) -> int | None:
        found = following(self, queue)
        if found is not None:
            self.handed(queue, found)
        return found

    with mock.patch.object(LetterCursors, "next", at_once):
        yield


PLANTED_IN_LIFE: Mapping[str, Callable[[], Any]] = {
    bug.__name__: bug
    for bug in (
        withdrawn_is_trouble,
        first_address_alone,
        time_counts_from_posting,
        nothing_is_forgotten,
        no_room_fails_the_batch,
        drop_forgets_new_messages,
    )
}
PLANTED_IN_LETTERS: Mapping[str, Callable[[], Any]] = {
    bug.__name__: bug for bug in (a_held_queue_holds_all, one_cursor_for_all, handed_before_stored)
}
