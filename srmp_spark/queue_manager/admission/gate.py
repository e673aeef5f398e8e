"""Hold whether this queue manager accepts messages at present, for every way in."""

from __future__ import annotations

import sys

from srmp_spark.errors import ApiError
from srmp_spark.srmp.receiving.effects import Refused

RETRY_AFTER_SECONDS = 30
"""Value of ``Retry-After``, in seconds, in a 503 that has no other value.

It is Windows' own first resend interval ([MC-MQSRM] appendix A <16>).
"""
GATE_SECTION = "docs/GUARANTEES.md promise 2"
"""Reference in each 503 of the gate. Trouble of the queue manager is never answered 400."""


class Gate:
    """Refuses all messages while it is closed, and counts the bytes that the disk has room for.

    :class:`.DiskGate` opens and closes it.
    """

    __slots__ = ("closed", "room", "unwritten_bytes")

    def __init__(self) -> None:
        self.closed: Refused | None = None
        """The refusal (503) of every message while the gate is closed, or ``None``.

        Its reason is a short name for metrics and answers, for example ``disk-full``.
        """
        self.unwritten_bytes = 0
        """Bytes of accepted posts that are not on the disk yet.

        The free space of the disk does not show them.
        """
        self.room = sys.maxsize
        """Bytes that may be accepted before the free space of the disk is measured again."""

    def __repr__(self) -> str:
        return f"<Gate closed={self.closed.reason if self.closed else None}>"

    def close(self, reason: str, message: str) -> None:
        """Refuse all messages for ``reason`` from now on. ``message`` explains it to people."""
        self.closed = Refused(503, reason, message, GATE_SECTION, RETRY_AFTER_SECONDS)

    def open(self) -> None:
        """Accept messages again."""
        self.closed = None

    def check(self) -> None:
        """Raise :class:`ApiError` (503) if the gate is closed, for calls of the API."""
        if (closed := self.closed) is not None:
            raise ApiError(503, closed.reason, closed.message, "try again")
