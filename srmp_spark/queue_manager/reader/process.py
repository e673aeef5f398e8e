"""The reader process: everything that decodes, in a child of the queue manager (see :mod:`.link`).

It holds no port and no lock, and opens the database read-only. Each command runs in a thread of its own with its own
connection; a caller that goes away ends its thread and nothing else. Sealing runs at low priority. The Delta publisher lives
here too. How it starts and ends: :mod:`srmp_spark.queue_manager.child.process`.

    python -m srmp_spark.queue_manager.reader.process FD < '{"data_dir": …, "queue_manager": …, "state": …, …}'
"""

from __future__ import annotations

import json
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
from srmp_spark.queue_manager.child.process import run_child
from srmp_spark.queue_manager.reader.answer import AnswerFile, refusal_of
from srmp_spark.queue_manager.reader.dense_rows import FilePiece, dense_pieces
from srmp_spark.queue_manager.reader.events import Events
from srmp_spark.queue_manager.reader.remote_messages import (
    message_frames,
    priority_runs,
    record_blob,
)
from srmp_spark.queue_manager.reader.shared_pool import SharedPool
from srmp_spark.rows.columns import arrow_schema
from srmp_spark.store import arrivals, due, reading, retention, sealing
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.log import Log

READS_MAX = 32
"""Reads of rows at once; further ones wait. A Spark query reads with as many tasks as it has cores."""
READS_OF_TOKEN_MAX = READS_MAX // 2
"""Reads of rows at once of one token: half, so that callers that take nothing stop the readers of their own token alone."""
SHORT_READS_MAX = 16
"""Commands at once that no caller can hold up: ends of batches, holes, and what the RPC port reads, which the main process
takes at once. They have threads of their own, which reads of rows cannot fill."""
SHORT_READS_OF_TOKEN_MAX = SHORT_READS_MAX // 2
"""Of these the commands of one token. The RPC port has no share."""
STALL_WAITED_SECONDS = 10.0
"""A caller that takes no byte for that long is given up while calls of others wait for its thread. A task of Spark that does
not read for that long is between two batches of rows; it fails, and Spark tries it again."""
SEAL_NICENESS = 15
"""Of the thread that seals: what is left of the processor."""
PUBLISH_STOP_SECONDS = 4.0
"""What the publisher gets at the end to publish once more, inside the five seconds that the parent waits."""

log = logging.getLogger(__name__)


class Reader:
    """One reader process."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._events = Events(control)
        self._data_dir = Path(settings["data_dir"])
        self._queue_manager: str = settings["queue_manager"]
        self._state: str | None = settings["state"]
        self._state_interval: float = settings["state_interval"]
        self._reads = SharedPool(READS_MAX, READS_OF_TOKEN_MAX, "read")
        self._short_reads = SharedPool(SHORT_READS_MAX, SHORT_READS_OF_TOKEN_MAX, "short-read")
        self._seals = ThreadPoolExecutor(1, "seal", initializer=_be_nice)
        self._commands: dict[str, Callable[[dict[str, Any], AnswerWriter], None]] = {
            "rows": self._rows,
            "end": self._end,
            "holes": self._holes,
            "first-since": self._first_since,
            "to-seal": self._to_seal,
            "to-trim": self._to_trim,
            "seal": self._seal,
            "trim": self._trim,
            "packets": self._packets,
            "priorities": self._priorities,
            "record": self._record,
        }
        self._stop = threading.Event()
        self._publishers: list[threading.Thread] = []

    def run(self) -> None:
        """Serve commands until the parent closes its end."""
        if self._state is not None:
            self._start_publisher("publish", self._publish)
        while (received := receive_command(self._control)) is not None:
            command, answer = json.loads(received.packet), received.answer
            assert answer is not None  # the reader is asked, never told
            self._submit(command, answer)
        self._stop.set()
        end = time.monotonic() + PUBLISH_STOP_SECONDS
        for thread in self._publishers:
            thread.join(max(0.0, end - time.monotonic()))

    def _submit(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        job = partial(self._answer, command, answer)
        op, caller = command["op"], command.get("caller")
        if op in ("seal", "trim"):
            self._seals.submit(job)
        elif op == "rows":
            answer.patience = lambda: (
                STALL_WAITED_SECONDS if self._reads.others_wait(caller) else STALL_SECONDS
            )
            self._reads.submit(caller, job, partial(_refuse, answer))
        else:
            self._short_reads.submit(caller, job, partial(_refuse, answer))

    def _answer(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        try:
            self._commands[command["op"]](command, answer)
        except (
            BrokenPipeError,
            ConnectionResetError,
            TimeoutError,
        ):  # the caller went away, or takes nothing
            return
        except (
            BaseException
        ) as error:  # whatever it is, the caller is told, and the process goes on
            if isinstance(
                error, OSError
            ):  # the disk is full or refuses: no bug, the main process tries again
                log.warning('reader.failed op=%s reason="%s"', command["op"], error)
            elif not isinstance(error, Exception) or not _is_of_the_package(error):
                log.exception("reader.failed op=%s", command["op"])
            try:
                answer.refuse(*refusal_of(error), str(error))
            except OSError:
                return
        finally:
            answer.close()

    def _log(self) -> Log:
        return Log(self._data_dir / DATABASE_FILE, self._data_dir / SEGMENTS_DIRECTORY)

    def _end(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Where a batch ends under a limit of bytes."""
        after, to = command["after"], command["to"]
        with self._log() as stored:
            last = stored.end_for(
                command["queue"], command["epoch"], after, to - after, command["max_bytes"]
            )
        answer.head({"last": last})

    def _holes(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """How many sequences of a range are counted holes."""
        with self._log() as stored:
            holes = stored.holes(command["queue"], command["after"], command["to"])
        answer.head({"count": sum(last - first + 1 for first, last in holes)})

    def _first_since(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Tell the first row that arrived at or after a time, or how far there is none."""
        what = (command[name] for name in ("queue", "epoch", "after", "since"))
        with self._log() as stored:
            answer.head(arrivals.first_since(stored, *what)._asdict())

    def _to_seal(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Tell which queues may have something to seal."""
        with self._log() as stored:
            answer.whole({"queues": due.to_seal(stored, command["now"])})

    def _to_trim(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Tell which queues retention may have something to delete of."""
        with self._log() as stored:
            answer.whole({"queues": due.to_trim(stored, command["before"])})

    def _seal(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Write the next segment of a queue, if there is enough for one."""
        with self._log() as stored:
            plan = sealing.plan(stored, command["queue"], command["now"])
            try:
                sealed = (
                    None
                    if plan is None
                    else sealing.write_segment(stored, plan, self._data_dir / SEGMENTS_DIRECTORY)
                )
            except sealing.NoSealRoomError:
                answer.head({"sealed": None, "later": True})
                return
        answer.head({"sealed": None if sealed is None else sealed.to_json(), "later": False})

    def _trim(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Up to where retention may delete."""
        names = ("before", "bytes_max", "synced_to", "read_to", "unsynced_max")
        limits = retention.Limits(*(command[name] for name in names))
        with self._log() as stored:
            answer.head({"to": retention.plan(stored, command["queue"], limits)})

    def _rows(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Rows as an Arrow stream, or the stored pieces as they are."""
        with self._log() as stored:
            queue, epoch, after, to = (command[key] for key in ("queue", "epoch", "after", "to"))
            names = tuple(command["columns"])
            if command["dense"]:
                pieces = dense_pieces(
                    stored.chunks(queue, epoch, after, to),
                    envelope=command["envelope"],
                    names=names,
                )
                first = next(pieces)  # a refusal must come before the head
                answer.head({})
                if command["direct"]:
                    answer.take_caller()
                for piece in chain((first,), pieces):
                    if isinstance(piece, FilePiece):
                        with piece.file:
                            for begin, end in piece.spans:
                                answer.write_file(piece.file, begin, end)
                    else:
                        answer.write(piece)
            else:
                batches = reading.batches(
                    stored,
                    self._queue_manager,
                    queue,
                    epoch,
                    after,
                    to,
                    command["envelope"],
                    shown=command["shown"],
                    names=names,
                )
                batch, schema = next(batches, None), arrow_schema(names)
                answer.head({})
                with (
                    pa.PythonFile(AnswerFile(answer), mode="w") as sink,
                    pa.ipc.new_stream(sink, schema) as writer,
                ):
                    while batch is not None:
                        writer.write_batch(batch)
                        batch = next(batches, None)
        answer.end()

    def _packets(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Rows as remote readers get them."""
        what = (command[key] for key in ("queue", "epoch", "after", "to", "max_bytes"))
        with self._log() as stored:
            self._write(answer, message_frames(stored, *what))

    def _record(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """One row as it is stored."""
        what = (command[key] for key in ("queue", "epoch", "sequence"))
        with self._log() as stored:
            self._write(answer, record_blob(stored, *what))

    def _priorities(self, command: dict[str, Any], answer: AnswerWriter) -> None:
        """Which priority rows have, in runs."""
        what = (command[key] for key in ("queue", "epoch", "after", "to"))
        with self._log() as stored:
            self._write(answer, priority_runs(stored, self._queue_manager, *what))

    @staticmethod
    def _write(answer: AnswerWriter, pieces: Iterator[bytes]) -> None:
        first = next(pieces, b"")  # a refusal must come before the head
        answer.head({})
        for piece in chain((first,), pieces):
            answer.write(piece)
        answer.end()

    def _start_publisher(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._publishers.append(thread)
        thread.start()

    def _publish(self) -> None:
        # deltalake is loaded only where it is used
        from srmp_spark.store.delta.outgoing_publisher import OutgoingPublisher
        from srmp_spark.store.delta.publisher import Publisher
        from srmp_spark.store.delta.restore_watch import RestoreWatch

        assert self._state is not None
        where = self._data_dir, self._state, self._queue_manager, self._state_interval
        outgoing = OutgoingPublisher(
            *where
        )  # a thread of its own: no dead letter waits behind a backlog of the inbox
        self._start_publisher(
            "publish-outgoing", partial(outgoing.run, self._stop, self._events.tell)
        )
        watch = RestoreWatch(*where)  # a thread of its own: it answers whatever the publishers do
        self._start_publisher("watch-restores", partial(watch.run, self._stop, self._events.tell))
        Publisher(*where, others_as_of=outgoing.as_of).run(self._stop, self._events.tell)


def _refuse(answer: AnswerWriter, error: ApiError) -> None:
    """Tell a caller for whom there was no thread."""
    try:
        answer.refuse(error.status, error.code, error.message, error.hint)
    except OSError:  # the caller went away
        return
    finally:
        answer.close()


def _is_of_the_package(error: Exception) -> bool:
    """Raised on purpose, and told to the caller: no bug that needs a traceback."""
    return isinstance(error, SrmpSparkError)


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SEAL_NICENESS)


def _serve(control: socket.socket, settings: dict[str, Any]) -> None:
    Reader(control, settings).run()


if __name__ == "__main__":
    run_child(_serve)
