"""Give a test access to one queue of a queue manager: where to post, and the rows in it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.names import quote_queue_name

if TYPE_CHECKING:
    from srmp_spark.client.api import QueueManagerClient

WAIT_SECONDS = 30.0
"""Default of the longest wait of :meth:`QueueHandle.wait_for`, in seconds.

A busy machine needs a second, and a wrong test should fail soon. At the limit :class:`TimeoutError`
is raised.
"""


@dataclass(frozen=True, slots=True)
class QueueHandle:
    """Gives access to one existing queue.

    :meth:`.queue_manager.RunningQueueManager.queue` makes it.
    """

    name: str
    """Name of the queue as the option ``queue`` of ``format("srmp")`` accepts it.

    An example is ``private$/orders``.
    """
    listening: str
    """URL of the SRMP port of the queue manager."""
    client: QueueManagerClient
    """Client of the API of the queue manager."""

    @property
    def url(self) -> str:
        """Return the URL that messages for this queue are posted to: a ``destination``."""
        return f"{self.listening}/msmq/{quote_queue_name(self.name)}"

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that are in the queue, received or not, in their order.

        A row has the columns of ``format("srmp")``.
        """
        found = self.client.range(self.name)
        first, end = found.first, found.end
        rows: list[dict[str, Any]] = []
        at = first - 1
        while at < end:
            last = min(self.client.range(self.name, epoch=found.epoch, after=at).last, end)
            rows += self._read(found.epoch, at, last)
            at = last
        return rows

    def _read(self, epoch: str, after: int, to: int) -> list[dict[str, Any]]:
        import pyarrow as pa

        with (
            self.client.rows(self.name, epoch=epoch, after=after, to=to) as stream,
            pa.ipc.open_stream(stream.as_file()) as reader,
        ):
            return [row for batch in reader for row in batch.to_pylist()]

    def wait_for(self, count: int, seconds: float = WAIT_SECONDS) -> list[dict[str, Any]]:
        """Return the rows once there are at least ``count``.

        Raises :class:`TimeoutError` after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while True:
            rows = self.rows()
            left = deadline - time.monotonic()
            if len(rows) >= count:
                return rows
            if left <= 0:
                raise TimeoutError(
                    f"{self.name} has {len(rows)} of {count} rows after {seconds:g} s; "
                    f"post to {self.url}"
                )
            self.client.range(self.name, after=self.client.range(self.name).end, wait=left)

    def waiting(self, consumer: str = DEFAULT_CONSUMER) -> int:
        """Return how many rows ``consumer`` has not received: 0 once all of them are read."""
        described = self.client.queue(self.name)
        if consumer == DEFAULT_CONSUMER:
            return int(described["waiting"])
        found = [each for each in described["consumers"] if each["name"] == consumer]
        received = found[0]["received"] if found else described["first"] - 1
        return int(described["last"]) - int(received)
