"""Finds the queue that a QUEUE_FORMAT names, for a server whose queues are known by name.

The documents are [MS-MQRR] 3.1.4.2 and [MS-MQDMPR] 3.1.7.1.5.
"""

from __future__ import annotations

from typing import NamedTuple

from srmp_spark.errors import SrmpSparkError
from srmp_spark.mqrr.queue_format import READABLE, QueueFormat, QueueFormatType, QueueSuffix
from srmp_spark.mqrr.status import Status

JOURNAL_SUFFIX = ";journal"
_PROTOCOLS = ("OS", "TCP")


class CannotOpenError(SrmpSparkError):
    """Reports that a queue cannot be opened; ``status`` is the reason."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class WhichQueue(NamedTuple):
    """The host and the name of a queue that a client wants to open."""

    host: str
    """A host name or an address; ``.`` is this machine."""
    name: str
    r"""Name as the client wrote it: ``private$\orders``; ``private$\orders;retry`` is a subqueue.

    If the journal is meant, ``;journal`` follows in small letters.
    """


def which_queue(queue: QueueFormat) -> WhichQueue:
    """Return the host and the name of the queue that a client wants to open.

    Raises :class:`CannotOpenError` if the name breaks the rules or cannot be read from. The same
    error is raised for kinds of names that no queue of srmp-spark has: public and private
    identifiers, and a machine's own queues.
    """
    if queue.type not in READABLE:
        raise CannotOpenError(
            Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
            "a queue cannot be read by a name of this kind",
        )
    if (broken := queue.violation()) is not None:
        raise CannotOpenError(Status.MQ_ERROR_INVALID_PARAMETER, broken)
    if queue.type not in (QueueFormatType.DIRECT, QueueFormatType.SUBQUEUE):
        raise CannotOpenError(
            Status.MQ_ERROR_QUEUE_NOT_FOUND,
            "queues here have no identifiers of their own: give DIRECT=OS:HOST\\QUEUE",
        )
    protocol, colon, rest = queue.text.partition(":")
    if not colon or protocol.upper() not in _PROTOCOLS:
        raise CannotOpenError(
            Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
            f"a queue cannot be read by a name that begins with {protocol[:20]!r}",
        )
    host, _, name = rest.replace("/", "\\").partition("\\")
    if not host or not name:
        raise CannotOpenError(
            Status.MQ_ERROR_ILLEGAL_FORMATNAME,
            f"{queue.text[:200]!r} has no host or no queue in it",
        )
    base, semicolon, word = name.partition(";")
    # The text, the suffix, or both of them name a journal ([MS-MQMQ] 2.1.2, 2.2.7).
    if word.lower() == JOURNAL_SUFFIX[1:] or queue.suffix == QueueSuffix.JOURNAL:
        return WhichQueue(host, base + JOURNAL_SUFFIX)
    if semicolon and not word:
        raise CannotOpenError(
            Status.MQ_ERROR_ILLEGAL_FORMATNAME,
            f"{queue.text[:200]!r} has no subqueue after its semicolon",
        )
    if queue.suffix not in (QueueSuffix.NONE, QueueSuffix.SUBQUEUE):
        raise CannotOpenError(
            Status.MQ_ERROR_QUEUE_NOT_FOUND, "a machine's own queues are not read remotely here"
        )
    return WhichQueue(host, name)
