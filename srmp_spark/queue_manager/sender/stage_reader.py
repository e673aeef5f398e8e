"""A process that reads stages before anything else does: a child of the sender process that may die alone.

Arrow is fast because it believes what it reads. A stage is a client's, and some bytes end the process that reads them. Here
that costs one process that owns nothing: no socket, no database, no lock, and a limit on its memory. Only a file that was read
here to its end is read by the sender process (:mod:`.stage_readers` is its side).

It reads each row, so it hashes each row too, and leaves the hashes beside the stage (``srmp_spark.store.outbox.row_hashes``).

    python -m srmp_spark.queue_manager.sender.stage_reader PARENT

Questions come as lines of JSON on standard input, answers leave as lines of JSON on standard output, one for each question.
"""

from __future__ import annotations

import resource
import select
import sys
from contextlib import closing
from pathlib import Path

import msgspec

from srmp_spark.queue_manager.child.log_lines import log_to_stderr
from srmp_spark.queue_manager.child.process import end_with_parent
from srmp_spark.queue_manager.child.without_pandas import leave_out_pandas

MEMORY_BYTES_MAX = 1024 * 1024 * 1024
"""Private memory of the process: a record batch (64 MB) in several forms, and every spelling of a destination. A stage that
needs more is refused."""
IDLE_SECONDS = 60.0
"""The process ends after so long without a question; the next stage starts another one in half a second."""


class Question(msgspec.Struct, frozen=True):
    """Judge this file."""

    folder: str
    file: str
    partition: int
    multicast: bool


class Readable(msgspec.Struct, frozen=True, tag=True):
    """Every row can become a message."""

    rows: int
    bytes: int
    columns: tuple[str, ...]
    order_by: tuple[tuple[str, str], ...]
    dead_letter: bool
    dead_letter_queue: str | None


class Unreadable(msgspec.Struct, frozen=True, tag=True):
    """The stage is refused, with these words."""

    status: int
    code: str
    message: str
    hint: str


Verdict = Readable | Unreadable


def judge(question: Question) -> Verdict:
    """Read the whole file, and leave beside it what a commit needs to know of its rows."""
    from srmp_spark.store.outbox.errors import BAD_STAGE, BatchError
    from srmp_spark.store.outbox.row_hashes import HashesWriter
    from srmp_spark.store.outbox.stage_file import StageFile

    try:
        stage = StageFile(Path(question.folder, question.file))
        with closing(HashesWriter(stage.path, stage.bytes)) as hashes:
            rows = stage.check(multicast=question.multicast, judged=hashes.add)
    except BatchError as error:
        return Unreadable(error.status, error.code, error.message, error.hint)
    except MemoryError:
        message = f"reading it takes more than MEMORY_BYTES_MAX = {MEMORY_BYTES_MAX} bytes"
        return Unreadable(
            400, BAD_STAGE, message, "repartition into more tasks, or write smaller record batches"
        )
    return Readable(rows, stage.bytes, *stage.schema)


def main() -> None:
    """Answer until the parent closes its end, or asks nothing for :data:`IDLE_SECONDS`."""
    end_with_parent(int(sys.argv[1]))
    log_to_stderr()
    leave_out_pandas()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold messages
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
    """Give memory that is not used any more back to the system: the process waits for the next stage."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


if __name__ == "__main__":
    main()
