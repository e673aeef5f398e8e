"""How many messages a batch has on a line that breaks: fewer after each break, more after each batch that came through.

Locks end with their connection, so of a batch that the line does not carry nothing is left but messages in doubt. A batch is
halved when its connection is lost before its last acknowledgement, down to one message, and doubled when all of it came
through: a line that carries one message at a time moves one message at a time, and a good one is at its full batch again
after seven of them.
"""

from __future__ import annotations

from srmp_spark.queue_manager.puller import locks


class Line:
    """What one subscription knows of the line to its remote queue manager."""

    def __init__(self) -> None:
        self.messages_max = locks.BATCH_MESSAGES
        """Messages of the next batch."""
        self._is_tried = False

    def __repr__(self) -> str:
        return f"<Line messages_max={self.messages_max}>"

    @property
    def is_good(self) -> bool:
        """Whether it carries full batches: only then several are under way at once."""
        return self.messages_max >= locks.BATCH_MESSAGES

    def tries(self) -> None:
        """Note that a batch begins."""
        self._is_tried = True

    def carried(self, messages: int) -> None:
        """Note that a batch of so many messages came through."""
        self._is_tried = False
        if messages:
            self.messages_max = min(2 * self.messages_max, locks.BATCH_MESSAGES)

    def broke(self) -> None:
        """Note that the connection is lost; it says something of the line if a batch was under way."""
        if self._is_tried:
            self.messages_max = max(1, self.messages_max // 2)
        self._is_tried = False
