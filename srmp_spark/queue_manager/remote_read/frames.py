"""How the reader process hands messages for remote readers to the main process: what both spell alike."""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import NamedTuple

FRAME = Struct("<QIBIII")
"""sequence · arrived_at in seconds · kind · lengths of head, counted part and tail, which follow."""
BINARY, SRMP, UNREADABLE = 0, 1, 2
"""kind; the head of an ``UNREADABLE`` one is the reason."""
RUN = Struct("<BQQ")
"""priority · first sequence · last."""


class Frame(NamedTuple):
    """One message."""

    sequence: int
    arrived_at: int
    kind: int
    head: bytes
    counted: bytes
    tail: bytes


class Frames:
    """Frames out of pieces of any size."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, piece: bytes) -> list[Frame]:
        """Those that are whole now."""
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
            found.append(Frame(sequence, arrived_at, kind, *parts))
            at = end
        del data[:at]
        return found
