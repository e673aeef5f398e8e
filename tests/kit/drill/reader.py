"""A reader that keeps its own positions, like a Spark query with a checkpoint.

The reader keeps the positions even when the queue manager loses its disk. The reader goes from
epoch to epoch as :meth:`srmp_spark.spark.reading.logs.Logs.advance` does, and counts how often it
read the row at each place.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ApiUnreachableError, StoreDamagedError
from srmp_spark.interface import DEFAULT_CONSUMER

BATCH_ROWS = 20
IDLE_SECONDS = 0.05
RETRY_SECONDS = 0.2
RENEW_SECONDS = 10.0
Place = tuple[str, str, int]
"""Epoch, queue and sequence of a row."""


class Reader(threading.Thread):
    """Reads queues to the end, again and again, until :meth:`stop`.

    ``rows`` counts the reads of each place, and ``read_at`` has the monotonic time, in seconds, of
    each read that had rows. ``failure`` is the text of the error at which a query would have
    failed, or ``None``.
    """

    def __init__(self, api: str, queues: Sequence[str], consumer: str = DEFAULT_CONSUMER) -> None:
        super().__init__(name="drill-reader", daemon=True)
        self.rows: Counter[Place] = Counter()
        self.read_at: list[float] = []
        self._consumer = consumer
        self.failure: str | None = None
        self._api = api
        self._positions: dict[str, tuple[str, int]] = {}
        self._queues = queues
        self._over = threading.Event()
        self._registered_at = -RENEW_SECONDS

    def positions(self) -> dict[str, tuple[str, int]]:
        """Return, by queue, the epoch and the sequence up to which rows were read."""
        return dict(self._positions)

    def stop(self) -> None:
        """End the thread after the step in progress, and wait for its end."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Read until :meth:`stop`, or until the first answer at which a query would fail.

        Such an answer is stored in ``failure``. An unreachable queue manager is tried again.
        """
        client = QueueManagerClient(self._api, retry_seconds=0.0)
        while not self._over.is_set() and self.failure is None:
            pause = self._turn(client)
            if pause:
                time.sleep(pause)

    def _turn(self, client: QueueManagerClient) -> float:
        """Read one batch of each queue, and return the seconds to wait before the next turn."""
        try:
            if time.monotonic() >= self._registered_at + RENEW_SECONDS:
                for queue in self._queues:
                    first = self._positions.get(queue, ("", 0))[1] + 1
                    client.register(queue, self._consumer, holder="drill", first=first)
                self._registered_at = time.monotonic()
            read = [self._step(client, queue) for queue in self._queues]
            return 0.0 if any(read) else IDLE_SECONDS
        except (ApiUnreachableError, pa.ArrowException, OSError):
            self._registered_at = -RENEW_SECONDS
        except (ApiError, StoreDamagedError) as error:
            if not isinstance(error, ApiError) or error.status != 503:
                self.failure = str(error)
        return RETRY_SECONDS

    def _step(self, client: QueueManagerClient, queue: str) -> bool:
        """Read one batch of a queue, or go to its next epoch.

        Return ``True`` if there was a row or a next epoch.
        """
        epoch, after = self._positions.get(queue, (None, 0))
        found = client.range(queue, epoch=epoch, after=after, max_rows=BATCH_ROWS)
        if found.last > after:
            with client.rows(queue, epoch=found.epoch, after=after, to=found.last) as stream:
                table = pa.ipc.open_stream(stream.as_file()).read_all()
            self.rows.update(
                (found.epoch, queue, sequence) for sequence in table["sequence"].to_pylist()
            )
            # The position follows the rows, so that a batch that broke off is read again.
            self._positions[queue] = (found.epoch, found.last)
            self.read_at.append(time.monotonic())
            client.received(queue, self._consumer, epoch=found.epoch, to=found.last, holder="drill")
            return True
        if found.next_epoch is not None:
            self._positions[queue] = found.next_epoch, after
            return True
        self._positions[queue] = found.epoch, after
        return False
