"""Answer the commands of the main process, in the sender process.

Commands are packets in the socket that was passed at the start. Notices of new receipts and of
reserved identifiers have no answer. A command that waits (for a commit, or for the end of a
message) delays no other command.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from srmp_spark.clock import Clock
from srmp_spark.errors import ApiError, ConfigurationError, SrmpSparkError
from srmp_spark.queue_manager.child.answer import AnswerWriter
from srmp_spark.queue_manager.child.commands import read_long_command, receive_command
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.child.packets import LONG_COMMAND
from srmp_spark.queue_manager.sender import operations
from srmp_spark.queue_manager.sender.application_letters import ApplicationLetters
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.queue_manager.sender.reporting import snapshot
from srmp_spark.queue_manager.sender.reporting.forward_report import ForwardReport
from srmp_spark.queue_manager.sender.send_commands import SendCommands
from srmp_spark.queue_manager.sender.staging.stage_readers import StageReaders
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.sending.outgoing_room import origin_of_token
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.preparing.preparation import CommitResult
from srmp_spark.store.outbox.staging.loops import OwnQueues
from srmp_spark.store.outbox.tables.forward_place import Cursor

RESERVE_SECONDS = 30.0
"""Longest wait for the main process to reserve message identifiers, in seconds.

The main process needs one commit for this. After this time the commit that needs the identifiers
fails with a 503.
"""
CHECKS_AT_ONCE = 2
"""Stages that are checked at once; further stages wait.

A stage is the file with the rows of one task of a batch. Each is checked by a reader process
(:mod:`.stage_readers`). Each row costs a microsecond or more, and no row may delay a receipt. The
threads that wait for readers are not the threads of the answers, which are short.
"""

DEAD_SECONDS = 0.1
"""Delay after which the main process is notified of dead letters, in seconds.

All dead letters of this time share one notice.
"""

log = logging.getLogger(__name__)

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Commands:
    """Answers the main process's commands: the child's end of :class:`.link.SenderLink`."""

    def __init__(
        self,
        control: socket.socket,
        outbox: Outbox,
        store: StoreThread,
        dispatcher: Dispatcher,
        clock: Clock,
    ) -> None:
        self._control = control
        self._outbox = outbox
        self._store = store
        self._dispatcher = dispatcher
        self._clock = clock
        self.forward_report = ForwardReport(control, dispatcher.sender.room)
        self._send_commands = SendCommands(outbox, store, dispatcher)
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(4, "answer")
        self._checks = ThreadPoolExecutor(CHECKS_AT_ONCE, "check")
        self._readers = StageReaders(outbox.stages.folder, multicast=outbox.stages.multicast)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reservations: dict[int, asyncio.Future[int]] = {}
        # Begin with a random number: an answer to the previous process must not count.
        self._numbers = itertools.count(secrets.randbits(48))
        self._over = asyncio.Event()
        self.on_forward: Callable[[], object] = lambda: None
        """Called when the main process notifies this process of new rows in ``private$/forward$``.
        """
        self.hold_forwarding: Callable[[], Awaitable[Cursor | None]]
        """Called before rows that wait to be forwarded are purged.

        The function holds forwarding and returns the position up to which rows are outgoing
        (:meth:`.Forwarder.hold`). This attribute is set before :meth:`serve`.
        """
        self.release_forwarding: Callable[[], object] = lambda: None
        """Called to resume forwarding, after rows that wait to be forwarded were purged."""
        self.own_queues = OwnQueues()
        """Queues of this queue manager, to which their own rows do not return.

        A batch may allow such a loop. This attribute is set before :meth:`serve`.
        """
        self.letter_warning: Callable[[str], str | None] = lambda queue: None
        """Called when rows are staged that name a local queue for their dead letters.

        It returns the problem of this queue and its remedy, or ``None``. This attribute is set
        before :meth:`serve`.
        """
        letters = ApplicationLetters(outbox, store)
        self._handlers: dict[str, Handler] = {
            "stage": self._stage,
            "commit": self._commit,
            "result": self._result,
            "delete": self._delete,
            "send": self._send_commands.send,
            "state": self._send_commands.state,
            "operate": partial(operations.operate, dispatcher, clock),
            "status": self._status,
            "dead_letter_queues": letters.queues,
            "dead_letters": letters.next,
            "hold-forwarding": self._hold_forwarding,
        }
        self._dead_timer: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        """Answer commands until the main process closes its end of the socket.

        Commands in progress are then cancelled, and the reader processes of stages end.
        """
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._readable)
        # The previous process may not have handed over all dead letters.
        self._dead()
        await self._over.wait()
        await end(tuple(self._tasks))
        self._readers.close()

    async def reserve(self, count: int) -> int:
        """Ask the main process to reserve ``count`` message identifiers, and return the first.

        The identifiers are consecutive. Raises :class:`ApiError` if the main process refuses, or
        does not answer within RESERVE_SECONDS. Raises :class:`OSError` if the main process has
        ended.
        """
        number = next(self._numbers)
        future: asyncio.Future[int] = self._loop.create_future()
        self._reservations[number] = future
        question = json.dumps({"event": "reserve", "number": number, "count": count}).encode()
        try:
            await asyncio.wait_for(
                self._loop.sock_sendall(self._control, question), RESERVE_SECONDS
            )
            return await asyncio.wait_for(future, RESERVE_SECONDS)
        except asyncio.TimeoutError:
            # Do not wait longer: other commits wait for this one.
            message = f"no message identifiers from the main process in {RESERVE_SECONDS:g} s"
            raise ApiError(503, "sender", message, "try again") from None
        finally:
            del self._reservations[number]

    def forwarded(self, to: Cursor) -> None:
        """Report to the main process that rows of ``private$/forward$`` are outgoing, up to ``to``.

        If the report is lost, the next one includes it.
        """
        self.forward_report.forwarded(to)

    def receipts_noted(self, to: int) -> None:
        """Report to the main process that it need not keep rows of the order queue up to ``to``.

        ``to`` is the sequence of a row; all rows up to it were read, and their effects are stored.
        If the report is lost, the next one includes it.
        """
        with contextlib.suppress(OSError):
            self._control.send(json.dumps({"event": "receipts-noted", "to": to}).encode())

    def dead_soon(self) -> None:
        """Notify the main process after DEAD_SECONDS that there are dead letters.

        Calls in this time share one notice. A notice for which the socket has no room is repeated.
        """
        if self._dead_timer is None:
            self._dead_timer = self._loop.call_later(DEAD_SECONDS, self._dead)

    def _dead(self) -> None:
        self._dead_timer = None
        try:
            self._control.send(b'{"event": "dead"}')
        except BlockingIOError:
            self.dead_soon()
        except OSError:
            # The main process has ended.
            return

    def _readable(self) -> None:
        try:
            received = receive_command(self._control)
        except BlockingIOError:
            return
        if received is None:
            self._loop.remove_reader(self._control.fileno())
            self._over.set()
            return
        if received.answer is not None:
            task = self._loop.create_task(self._serve(received.packet, received.answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        command = json.loads(received.packet)
        if command["op"] == "receipts":
            self._dispatcher.receipts_came()
        elif command["op"] == "forward":
            self.on_forward()
        elif command["op"] == "release-forwarding":
            self.release_forwarding()
        elif command["op"] == "reserved":
            waiting = self._reservations.get(command["number"])
            if waiting is not None and not waiting.done():
                if "error" in command:
                    status, code = command.get("status", 503), command.get("code", "store")
                    waiting.set_exception(
                        ApiError(status, code, command["error"], command.get("hint", ""))
                    )
                else:
                    waiting.set_result(command["first"])

    async def _serve(self, packet: bytes, answer: AnswerWriter) -> None:
        in_thread = partial(self._loop.run_in_executor, self._threads)
        try:
            try:
                if packet == LONG_COMMAND:
                    command = await in_thread(read_long_command, answer)
                else:
                    command = json.loads(packet)
                result = await self._handlers[command["op"]](command)
            except Exception as error:
                # Report any error to the caller, and let the process continue.
                await in_thread(_refuse, answer, error)
            else:
                await in_thread(answer.whole, result)
        except (OSError, TimeoutError):
            # The main process has ended, or reads nothing.
            return
        finally:
            answer.close()

    # --- handlers ---------------------------------------------------------------------------------

    async def _stage(self, command: dict[str, Any]) -> dict[str, Any]:
        application, batch, partition, attempt = (
            command[name] for name in ("application", "batch", "partition", "attempt")
        )
        stages = self._outbox.stages
        checked = await self._loop.run_in_executor(
            self._checks, self._readers.check, command["file"], partition
        )
        add = partial(
            stages.add, application, batch, partition, attempt, checked, self._clock.utc()
        )
        staged = await self._store.run(add, later=True)
        answer = {"stage": staged.stage_id, "rows": staged.rows}
        named = checked.schema.dead_letter_queue
        if named is not None:
            warning = await self._loop.run_in_executor(self._checks, self.letter_warning, named)
            answer |= {} if warning is None else {"warning": warning}
        return answer

    async def _commit(self, command: dict[str, Any]) -> dict[str, Any]:
        application, batch, stages = command["application"], command["batch"], command["stages"]
        origin = origin_of_token(command.get("token"))
        own = None if command["allow_loop"] else self.own_queues
        prepare = partial(
            self._outbox.prepare,
            application,
            batch,
            stages,
            on_conflict=command["on_conflict"],
            own=own,
        )
        result = (await self._dispatcher.commit(prepare, origin)).result
        if result.conflicts:
            log.warning(
                "outbox.conflicts application=%s batch=%s rows=%d on_key_conflict=%s: "
                "their key or source position was committed before with other content",
                ascii(application)[1:-1],
                ascii(batch)[1:-1],
                result.conflicts,
                command["on_conflict"],
            )
        return _told(result)

    async def _result(self, command: dict[str, Any]) -> dict[str, Any]:
        application, batch = command["application"], command["batch"]
        result = await self._store.run(partial(self._outbox.result, application, batch), later=True)
        if result is None:
            raise ApiError(
                404,
                "unknown-batch",
                "no batch of that name was committed, or the batch was forgotten",
            )
        return _told(result)

    async def _delete(self, command: dict[str, Any]) -> dict[str, Any]:
        drop = partial(self._outbox.stages.drop, command["application"], command["batch"])
        return {"deleted": await self._store.run(drop, later=True)}

    async def _hold_forwarding(self, command: dict[str, Any]) -> dict[str, Any]:
        to = await self.hold_forwarding()
        # Report before the answer, which states the same position.
        self.forward_report.tell()
        return {"forwarded": to}

    async def _status(self, command: dict[str, Any]) -> dict[str, Any]:
        return {
            "outgoing": snapshot.outgoing(self._dispatcher, self._clock),
            "set_aside": [each._asdict() for each in self._outbox.set_aside],
            "dead_letters": dict(self._outbox.dead_letters.rows),
        }


def _told(result: CommitResult) -> dict[str, Any]:
    answer = result._asdict()
    if not result.conflicts:
        # Without conflicts the answer is that of the first release, which callers may compare as a
        # whole.
        del answer["conflicts"]
    return answer


def _refuse(answer: AnswerWriter, error: Exception) -> None:
    if isinstance(error, BatchError | ApiError):
        answer.refuse(error.status, error.code, error.message, error.hint)
    elif isinstance(error, ConfigurationError):
        answer.refuse(400, "usage", str(error))
    else:
        if not isinstance(error, SrmpSparkError):
            log.error("sender.command_failed", exc_info=error)
        answer.refuse(503, "sender", str(error) or type(error).__name__)
