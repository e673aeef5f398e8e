"""What only the reader answers with: the refusals of the log, and Arrow written into an answer."""

from __future__ import annotations

from typing import Any

from srmp_spark.errors import StoreDamagedError, StoreError
from srmp_spark.interface import PAST_THE_END, TRIMMED, UNKNOWN_EPOCH, UNKNOWN_QUEUE
from srmp_spark.queue_manager.child.answer import AnswerWriter
from srmp_spark.queue_manager.reader.link import DAMAGED, INTERNAL
from srmp_spark.store.log import PastTheEndError, TrimmedError, UnknownEpochError, UnknownQueueError


class AnswerFile:
    """An answer as a file that Arrow can write to; closing it ends nothing."""

    def __init__(self, answer: AnswerWriter) -> None:
        self._answer = answer
        self.closed = False

    def write(self, data: Any) -> int:  # noqa: ANN401  # bytes, or a buffer of Arrow
        """As :meth:`AnswerWriter.write`."""
        return self._answer.write(data)

    def flush(self) -> None:
        """Nothing: packets go out when they are full, and at the end."""

    def close(self) -> None:
        """Only notes it."""
        self.closed = True

    def writable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False


def refusal_of(error: BaseException) -> tuple[int, str]:
    """Status and code for what a command of the reader raised."""
    for kind, status, code in (
        (UnknownQueueError, 404, UNKNOWN_QUEUE),
        (UnknownEpochError, 409, UNKNOWN_EPOCH),
        (PastTheEndError, 409, PAST_THE_END),
        (TrimmedError, 410, TRIMMED),
        (StoreDamagedError, 409, DAMAGED),
        (StoreError, 503, "store"),
    ):
        if isinstance(error, kind):
            return status, code
    return 503, INTERNAL
