"""Answer the commands of the main process, in the sender process.

Commands are packets in the socket that was passed at the start. Notices of new receipts and of
reserved identifiers have no answer. A command that waits (for a commit, or for the end of a
message) delays no other command.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
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
from srmp_spark.queue_manager.sender.crossing import (
    SENDER_COMMANDS,
    SENDER_EVENTS,
    AddStage,
    BatchResult,
    CommitBatch,
    DeadLettersWait,
    DeleteStages,
    FindBatchResult,
    FindLetterQueues,
    FindStates,
    ForwardArrived,
    ForwardingHeld,
    GetStatus,
    HoldForwarding,
    IdentifiersRefused,
    IdentifiersReserved,
    NextLetters,
    Operate,
    ReceiptsArrived,
    ReceiptsNoted,
    ReleaseForwarding,
    ReserveIdentifiers,
    SenderCommand,
    SenderStatus,
    SendingAllowed,
    SendMessages,
    StageAdded,
    StagesDeleted,
)
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.queue_manager.sender.reporting import snapshot
from srmp_spark.queue_manager.sender.reporting.forward_report import ForwardReport
from srmp_spark.queue_manager.sender.send_commands import SendCommands
from srmp_spark.queue_manager.sender.staging.stage_readers import StageReaders
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.sending.outgoing_room import origin_of_token
from srmp_spark.store.outbox.errors import DEAD_LETTER, NO_DEAD_LETTER_QUEUE, BatchError
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.stage_paths import delete_stage
from srmp_spark.store.outbox.staging.bad_rows import NO_BAD_ROWS
from srmp_spark.store.outbox.staging.loops import OwnQueues
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace

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


class SenderCommands:
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
        self.hold_forwarding: Callable[[], Awaitable[ForwardPlace | None]]
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
        self._handlers: dict[type[SenderCommand], Callable[[Any], Awaitable[object]]] = {
            AddStage: self._stage,
            CommitBatch: self._commit,
            FindBatchResult: self._result,
            DeleteStages: self._delete,
            SendMessages: self._send_commands.send,
            FindStates: self._send_commands.state,
            Operate: partial(operations.operate, dispatcher, clock),
            GetStatus: self._status,
            FindLetterQueues: letters.queues,
            NextLetters: letters.next,
            HoldForwarding: self._hold_forwarding,
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
        question = SENDER_EVENTS.encode(ReserveIdentifiers(number, count))
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

    def forwarded(self, to: ForwardPlace) -> None:
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
            self._control.send(SENDER_EVENTS.encode(ReceiptsNoted(to)))

    def dead_soon(self) -> None:
        """Notify the main process after DEAD_SECONDS that there are dead letters.

        Calls in this time share one notice. A notice for which the socket has no room is repeated.
        """
        if self._dead_timer is None:
            self._dead_timer = self._loop.call_later(DEAD_SECONDS, self._dead)

    def _dead(self) -> None:
        self._dead_timer = None
        try:
            self._control.send(SENDER_EVENTS.encode(DeadLettersWait()))
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
        command = SENDER_COMMANDS.decode(received.packet)
        if isinstance(command, ReceiptsArrived):
            self._dispatcher.receipts_came()
        elif isinstance(command, ForwardArrived):
            self.on_forward()
        elif isinstance(command, ReleaseForwarding):
            self.release_forwarding()
        elif isinstance(command, SendingAllowed):
            self._dispatcher.release_all()
        elif isinstance(command, IdentifiersReserved | IdentifiersRefused):
            waiting = self._reservations.get(command.number)
            if waiting is not None and not waiting.done():
                if isinstance(command, IdentifiersReserved):
                    waiting.set_result(command.first)
                else:
                    waiting.set_exception(
                        ApiError(command.status, command.code, command.error, command.hint)
                    )

    async def _serve(self, packet: bytes, answer: AnswerWriter) -> None:
        in_thread = partial(self._loop.run_in_executor, self._threads)
        try:
            try:
                if packet == LONG_COMMAND:
                    command = await in_thread(_long_command, answer)
                else:
                    command = SENDER_COMMANDS.decode(packet)
                result = await self._handlers[type(command)](command)
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

    async def _stage(self, command: AddStage) -> StageAdded:
        stages = self._outbox.stages
        checked = await self._loop.run_in_executor(
            self._checks,
            self._readers.check,
            command.file,
            command.partition,
            command.application,
            command.batch,
        )
        named, warning = checked.schema.dead_letter_queue, None
        if named is not None:
            warning = await self._loop.run_in_executor(self._checks, self.letter_warning, named)
        bad = checked.bad or NO_BAD_ROWS
        if warning is not None and bad.rows and checked.schema.on_bad_row == DEAD_LETTER:
            delete = partial(delete_stage, stages.folder / checked.file)
            await self._loop.run_in_executor(self._checks, delete)
            raise BatchError(
                409,
                NO_DEAD_LETTER_QUEUE,
                f"a row can never be sent, and no queue takes the letter about it: {bad.first}",
                warning,
            )
        add = partial(
            stages.add,
            command.application,
            command.batch,
            command.partition,
            command.attempt,
            checked,
            self._clock.utc(),
        )
        staged = await self._store.run(add, later=True)
        return StageAdded(staged.stage_id, staged.rows, warning, *bad)

    async def _commit(self, command: CommitBatch) -> BatchResult:
        prepare = partial(
            self._outbox.prepare,
            command.application,
            command.batch,
            command.stages,
            on_conflict=command.on_conflict,
            own=None if command.allow_loop else self.own_queues,
        )
        origin = origin_of_token(command.token)
        result = (await self._dispatcher.commit(prepare, origin)).result
        if result.conflicts:
            log.warning(
                "outbox.conflicts application=%s batch=%s rows=%d on_key_conflict=%s: "
                "their key or source position was committed before with other content",
                ascii(command.application)[1:-1],
                ascii(command.batch)[1:-1],
                result.conflicts,
                command.on_conflict,
            )
        if result.bad:
            log.warning(
                'outbox.bad_rows application=%s batch=%s rows=%d first="%s": they can never be '
                "sent, and the rest of the batch is sent",
                ascii(command.application)[1:-1],
                ascii(command.batch)[1:-1],
                result.bad,
                ascii(result.first_bad)[1:-1],
            )
        return BatchResult(*result)

    async def _result(self, command: FindBatchResult) -> BatchResult:
        find = partial(self._outbox.result, command.application, command.batch)
        result = await self._store.run(find, later=True)
        if result is None:
            raise ApiError(
                404,
                "unknown-batch",
                "no batch of that name was committed, or the batch was forgotten",
            )
        return BatchResult(*result)

    async def _delete(self, command: DeleteStages) -> StagesDeleted:
        drop = partial(self._outbox.stages.drop, command.application, command.batch)
        return StagesDeleted(await self._store.run(drop, later=True))

    async def _hold_forwarding(self, command: HoldForwarding) -> ForwardingHeld:
        to = await self.hold_forwarding()
        # Report before the answer, which states the same position.
        self.forward_report.tell()
        return ForwardingHeld(to)

    async def _status(self, command: GetStatus) -> SenderStatus:
        return SenderStatus(
            snapshot.outgoing(self._dispatcher, self._clock),
            [each._asdict() for each in self._outbox.set_aside],
            dict(self._outbox.dead_letters.rows),
        )


def _long_command(answer: AnswerWriter) -> SenderCommand:
    return SENDER_COMMANDS.decode(read_long_command(answer))


def _refuse(answer: AnswerWriter, error: Exception) -> None:
    if isinstance(error, BatchError | ApiError):
        answer.refuse(error.status, error.code, error.message, error.hint)
    elif isinstance(error, ConfigurationError):
        answer.refuse(400, "usage", str(error))
    else:
        if not isinstance(error, SrmpSparkError):
            log.error("sender.command_failed", exc_info=error)
        answer.refuse(503, "sender", str(error) or type(error).__name__)
