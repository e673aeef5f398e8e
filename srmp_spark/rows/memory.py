"""Memory for large pieces, taken again as soon as nothing points into it.

Fresh memory must be cleared by the kernel before it is given out, which for a segment costs more than to read it. Arrow's
columns point into the piece they came from, and whoever got them may keep them: Python knows that, and refuses to resize a
``bytearray`` that anything points into.
"""

from __future__ import annotations

BLOCKS_MAX = 3
"""Blocks kept: one is filled, one is being sent, one may lag behind. Further ones are used once."""
BLOCK_STEP = 1 << 20
"""Blocks grow by so many bytes: segments of one sender differ little."""


class Memory:
    """Blocks of one stream; not for several threads."""

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []

    def take(self, length: int) -> memoryview:
        """So many bytes of any content, nobody else's as long as the view or anything made from it lives."""
        free = [block for block in self._blocks if _is_free(block)]
        for block in free:
            if len(block) >= length:
                return memoryview(block)[:length]
        block = bytearray(length + -length % BLOCK_STEP)
        if free:
            self._blocks = [each for each in self._blocks if each is not free[0]]
        if len(self._blocks) < BLOCKS_MAX:
            self._blocks.append(block)
        return memoryview(block)[:length]


def _is_free(block: bytearray) -> bool:
    try:
        block.append(0)
    except BufferError:
        return False
    block.pop()
    return True
