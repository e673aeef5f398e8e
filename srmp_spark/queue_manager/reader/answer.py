"""Define what only the reader process answers: refusals of the log, and Arrow streams."""

from __future__ import annotations

from typing import Any

from srmp_spark.errors import StoreDamagedError, StoreError
from srmp_spark.interface import PAST_THE_END, TRIMMED, UNKNOWN_EPOCH, UNKNOWN_QUEUE
from srmp_spark.queue_manager.child.answer import AnswerWriter
from srmp_spark.queue_manager.reader.link import DAMAGED, INTERNAL
from srmp_spark.store.stored_rows.log import (
    PastTheEndError,
    QueueNotInLogError,
    TrimmedError,
    UnknownEpochError,
)


class AnswerFile:
    """Presents the data of an answer as a file that Arrow can write to.

    Closing the file does not end the answer.
    """

    def __init__(self, answer: AnswerWriter) -> None:
        self._answer = answer
        self.closed = False

    def write(self, data: Any) -> int:  # noqa: ANN401  # bytes, or a buffer of Arrow
        """Add bytes to the data of the answer, and return their number."""
        return self._answer.write(data)

    def flush(self) -> None:
        """Do nothing, because packets are sent when they are full and at the end of the answer."""

    def close(self) -> None:
        """Set ``closed``. The answer itself stays open."""
        self.closed = True

    def writable(self) -> bool:
        """Return ``True``: the file can be written to."""
        return True

    def readable(self) -> bool:
        """Return ``False``: the file cannot be read."""
        return False

    def seekable(self) -> bool:
        """Return ``False``: the file has no positions."""
        return False


def refusal_of(error: BaseException) -> tuple[int, str]:
    """Return the HTTP status and the error code with which an exception of a command is refused.

    An exception that is no error of the log is a bug, or a database that cannot be read: the result
    is (503, INTERNAL).
    """
    for kind, status, code in (
        (QueueNotInLogError, 404, UNKNOWN_QUEUE),
        (UnknownEpochError, 409, UNKNOWN_EPOCH),
        (PastTheEndError, 409, PAST_THE_END),
        (TrimmedError, 410, TRIMMED),
        (StoreDamagedError, 409, DAMAGED),
        (StoreError, 503, "store"),
    ):
        if isinstance(error, kind):
            return status, code
    return 503, INTERNAL
