"""Define the form in which the reader process sends messages to the main process.

The main process passes them on to remote readers (:mod:`srmp_spark.queue_manager.remote_read`).
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import NamedTuple

FRAME = Struct("<QIBIII")
"""Header of a frame: sequence, ``arrived_at`` in seconds, kind, and the lengths of head, counted
part and tail. These three parts follow.
"""
BINARY, SRMP, UNREADABLE = 0, 1, 2
"""Values of ``kind``. The head of an ``UNREADABLE`` frame is the reason."""
RUN = Struct("<BQQ")
"""The form of a run of rows of one priority: priority, first sequence, last sequence."""


class MessageFrame(NamedTuple):
    """One message of a queue, as the reader process sends it. ``arrived_at`` is in seconds."""

    sequence: int
    arrived_at: int
    kind: int
    head: bytes
    counted: bytes
    tail: bytes


class Frames:
    """Assembles frames from the pieces of a byte stream, which may have any size."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, piece: bytes) -> list[MessageFrame]:
        """Add a piece of the stream, and return the frames that became complete."""
        data = self._data
        data += piece
        found, at = [], 0
        while len(data) - at >= FRAME.size:
            sequence, arrived_at, kind, head, counted, tail = FRAME.unpack_from(data, at)
            end = at + FRAME.size + head + counted + tail
            if end > len(data):
                break
            first = at + FRAME.size
            cut = (first, first + head, first + head + counted, end)
            parts = [bytes(data[low:high]) for low, high in pairwise(cut)]
            found.append(MessageFrame(sequence, arrived_at, kind, *parts))
            at = end
        del data[:at]
        return found
