"""Give a test access to one queue: the URL to post to, and the rows in the queue.

A *row* is one message as ``format("srmp")`` returns it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.names import quote_queue_name

if TYPE_CHECKING:
    from srmp_spark.client.api import QueueManagerClient

WAIT_SECONDS = 30.0
"""Default time-out of :meth:`QueueHandle.wait_for`, in seconds.

A message takes a second on a busy machine, and a wrong test should fail soon. At the limit
:class:`TimeoutError` is raised.
"""


@dataclass(frozen=True, slots=True)
class QueueHandle:
    """Gives access to one existing queue.

    Make it with :meth:`.queue_manager.RunningQueueManager.queue`. The methods raise
    :class:`~srmp_spark.errors.ApiError` if the queue manager refuses the call, for example because
    the queue was deleted, and :class:`~srmp_spark.errors.ApiUnreachableError` if no answer arrives.
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
        """Return the URL that messages for this queue are posted to.

        The URL is a value for column or option ``destination``.
        """
        return f"{self.listening}/msmq/{quote_queue_name(self.name)}"

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that the queue holds, received or not, in the order of ``sequence``.

        A row is a dictionary with the columns of ``format("srmp")``. The call receives nothing: the
        rows stay for every consumer.
        """
        found = self.client.range(self.name)
        first, end = found.first, found.end
        rows: list[dict[str, Any]] = []
        at = first - 1
        while at < end:
            step = self.client.range(self.name, epoch=found.epoch, after=at, peek=True)
            last = min(step.last, end)
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
        """Wait until the queue holds at least ``count`` rows, and return all its rows.

        The result is that of :meth:`rows`. Raises :class:`TimeoutError` if there are fewer rows
        after ``seconds``.
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
            end = self.client.range(self.name).end
            self.client.range(self.name, after=end, wait=left, peek=True)

    def waiting(self, consumer: str = DEFAULT_CONSUMER) -> int:
        """Return the number of rows of the queue that ``consumer`` has not received.

        The number is 0 once ``consumer`` has received all rows. A consumer that the queue manager
        does not know has received none.
        """
        described = self.client.queue(self.name)
        if consumer == DEFAULT_CONSUMER:
            return int(described["waiting"])
        found = [each for each in described["consumers"] if each["name"] == consumer]
        received = found[0]["received"] if found else described["first"] - 1
        return int(described["last"]) - int(received)
