"""Carry out the effects of the server of remote read on a queue manager.

The server (:mod:`srmp_spark.mqrr.server`) does no I/O: it gets calls and returns effects, which are
orders such as "read this message" or "answer this call".
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from srmp_spark.errors import ApiError, ProcessMustEndError
from srmp_spark.interface import (
    DEFAULT_CONSUMER,
    SHARING_VIOLATION,
    TOO_MANY_SUBQUEUES,
    UNKNOWN_QUEUE,
)
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.server.effects import (
    AnswerCall,
    Effect,
    FaultCall,
    FindQueue,
    LookOn,
    Purge,
    QueueView,
    ReadMessage,
    ReleaseQueue,
    ServedMessage,
    Take,
)
from srmp_spark.mqrr.server.effects import RemovalReason as Why
from srmp_spark.mqrr.server.positions import ArrivedRun
from srmp_spark.mqrr.server.remote_read import RemoteReadServer
from srmp_spark.mqrr.server.shared_queue import OpenQueue
from srmp_spark.mqrr.server.which_queue import CannotOpenError, which_queue
from srmp_spark.mqrr.status import Status
from srmp_spark.names import OWN_QUEUES, base_of_subqueue, canonical_host, canonical_queue_name
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.log_once import LogOnce
from srmp_spark.queue_manager.queues.consumers import REMOTE_READERS
from srmp_spark.queue_manager.remote_read.queue import ServedQueue, ServedView
from srmp_spark.queue_manager.remote_read.taking import LeavingRows, Move, take_together
from srmp_spark.queue_manager.trust.rpc_accounts import RpcAccounts, RpcVerb
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.receiving.decisions import Reason

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.store.database.transaction import Transaction

RENEW_SECONDS = 10.0
"""Seconds between two renewals of a lease, as for any receiver (docs/INTERFACE.md section 1)."""
SPARED_OF_A_TURN = 1_000
"""Sequences of spared messages that a purge adds to a set in one turn of the event loop, which
takes a millisecond or two.
"""
STOP_SECONDS = 5.0
"""Longest wait at the end for changes that are being stored, in seconds."""

_REASONS = {
    Why.RECEIVED: Reason.RECEIVED,
    Why.PURGED: Reason.QUEUE_PURGED,
    Why.MOVED: None,
}

log = logging.getLogger(__name__)


class CallAnswers(Protocol):
    """Sends the answers of one connection's calls to its client."""

    def has_room(self) -> bool:
        """Return whether another message may be read for the connection.

        The result is False while the reader's untaken answers reach ANSWERS_OF_ONE_MAX bytes, and
        while the channel to the gateway is congested or closed. It is also False while the reader
        has untaken answers and those of all readers together reach ANSWERS_MAX bytes.
        (:meth:`.readers.ServedReader.has_room` has the rule.)
        """
        ...

    def respond(self, call_id: int, stub: bytes) -> None:
        """Send ``stub`` as the answer of the call ``call_id``."""
        ...

    def fail(self, call_id: int, status: int) -> None:
        """Send the fault ``status`` as the answer of the call ``call_id``."""
        ...


class RemoteReadService:
    """Serves all remote readers of one queue manager, by the effects of the server without I/O."""

    def __init__(
        self, manager: QueueManager, port: int, accounts: RpcAccounts | None = None
    ) -> None:
        """Prepare the service at RPC port ``port``.

        ``accounts`` have rights that are checked. None means that no caller signs in, and every
        caller may do everything.
        """
        self._manager = manager
        self._allows = RpcAccounts(None, ()).allows if accounts is None else accounts.allows
        self._loop = asyncio.get_running_loop()
        self._server = RemoteReadServer(
            port,
            new_move_context=partial(secrets.randbits, 64),
            allows=self._allows,
        )
        self._connections: dict[Hashable, CallAnswers] = {}
        self._not_opened = LogOnce()
        self._unread: dict[Hashable, deque[ReadMessage]] = {}
        """For each connection the reads that wait until the reader has taken its answers.

        Otherwise their messages would use memory for this reader alone.
        """
        self._served: dict[int, ServedQueue] = {}
        """Queues that clients have open, by the ``id()`` of the queue object.

        A queue that is deleted and created again is another object.
        """
        self._turn = asyncio.Lock()
        """Lock for the slices of queues that are being loaded.

        So one turn of the event loop has a slice of one queue, however many are opened at once.
        """
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm = Alarm(self._loop, self._on_timer)
        self._taking: list[Take] = []
        """Received messages that are stored together at the end of this turn of the event loop."""
        self._renewing = self._loop.create_task(self._renew())
        self._stopping = asyncio.Event()
        self._unstored = 0
        """Number of purges that are not on stable storage yet."""
        self._held: list[Callable[[], list[Effect]]] = []
        """Requests that wait for these purges, in order; of each connection at most CALLS_MAX
        calls. A reader must not learn that a message is gone that a crash would restore. Another
        queue manager that looks up one of its messages would take it for received.
        """
        manager.catalogue.on_purge = self._purge_began
        manager.catalogue.hold_readers = self._hold_readers

    # --- connections ------------------------------------------------------------------------------

    def connected(self, key: Hashable, answers: CallAnswers) -> None:
        """Record a new connection, which ``key`` names from now on."""
        self._connections[key] = answers

    def disconnected(self, key: Hashable, calls: Iterable[int]) -> None:
        """Forget a connection that is gone, and tell the server. Its ``calls`` need no answers."""
        self._connections.pop(key, None)
        self._in_turn(partial(self._server.calls_gone, key, tuple(calls)))
        for asked in self._unread.pop(key, ()):
            self._in_turn(
                partial(self._server.not_read, asked.reading, Status.MQ_ERROR_OPERATION_CANCELLED)
            )

    def has_room(self) -> None:
        """Read the messages that waited for room, for each reader that has room now.

        Called when readers have taken answers or connections have ended.
        """
        for key in tuple(self._unread):
            waiting, connection = self._unread.get(key), self._connections.get(key)
            if waiting is None or connection is None:
                continue
            while waiting and connection.has_room():
                self._read(waiting.popleft())
            if not waiting and self._unread.get(key) is waiting:
                del self._unread[key]

    def call(self, key: Hashable, received: CallReceived) -> None:
        """Pass a call of a reader to the server, and carry out the effects.

        While a purge is not stored, calls wait for it.
        """
        self._in_turn(lambda: self._server.call(key, received, self._loop.time()))

    def cancelled(self, key: Hashable, call_id: int) -> None:
        """Let the server answer a call soon, because its caller does not want to wait longer."""
        self._in_turn(partial(self._server.call_cancelled, key, call_id))

    def orphaned(self, key: Hashable, call_id: int) -> None:
        """Let the server forget a call, because its caller no longer waits."""
        self._in_turn(partial(self._server.calls_gone, key, (call_id,)))

    def run_down(self, descriptors: Iterable[OpenQueue]) -> None:
        """Let the server close these open queues, because their client is gone."""
        ended = tuple(descriptors)
        self._in_turn(lambda: self._server.run_down(ended, self._loop.time()))

    # --- purges -----------------------------------------------------------------------------------

    def _purge_began(self, transaction: Transaction) -> None:
        """Hold requests until the purge in ``transaction`` is stored: rows have left a queue.

        A commit that fails ends the process, and no reader has seen the purge.
        """
        self._unstored += 1
        transaction.after_commit.append(self._purge_stored)

    def _hold_readers(self) -> Callable[[], None]:
        """Hold requests until a whole purge is stored. Return the function that ends the hold.

        Called before the purge's first commit, because the next commits remove rows that a reader
        would lock meanwhile.
        """
        self._unstored += 1
        return self._purge_stored

    def _purge_stored(self) -> None:
        self._unstored -= 1
        if not self._unstored:
            held, self._held = self._held, []
            for each in held:
                self._do(each())

    def _in_turn(self, what: Callable[[], list[Effect]]) -> None:
        if self._unstored:
            self._held.append(what)
        else:
            self._do(what())

    # --- effects ----------------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._do_one(effect)
        self._alarm.at(self._server.timer())

    def _do_one(self, effect: Effect) -> None:
        if isinstance(effect, AnswerCall | FaultCall):
            connection = self._connections.get(effect.call.connection)
            if connection is None:
                return
            if isinstance(effect, AnswerCall):
                connection.respond(effect.call.number, effect.stub)
            else:
                connection.fail(effect.call.number, effect.status)
        elif isinstance(effect, ReadMessage):
            self._read(effect)
        elif isinstance(effect, Take):
            if not self._taking:
                self._loop.call_soon(self._take_what_came)
            self._taking.append(effect)
        elif isinstance(effect, FindQueue):
            self._open(effect)
        elif isinstance(effect, Purge):
            self._begin(self._purge(effect))
        elif isinstance(effect, LookOn):
            self._loop.call_soon(self._in_turn, partial(self._server.look_on, effect.purging))
        else:
            self._close(effect)

    def _on_timer(self) -> None:
        self._do(self._server.handle_timer(self._loop.time()))

    def _begin(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- opening and closing ----------------------------------------------------------------------

    def _open(self, asked: FindQueue) -> None:
        """Open a queue now, or start a task that opens it, and let the server answer the call.

        A task is started only if the open must wait, for example for a lease or the positions of
        messages.
        """
        try:
            name = self._name(asked)
            queue = self._find(asked, name)
        except CannotOpenError as error:
            self._refuse(asked, error.status, error)
            return
        if queue is None or not queue.state.declared:
            self._begin(self._open_subqueue(asked, name))
            return
        served = self._served.get(id(queue))
        if (
            asked.receive
            or served is None
            or served.lock.locked()
            or not self._server.knows(served.view)
        ):
            self._begin(self._open_there(asked, queue))
            return
        served.opened += 1
        self._do(self._server.opened(asked.opening, served.view, None, self._loop.time()))

    async def _open_subqueue(self, asked: FindQueue, name: str) -> None:
        """Open the subqueue ``name``, which no client declared. Create it if it is missing.

        If that fails, the open is refused.
        """
        try:
            queue = await self._manager.queues.subqueues.enter(name)
        except ProcessMustEndError:
            # The process ends, as in _take. The call gets no answer.
            return
        except ApiError as error:
            self._refuse(asked, _status_of(error), error)
        else:
            await self._open_there(asked, queue)

    async def _open_there(self, asked: FindQueue, queue: Queue) -> None:
        served = self._served.get(id(queue))
        if served is None:
            served = self._served[id(queue)] = ServedQueue(
                self._manager,
                queue,
                turn=self._turn,
                came=self._on_arrived,
                deleted=self._on_deleted,
            )
        served.opened += 1
        # This is counted before the wait, so that the lease that is about to be shared is not
        # released.
        served.receivers += asked.receive
        try:
            if asked.receive:
                await self._manager.leases.register(
                    queue, queue.default.name, REMOTE_READERS, None, self._stopping
                )
            self._check_there(queue)
            async with served.lock:
                positions = None if self._server.knows(served.view) else await served.load()
                self._do(
                    self._server.opened(asked.opening, served.view, positions, self._loop.time())
                )
        except (ApiError, ConnectionResetError, CannotOpenError) as error:
            self._refuse(asked, _status_of(error), error)
            self._close(ReleaseQueue(served.view, asked.receive))
        else:
            served.follow()

    def _refuse(self, asked: FindQueue, status: Status, why: Exception) -> None:
        line = self._not_opened.line(f"{status.name}: {why}", self._loop.time())
        if line is not None:
            log.info('mqrr.not_opened status=%s reason="%s"', status.name, line)
        self._do(self._server.not_opened(asked.opening, status))

    def _name(self, asked: FindQueue) -> str:
        """Return the canonical name of the queue that a call wants to open.

        Raises :class:`CannotOpenError` if the queue is not local, or the caller has no right to the
        queue. Callers without the right do not learn which queues exist.
        """
        named = which_queue(asked.queue)
        host = canonical_host(named.host)
        if host != "." and host not in self._manager.hosts:
            raise CannotOpenError(
                Status.MQ_ERROR_QUEUE_NOT_FOUND,
                f"{named.host} is not this queue manager; if it is, start it with "
                f"--host-name {named.host}",
            )
        try:
            name = canonical_queue_name(named.name)
        except ValueError as error:
            raise CannotOpenError(Status.MQ_ERROR_QUEUE_NOT_FOUND, str(error)) from None
        if not self._has_right(asked, name):
            raise CannotOpenError(
                Status.MQ_ERROR_ACCESS_DENIED,
                f"the account {asked.caller} has no right to {_right_to(asked)} from "
                f"{name}: [[rpc_account]]",
            )
        return name

    def _find(self, asked: FindQueue, name: str) -> Queue | None:
        """Return the queue to open, or None for a subqueue that must be created.

        The caller needs the same right to the queue that would have the subqueue. Raises
        :class:`CannotOpenError` if there is no queue or the access is not possible. A name without
        a queue costs as much time as a name without the right, so that callers cannot find names by
        time.
        """
        queue = self._manager.catalogue.get(name)
        if queue is None:
            base = base_of_subqueue(name)
            if (
                base is None
                or not self._has_right(asked, base)
                or self._manager.catalogue.get(base) is None
            ):
                raise CannotOpenError(Status.MQ_ERROR_QUEUE_NOT_FOUND, f"there is no queue {name}")
            return None
        if (asked.receive or asked.move) and queue.log_name in OWN_QUEUES:
            raise CannotOpenError(
                Status.MQ_ERROR_ACCESS_DENIED,
                f"{queue.name} can only be peeked, not received from",
            )
        if asked.move and queue.log_name != queue.name:
            raise CannotOpenError(
                Status.MQ_ERROR_ACCESS_DENIED,
                f"{queue.name} is a journal: no message can be moved to it",
            )
        return queue

    def _has_right(self, asked: FindQueue, name: str) -> bool:
        return self._allows(asked.caller, _right_to(asked), name)

    def _check_there(self, queue: Queue) -> None:
        if self._manager.catalogue.get(queue.name) is not queue:
            raise CannotOpenError(Status.MQ_ERROR_QUEUE_NOT_FOUND, f"{queue.name} was deleted")

    def _close(self, closed: ReleaseQueue) -> None:
        view = _served(closed.queue)
        served = self._served[id(view.queue)]
        served.opened -= 1
        served.receivers -= closed.receive
        default = view.queue.consumers.get(DEFAULT_CONSUMER)
        if (
            closed.receive
            and not served.receivers
            and default is not None
            and default.holder == REMOTE_READERS
        ):
            self._begin(
                self._manager.leases.release(view.queue, view.queue.default.name, REMOTE_READERS)
            )
        if not served.opened:
            del self._served[id(view.queue)]
            self._begin(served.close())
        if self._manager.queues.subqueues.is_used(view.queue):
            self._begin(self._leave(view.queue))

    async def _leave(self, queue: Queue) -> None:
        # The process ends, as in _take.
        with suppress(ProcessMustEndError):
            await self._manager.queues.subqueues.leave(queue)

    async def _renew(self) -> None:
        """Renew the lease of each queue that is open to receive, every RENEW_SECONDS, forever.

        The renewal is not stored. If another holder has the lease, the receiving handles of the
        queue become stale.
        """
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            for served in tuple(self._served.values()):
                if not served.receivers or served.view.deleted:
                    continue
                consumer = served.view.queue.default
                try:
                    self._manager.leases.check_holder(consumer, REMOTE_READERS)
                except ApiError as error:
                    log.warning('mqrr.lease_lost queue=%s reason="%s"', served.view.name, error)
                    self._do(
                        self._server.end_use(
                            served.view, Status.MQ_ERROR_STALE_HANDLE, receivers_only=True
                        )
                    )
                else:
                    consumer.renew(
                        now=self._manager.clock.monotonic(), utc=self._manager.clock.utc()
                    )

    def _on_arrived(self, view: ServedView, runs: list[ArrivedRun]) -> None:
        self._do(self._server.add_arrived(view, runs, self._loop.time()))

    def _on_deleted(self, view: ServedView) -> None:
        self._do(self._server.end_use(view, Status.MQ_ERROR_QUEUE_DELETED))

    # --- messages ---------------------------------------------------------------------------------

    def _read(self, asked: ReadMessage) -> None:
        if self._waits_for_room(asked):
            return
        served = self._served.get(id(_served(asked.queue).queue))
        if served is None:
            # The queue was closed while the read waited.
            self._do(self._server.not_read(asked.reading, Status.MQ_ERROR_STALE_HANDLE))
        else:
            served.read(asked.sequence, partial(self._was_read, asked))

    def _waits_for_room(self, asked: ReadMessage) -> bool:
        """Postpone a read if its connection has no room (:meth:`CallAnswers.has_room`).

        Return whether it was postponed. A read of a connection that is gone is not postponed.
        """
        connection = self._connections.get(asked.connection)
        if connection is None or connection.has_room():
            return False
        self._unread.setdefault(asked.connection, deque()).append(asked)
        return True

    def _was_read(self, asked: ReadMessage, what: ServedMessage | str | None) -> None:
        if isinstance(what, ServedMessage) and self._waits_for_room(asked):
            # Answers that were given meanwhile have used the room, so the message is read again
            # later.
            return
        if isinstance(what, ServedMessage) and not asked.queue.has_left(asked.sequence):
            self._do(self._server.read(asked.reading, what, self._loop.time()))
        elif what is None or isinstance(what, ServedMessage):
            # The message has left the queue, perhaps after it was read.
            self._in_turn(partial(self._server.vanished, asked.reading))
        else:
            log.warning(
                'mqrr.unreadable queue=%s sequence=%d reason="%s"',
                asked.queue.name,
                asked.sequence,
                what,
            )
            self._do(self._server.not_read(asked.reading, Status.MQ_ERROR_QUEUE_NOT_AVAILABLE))

    def _take_what_came(self) -> None:
        """Begin to store the received messages of this turn: one commit of marks for all of them.

        A move is stored alone, because it must wait for its row.
        """
        taking, self._taking = self._taking, []
        received: list[Take] = []
        for asked in taking:
            if asked.to is None:
                received.append(asked)
            else:
                self._begin(self._take([asked]))
        if received:
            self._begin(self._take(received))

    async def _take(self, together: Sequence[Take]) -> None:
        """Store these takes (messages that leave their queues) in one commit, and tell the server.

        If one of them fails, each is stored alone. A take that fails alone is logged, and the
        server learns that nothing was stored. If the process must end, nothing is answered.
        """
        parts: dict[tuple[int, Reason | None], LeavingRows] = {}
        moves: list[Move] = []
        try:
            for each in together:
                queue, reason = _served(each.queue).queue, _REASONS[each.reason]
                parts.setdefault(
                    (id(queue), reason), LeavingRows(queue, [], reason)
                ).sequences.append(each.sequence)
                if each.to is not None:
                    record = await self._served[id(queue)].record(each.sequence)
                    moves.append(Move(queue, each.sequence, record, _served(each.to).queue))
            self._check_still_there(moves)
            await take_together(self._manager, list(parts.values()), REMOTE_READERS, moves)
        except ProcessMustEndError:
            # It is unknown what the disk has, and the process ends. The messages stay locked, and
            # their End gets no answer.
            return
        except (ApiError, ConnectionResetError) as error:
            # The error occurs before the commit, so nothing was changed.
            if len(together) > 1:
                for each in together:
                    self._begin(self._take([each]))
                return
            log.warning('mqrr.not_stored reason="%s"', error)
            self._do(
                self._server.not_stored(together[0].storing, Status.MQ_ERROR_QUEUE_NOT_AVAILABLE)
            )
            return
        for each in together:
            served = self._served.get(id(_served(each.queue).queue))
            if served is not None:
                served.forget(each.sequence)
        self._do([effect for each in together for effect in self._server.stored(each.storing)])

    def _check_still_there(self, moves: Iterable[Move]) -> None:
        """Raise :class:`ApiError` (409) if a row that is to be moved has left its queue.

        An operator or retention may have removed the row since it was read. Such a row must not
        appear in another queue.
        """
        for move in moves:
            if self._served[id(move.queue)].view.has_left(move.sequence):
                raise ApiError(
                    409,
                    "row-gone",
                    f"row {move.sequence} of {move.queue.name} has left the queue",
                    "look again",
                )

    async def _purge(self, asked: Purge) -> None:
        view = _served(asked.queue)
        status = Status.MQ_OK
        try:
            self._manager.leases.check_holder(view.queue.default, REMOTE_READERS)
            spared = SequenceSet()
            for at in range(0, len(asked.spared), SPARED_OF_A_TURN):
                spared.add_each(asked.spared[at : at + SPARED_OF_A_TURN])
                await asyncio.sleep(0)
            purged = await self._manager.queues.purge(view.queue.name, spared)
            log.info("mqrr.purged queue=%s rows=%d", view.name, purged)
        except ProcessMustEndError:
            # The process ends, as in _take.
            return
        except ApiError as error:
            log.warning('mqrr.not_purged queue=%s reason="%s"', view.name, error)
            status = Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
        self._do(self._server.purged(asked.purging, status))

    async def stop(self) -> None:
        """Wait at most STOP_SECONDS for changes that are being stored, and end all tasks.

        The connections must be closed before.
        """
        self._stopping.set()
        self._take_what_came()
        self._alarm.stop()
        await end((self._renewing,))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        await end(tuple(self._tasks))


def _right_to(asked: FindQueue) -> RpcVerb:
    return "receive" if asked.receive or asked.move else "peek"


def _status_of(error: Exception) -> Status:
    if isinstance(error, CannotOpenError):
        return error.status
    code = error.code if isinstance(error, ApiError) else ""
    if code == SHARING_VIOLATION:
        return Status.MQ_ERROR_SHARING_VIOLATION
    if code == TOO_MANY_SUBQUEUES:
        return Status.MQ_ERROR_INSUFFICIENT_RESOURCES
    return (
        Status.MQ_ERROR_QUEUE_NOT_FOUND
        if code == UNKNOWN_QUEUE
        else Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
    )


def _served(view: QueueView) -> ServedView:
    assert isinstance(view, ServedView), "the server gives back what it was given"
    return view
