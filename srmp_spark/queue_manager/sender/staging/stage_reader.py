"""A process that reads stages before any other process does, so that it may die alone.

A stage is the file with the rows of one task of a batch. This process is a child of the sender
process. Arrow is fast because it trusts the bytes that it reads. A stage is written by a client,
and some bytes end the process that reads them. In this case they end a process that owns nothing:
no socket, no database, no lock, and a limit on its memory. The sender process reads only files that
this process has read to their end (:mod:`.stage_readers` is its side). This process reads each row,
so it hashes each row too, and leaves the hashes alongside the stage
(``srmp_spark.store.outbox.identity.row_hashes``). It also takes out rows that can never be sent, if
the client asked for that (``srmp_spark.store.outbox.staging.bad_rows``).

    python -m srmp_spark.queue_manager.sender.staging.stage_reader PARENT LOG

Questions are lines of JSON on standard input, and answers are lines of JSON on standard output, one
for each question.
"""

from __future__ import annotations

import errno
import resource
import select
import sys
from pathlib import Path

import msgspec

from srmp_spark.logs.form import LogForm, log_to_stderr
from srmp_spark.queue_manager.child.process import end_with_parent
from srmp_spark.queue_manager.child.without_pandas import leave_out_pandas

MEMORY_BYTES_MAX = 1024 * 1024 * 1024
"""Private memory of the process, in bytes. A stage that needs more is refused.

A record batch (64 MB) in several forms must fit, and every form of a destination's name.
"""
IDLE_SECONDS = 60.0
"""Time without a question after which the process ends, in seconds.

The next stage starts another process in half a second.
"""


class Question(msgspec.Struct, frozen=True):
    """Asks the reader process to check the stage ``file`` of ``folder``."""

    folder: str
    file: str
    partition: int
    multicast: bool
    application: str = ""
    batch: str = ""
    """Names of the application and the batch, for letters about bad rows."""


class ReadableStage(msgspec.Struct, frozen=True, tag=True):
    """The verdict that every row of the stage can become a message, with facts about the stage.

    ``rows`` and ``bytes`` are its size. ``file`` is its name: the client's, or that of the good
    rows, if ``bad_rows`` rows that can never be sent were taken out. ``first_bad`` names the first
    of these. The other fields are the schema of the stage.
    """

    file: str
    rows: int
    bytes: int
    bad_rows: int
    first_bad: str
    columns: tuple[str, ...]
    order_by: tuple[tuple[str, str], ...]
    dead_letter: bool
    dead_letter_queue: str | None
    on_bad_row: str


class UnreadableStage(msgspec.Struct, frozen=True, tag=True):
    """The verdict that the stage is refused, with the error for the client."""

    status: int
    code: str
    message: str
    hint: str


Verdict = ReadableStage | UnreadableStage


def judge(question: Question) -> Verdict:
    """Check the whole file of a question, and write the hashes of its rows alongside it.

    Return :class:`ReadableStage` if every row can become a message, or if the client wants rows
    that cannot to be taken out. Return :class:`UnreadableStage` otherwise. Raises :class:`OSError`
    if the file cannot be read.
    """
    from srmp_spark.store.outbox.errors import BAD_STAGE, NO_ROOM, BatchError
    from srmp_spark.store.outbox.staging.bad_row_letters import Origin
    from srmp_spark.store.outbox.staging.bad_rows import NO_BAD_ROWS, check_or_divide

    origin = Origin(question.application, question.batch, question.partition)
    try:
        checked = check_or_divide(
            Path(question.folder, question.file), origin, multicast=question.multicast, hashes=True
        )
    except BatchError as error:
        return UnreadableStage(error.status, error.code, error.message, error.hint)
    except MemoryError:
        message = f"reading it takes more than MEMORY_BYTES_MAX = {MEMORY_BYTES_MAX} bytes"
        return UnreadableStage(
            400, BAD_STAGE, message, "repartition into more tasks, or write smaller record batches"
        )
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        message = f"the stage has bad rows, and there is no room to take them out: {error}"
        return UnreadableStage(503, NO_ROOM, message, "make room, then try again")
    bad = checked.bad or NO_BAD_ROWS
    columns, order_by, dead_letter, dead_letter_queue, on_bad_row = checked.schema
    return ReadableStage(
        file=checked.file,
        rows=checked.rows,
        bytes=checked.bytes,
        bad_rows=bad.rows,
        first_bad=bad.first,
        columns=columns,
        order_by=order_by,
        dead_letter=dead_letter,
        dead_letter_queue=dead_letter_queue,
        on_bad_row=on_bad_row,
    )


def main() -> None:
    """Answer questions until the parent closes its end, or is silent for :data:`IDLE_SECONDS`.

    The arguments of the program are the process id of the parent, and the parent's
    :class:`.LogForm` as JSON.
    """
    end_with_parent(int(sys.argv[1]))
    log_to_stderr(msgspec.json.decode(sys.argv[2], type=LogForm), "stage-reader")
    leave_out_pandas()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    # A core dump would contain messages.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        sys.stdout.buffer.write(
            msgspec.json.encode(judge(msgspec.json.decode(line, type=Question))) + b"\n"
        )
        sys.stdout.buffer.flush()
        _give_back()


def _give_back() -> None:
    """Return unused memory to the system, because the process waits for the next stage."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


if __name__ == "__main__":
    main()
