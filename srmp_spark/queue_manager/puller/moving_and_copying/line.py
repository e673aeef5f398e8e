"""Choose the size of batches on a network line that may break.

Locks end with their connection. So a batch that the line does not carry leaves only messages in
doubt. The size is halved when the connection is lost before the batch's last acknowledgement, down
to one message. The size is doubled when the whole batch succeeded. A line that carries one message
at a time moves one message at a time. A good line is at its full batch again after seven batches.
"""

from __future__ import annotations

from srmp_spark.queue_manager.puller.moving_and_copying import locks


class NetworkLine:
    """Adapts the size of a batch to the network line to one remote queue manager."""

    def __init__(self) -> None:
        self.messages_max = locks.BATCH_MESSAGES
        """Most messages that the next batch may have."""
        self._is_tried = False

    def __repr__(self) -> str:
        return f"<Line messages_max={self.messages_max}>"

    @property
    def is_good(self) -> bool:
        """Return whether the next batch may have the full size (``locks.BATCH_MESSAGES``).

        Only then several batches are in progress at once.
        """
        return self.messages_max >= locks.BATCH_MESSAGES

    def tries(self) -> None:
        """Record that a batch is in progress.

        If the connection is lost now, :meth:`broke` halves the next batch.
        """
        self._is_tried = True

    def carried(self, messages: int) -> None:
        """Record that a batch of ``messages`` messages succeeded.

        If there was a message, the next batch may be twice as large, up to the full size.
        """
        self._is_tried = False
        if messages:
            self.messages_max = min(2 * self.messages_max, locks.BATCH_MESSAGES)

    def broke(self) -> None:
        """Record that the connection is lost.

        If a batch was in progress, the next one has at most half as many messages, but at least
        one.
        """
        if self._is_tried:
            self.messages_max = max(1, self.messages_max // 2)
        self._is_tried = False
