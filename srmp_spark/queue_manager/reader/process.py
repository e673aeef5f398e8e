"""Run the reader process, the child of the queue manager that does all decoding.

The main process's side is :mod:`.link`. The reader holds no port and no lock, and opens the
database read-only. Commands run in pools of threads, each with a database connection of its own. A
caller that disconnects ends its own command only. Sealing runs at low priority. The Delta
publishers run in this process too. :mod:`srmp_spark.queue_manager.child.process` describes the
start and the end of the process.

    python -m srmp_spark.queue_manager.reader.process FD < SETTINGS

SETTINGS are :class:`.crossing.ReaderSettings`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from srmp_spark.errors import ApiError, SrmpSparkError
from srmp_spark.queue_manager.child.answer import STALL_SECONDS, AnswerWriter
from srmp_spark.queue_manager.child.commands import receive_command
from srmp_spark.queue_manager.child.packets import Start
from srmp_spark.queue_manager.child.process import run_child
from srmp_spark.queue_manager.reader.answer import AnswerFile, refusal_of
from srmp_spark.queue_manager.reader.crossing import (
    READER_COMMANDS,
    BatchEnd,
    CountHoles,
    DueQueues,
    FindBatchEnd,
    FindFirstSince,
    FindQueuesToSeal,
    FindQueuesToTrim,
    FirstRowSince,
    HoleCount,
    PlanTrim,
    PublishingStarted,
    ReaderCommand,
    ReaderSettings,
    ReadPackets,
    ReadPriorities,
    ReadRecord,
    ReadRows,
    SealAnswer,
    SealRows,
    StartPublishing,
    TrimPlan,
)
from srmp_spark.queue_manager.reader.dense_rows import FilePiece, dense_pieces
from srmp_spark.queue_manager.reader.events import Events
from srmp_spark.queue_manager.reader.remote_messages import (
    message_frames,
    priority_runs,
    record_blob,
)
from srmp_spark.queue_manager.reader.shared_pool import SharedPool
from srmp_spark.rows.columns import arrow_schema
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.stored_rows import arrivals, due, reading, retention, sealing
from srmp_spark.store.stored_rows.log import Log

READS_MAX = 32
"""Most reads of rows at once; further reads wait.

A Spark query reads with as many tasks as it has cores.
"""
READS_OF_TOKEN_MAX = READS_MAX // 2
"""Most reads of rows of one API token at once; further ones wait.

It is half of READS_MAX, so that callers that accept no data block only the readers of their own
token.
"""
SHORT_READS_MAX = 16
"""Most short commands at once; further ones wait.

No caller can delay these commands: ends of batches, holes, and reads for the RPC port, whose
answers the main process reads at once. Short commands have threads of their own, which reads of
rows cannot use up.
"""
SHORT_READS_OF_TOKEN_MAX = SHORT_READS_MAX // 2
"""Most short commands of one API token at once; further ones wait.

The limit does not apply to reads for the RPC port.
"""
STALL_WAITED_SECONDS = 10.0
"""Longest time for which a caller may accept no byte while calls of others wait for its thread, in
seconds. After that the caller is disconnected. A Spark task that reads nothing for that long is
between two batches of rows; the task fails, and Spark repeats it.
"""
SEAL_NICENESS = 15
"""Niceness of the thread that seals. It gets only the processor time that others leave."""
PUBLISH_STOP_SECONDS = 4.0
"""Seconds that the publishers of the Delta state get at the end for a last publication.

The parent waits five seconds for the whole process.
"""

log = logging.getLogger(__name__)


class ReaderProcess:
    """Executes the commands of the main process in threads, and publishes the Delta state.

    Each command (:mod:`.crossing`) has a handler, which sends the answer through ``answer``.
    Handlers raise the errors of :class:`.Log`, which :meth:`_answer` turns into a refusal.
    """

    def __init__(self, control: socket.socket, settings: ReaderSettings) -> None:
        self._control = control
        self._events = Events(control)
        self._data_dir = Path(settings.data_dir)
        self._queue_manager = settings.queue_manager
        self._state = settings.state
        self._state_interval = settings.state_interval
        self._reads = SharedPool(READS_MAX, READS_OF_TOKEN_MAX, "read")
        self._short_reads = SharedPool(SHORT_READS_MAX, SHORT_READS_OF_TOKEN_MAX, "short-read")
        self._seals = ThreadPoolExecutor(1, "seal", initializer=_be_nice)
        self._handlers: dict[type[ReaderCommand], Callable[[Any, AnswerWriter], None]] = {
            ReadRows: self._rows,
            FindBatchEnd: self._end,
            CountHoles: self._holes,
            FindFirstSince: self._first_since,
            FindQueuesToSeal: self._to_seal,
            FindQueuesToTrim: self._to_trim,
            SealRows: self._seal,
            PlanTrim: self._trim,
            ReadPackets: self._packets,
            ReadPriorities: self._priorities,
            ReadRecord: self._record,
            StartPublishing: self._start_publishing,
        }
        self._stop = threading.Event()
        self._publishers: list[threading.Thread] = []
        self._publishing = threading.Lock()
        """Held while it is decided whether the publishers must be started."""

    def run(self) -> None:
        """Start the publishers, and execute commands until the parent closes the command socket.

        Then the publishers get PUBLISH_STOP_SECONDS for a last publication.
        """
        if self._state is not None:
            self._start_publisher("publish", self._publish)
        while (received := receive_command(self._control)) is not None:
            command, answer = READER_COMMANDS.decode(received.packet), received.answer
            assert answer is not None  # Every command of the reader has an answer.
            self._submit(command, answer)
        self._stop.set()
        end = time.monotonic() + PUBLISH_STOP_SECONDS
        for thread in self._publishers:
            thread.join(max(0.0, end - time.monotonic()))

    def _submit(self, command: ReaderCommand, answer: AnswerWriter) -> None:
        job = partial(self._answer, command, answer)
        if isinstance(command, SealRows | PlanTrim):
            self._seals.submit(job)
        elif isinstance(command, ReadRows):
            answer.patience = lambda: (
                STALL_WAITED_SECONDS if self._reads.others_wait(command.caller) else STALL_SECONDS
            )
            self._reads.submit(command.caller, job, partial(_refuse, answer))
        else:
            self._short_reads.submit(
                command.caller
                if isinstance(command, FindBatchEnd | CountHoles | FindFirstSince)
                else None,
                job,
                partial(_refuse, answer),
            )

    def _answer(self, command: ReaderCommand, answer: AnswerWriter) -> None:
        try:
            self._handlers[type(command)](command, answer)
        except (
            BrokenPipeError,
            ConnectionResetError,
            TimeoutError,
        ):
            # The caller has disconnected, or accepts no data.
            return
        except BaseException as error:
            # The caller gets an answer for every error, and the process continues. An OSError is no
            # bug: the disk is full or refuses, and the main process tries again.
            name = READER_COMMANDS.name_of(command)
            if isinstance(error, OSError):
                log.warning('reader.failed op=%s reason="%s"', name, error)
            elif not isinstance(error, Exception) or not _is_of_the_package(error):
                log.exception("reader.failed op=%s", name)
            try:
                answer.refuse(*refusal_of(error), str(error))
            except OSError:
                return
        finally:
            answer.close()

    def _log(self) -> Log:
        return Log(self._data_dir / DATABASE_FILE, self._data_dir / SEGMENTS_DIRECTORY)

    def _end(self, command: FindBatchEnd, answer: AnswerWriter) -> None:
        after = command.after
        with self._log() as stored:
            last = stored.end_for(
                command.queue, command.epoch, after, command.to - after, command.max_bytes
            )
        answer.whole(BatchEnd(last))

    def _holes(self, command: CountHoles, answer: AnswerWriter) -> None:
        with self._log() as stored:
            holes = stored.holes(command.queue, command.after, command.to)
        answer.whole(HoleCount(sum(last - first + 1 for first, last in holes)))

    def _first_since(self, command: FindFirstSince, answer: AnswerWriter) -> None:
        with self._log() as stored:
            found = arrivals.first_since(
                stored, command.queue, command.epoch, command.after, command.since
            )
        answer.whole(FirstRowSince(*found))

    def _to_seal(self, command: FindQueuesToSeal, answer: AnswerWriter) -> None:
        with self._log() as stored:
            answer.whole(DueQueues(due.to_seal(stored, command.now)))

    def _to_trim(self, command: FindQueuesToTrim, answer: AnswerWriter) -> None:
        with self._log() as stored:
            answer.whole(DueQueues(due.to_trim(stored, command.before)))

    def _seal(self, command: SealRows, answer: AnswerWriter) -> None:
        with self._log() as stored:
            plan = sealing.plan(stored, command.queue, command.now)
            try:
                sealed = (
                    None
                    if plan is None
                    else sealing.write_segment(stored, plan, self._data_dir / SEGMENTS_DIRECTORY)
                )
            except sealing.NoSealRoomError:
                answer.whole(SealAnswer(None, later=True))
                return
        answer.whole(SealAnswer(None if sealed is None else sealed.to_json(), later=False))

    def _trim(self, command: PlanTrim, answer: AnswerWriter) -> None:
        with self._log() as stored:
            answer.whole(TrimPlan(retention.plan(stored, command.queue, command.limits)))

    def _rows(self, command: ReadRows, answer: AnswerWriter) -> None:
        where = command.queue, command.epoch, command.after, command.to
        with self._log() as stored:
            if command.dense:
                self._dense_rows(stored, where, command, answer)
            else:
                batches = reading.batches(
                    stored,
                    self._queue_manager,
                    *where,
                    command.envelope,
                    shown=command.shown,
                    names=command.columns,
                )
                batch, schema = next(batches, None), arrow_schema(command.columns)
                answer.begin()
                with (
                    pa.PythonFile(AnswerFile(answer), mode="w") as sink,
                    pa.ipc.new_stream(sink, schema) as writer,
                ):
                    while batch is not None:
                        writer.write_batch(batch)
                        batch = next(batches, None)
        answer.end()

    @staticmethod
    def _dense_rows(
        stored: Log, where: tuple[str, str, int, int], command: ReadRows, answer: AnswerWriter
    ) -> None:
        pieces = dense_pieces(
            stored.chunks(*where), envelope=command.envelope, names=command.columns
        )
        first = next(pieces)  # A refusal must precede the beginning of the answer.
        answer.begin()
        if command.direct:
            answer.take_caller()
        for piece in chain((first,), pieces):
            if isinstance(piece, FilePiece):
                with piece.file:
                    for begin, end in piece.spans:
                        answer.write_file(piece.file, begin, end)
            else:
                answer.write(piece)

    def _packets(self, command: ReadPackets, answer: AnswerWriter) -> None:
        where = command.queue, command.epoch, command.after, command.to
        with self._log() as stored:
            self._write(answer, message_frames(stored, *where, command.max_bytes))

    def _record(self, command: ReadRecord, answer: AnswerWriter) -> None:
        with self._log() as stored:
            self._write(answer, record_blob(stored, command.queue, command.epoch, command.sequence))

    def _priorities(self, command: ReadPriorities, answer: AnswerWriter) -> None:
        where = command.queue, command.epoch, command.after, command.to
        with self._log() as stored:
            self._write(answer, priority_runs(stored, self._queue_manager, *where))

    @staticmethod
    def _write(answer: AnswerWriter, pieces: Iterator[bytes]) -> None:
        first = next(pieces, b"")  # A refusal must precede the beginning of the answer.
        answer.begin()
        for piece in chain((first,), pieces):
            answer.write(piece)
        answer.end()

    def _start_publishing(self, command: StartPublishing, answer: AnswerWriter) -> None:
        with self._publishing:
            if self._state is None:
                self._state = command.state
                self._start_publisher("publish", self._publish)
        answer.whole(PublishingStarted())

    def _start_publisher(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._publishers.append(thread)
        thread.start()

    def _publish(self) -> None:
        # Load deltalake only where it is used.
        from srmp_spark.store.delta.outgoing.outgoing_publisher import OutgoingPublisher
        from srmp_spark.store.delta.publisher import Publisher
        from srmp_spark.store.delta.restore_watch import RestoreWatch

        assert self._state is not None
        where = self._data_dir, self._state, self._queue_manager, self._state_interval
        # It has a thread of its own, so that no dead letter waits for a backlog of the inbox.
        outgoing = OutgoingPublisher(*where)
        self._start_publisher(
            "publish-outgoing", partial(outgoing.run, self._stop, self._events.tell)
        )
        # It has a thread of its own, so that it answers whatever the publishers do.
        watch = RestoreWatch(*where)
        self._start_publisher("watch-restores", partial(watch.run, self._stop, self._events.tell))
        Publisher(*where, others_as_of=outgoing.as_of).run(self._stop, self._events.tell)


def _refuse(answer: AnswerWriter, error: ApiError) -> None:
    """Send the refusal ``error`` to a caller for which no thread was free, and close the answer.

    A caller that has disconnected is no error.
    """
    try:
        answer.refuse(error.status, error.code, error.message, error.hint)
    except OSError:  # The caller has disconnected.
        return
    finally:
        answer.close()


def _is_of_the_package(error: Exception) -> bool:
    """Return whether ``error`` is an error of srmp-spark that was raised on purpose.

    The caller gets such an error as an answer. It is no bug that needs a traceback.
    """
    return isinstance(error, SrmpSparkError)


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SEAL_NICENESS)


def _serve(control: socket.socket, start: Start[ReaderSettings]) -> None:
    ReaderProcess(control, start.settings).run()


if __name__ == "__main__":
    run_child(ReaderSettings, _serve)
